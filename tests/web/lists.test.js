// The order and the search of runs, samples and families.
import assert from "node:assert/strict";
import { test } from "node:test";
import { sortByFamily } from "../../src/windsock/server/web/charts/families.js";
import { orderRuns } from "../../src/windsock/server/web/data/run_order.js";
import { searchSamples } from "../../src/windsock/server/web/data/sample_search.js";

const run = (name, fields = {}) => ({
  name,
  project: "p",
  status: "finished",
  vocabulary: "roll",
  tags: [],
  note: "",
  began: 0,
  ...fields,
});
const names = (runs) => runs.map((one) => one.name).join();

test("runs are sorted, pinned ones first", () => {
  const runs = [run("r10", { began: 1 }), run("r9", { began: 3 }), run("pinned", { began: 0, pinned: true })];
  assert.equal(names(orderRuns(runs, {})), "pinned,r9,r10");
  assert.equal(names(orderRuns(runs, { sort: "name" })), "pinned,r9,r10"); // numbers in names count as numbers
  assert.equal(names(orderRuns(runs, { sort: "nonsense" })), "pinned,r9,r10");
});

test("a reward that is missing or not a number sorts last", () => {
  const rewards = { low: { last: 0.1 }, none: null, nan: { last: "NaN" }, high: { last: 0.9 } };
  const runs = Object.entries(rewards).map(([name, reward]) => run(name, { reward }));
  assert.equal(names(orderRuns(runs, { sort: "reward" })), "high,low,none,nan");
});

test("a query matches words in name, project, status, vocabulary, tags and note", () => {
  const runs = [
    run("alpha", { tags: ["night"] }),
    run("beta", { note: "look at the KL" }),
    run("gone", { hidden: true }),
  ];
  assert.equal(names(orderRuns(runs, { query: "kl" })), "beta");
  assert.equal(names(orderRuns(runs, { query: "NIGHT alp" })), "alpha");
  assert.equal(names(orderRuns(runs, { query: "night beta" })), "");
  assert.equal(names(orderRuns(runs, { showHidden: true })), "alpha,beta,gone");
});

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
