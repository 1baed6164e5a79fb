// The search of samples and the order of families.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sortByFamily } from "../../../src/barograph/apps/page/web/charts/families.js";
import { findSample, searchSamples } from "../../../src/barograph/apps/page/web/data/sample_search.js";

test("samples of a report are searched as the server does", () => {
  const turns = (text) => [{ role: "completion", parts: [{ kind: "text", text }] }];
  const sample = (step, fields) => ({ step, place: `s:${step}`, turns: turns("2"), reward: step / 10, ...fields });
  const all = {
    samples: [
      sample(0, { group: "g", rewards: { format: 0.5 }, columns: { correct: false, domain: "a b" } }),
      sample(5, { task: "q", columns: { correct: true }, discarded: "stale" }),
      sample(9, { turns: turns("Two") }),
    ],
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
  assert.deepEqual(steps({ regex: "^T" }), [9]);
  assert.deepEqual(steps({ sort: "-correct" }), [5, 0, 9]);
  assert.deepEqual(searchSamples(null, {}).samples, []);
  assert.equal(findSample(all, "s:5").task, "q");
  const conditions = {
    "correct = false": [0],
    "correct != false": [5],
    "reward.format < 0.6 and step = 0": [0],
    'domain = "a b"': [0],
    "domain = 'a b' and step = 0": [0],
    "domain = it's": [],
    "domain ~ A": [0],
    "discarded = none": [9, 0],
    "discarded != none, reward >= 0.5": [5],
    "": [9, 5, 0],
  };
  for (const [where, expected] of Object.entries(conditions)) assert.deepEqual(steps({ where }), expected, where);
  assert.throws(() => steps({ where: "reward <" }), /where/);
});

test("the families that people look at first come first, the others keep their order", () => {
  const sorted = sortByFamily([{ key: "memory" }, { key: "value" }, { key: "time" }, { key: "reward" }]);
  assert.deepEqual(
    sorted.map((one) => one.key),
    ["reward", "value", "memory", "time"],
  );
});
