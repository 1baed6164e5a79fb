// The search of samples and the order of families.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sortByFamily } from "../../src/windsock/server/web/charts/families.js";
import { searchSamples } from "../../src/windsock/server/web/data/sample_search.js";

test("samples of a report are searched as the server does", () => {
  const sample = (step, fields) => ({ step, prompt: "Add 1", completion: "2", reward: step / 10, ...fields });
  const all = {
    samples: [sample(0, { group: "g" }), sample(5, { task: "q" }), sample(9, { completion: "Two" })],
    census: {},
  };
  const steps = (parameters) => searchSamples(all, parameters).samples.map((one) => one.step);
  assert.deepEqual(steps({}), [9, 5, 0]);
  assert.deepEqual(steps({ sort: "reward" }), [0, 5, 9]);
  assert.deepEqual(steps({ step: 0 }), [0]);
  assert.deepEqual(steps({ step: "" }), [9, 5, 0]);
  assert.deepEqual(steps({ grep: "two" }), [9]);
  assert.deepEqual(steps({ task: "q" }), [5]);
  assert.deepEqual(steps({ group: "g" }), [0]);
  assert.deepEqual(steps({ min_reward: "0.5", max_reward: "0.5" }), [5]);
  assert.deepEqual(searchSamples(null, {}).samples, []);
});

test("the families that people look at first come first, the others keep their order", () => {
  const sorted = sortByFamily([{ key: "memory" }, { key: "value" }, { key: "time" }, { key: "reward" }]);
  assert.deepEqual(
    sorted.map((one) => one.key),
    ["reward", "value", "memory", "time"],
  );
});
