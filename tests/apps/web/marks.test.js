// The marks of findings on charts.
import assert from "node:assert/strict";
import { test } from "node:test";

// The modules read the address of the page when they are loaded.
globalThis.document = {
  getElementById: () => null,
  createElement: () => ({ setAttribute() {}, append() {} }),
  createTreeWalker: () => ({}), // of lit-html
};
globalThis.location = { protocol: "http:", search: "?run=a", hash: "", pathname: "/" };
globalThis.addEventListener = () => {};
let told = 0;
globalThis.dispatchEvent = () => told++;
globalThis.history = { pushState() {}, replaceState() {} };
const { marksWithin, nearGroups, worst } = await import("../../../src/barograph/apps/page/web/charts/marks.js");
const { findingKey, markOf, takeMarks, toggleMarks } = await import(
  "../../../src/barograph/apps/page/web/data/marks.js"
);

const mark = (rule, onset, severity = "warning", is_open = true) => ({
  rule,
  onset,
  severity,
  is_open,
  from: { step: onset, tokens: onset * 100 },
  to: { step: onset + 5, tokens: (onset + 5) * 100 },
});

test("marks are placed on the axis of the chart, those outside and infos are left out", () => {
  takeMarks("a", { marks: [mark("late", 50), mark("early", 3), mark("hint", 10, "info")] });
  const places = (axis, range) => marksWithin(axis, range).map((one) => [one.rule, one.x]);
  assert.deepEqual(places("step", [0, 60]), [
    ["early", 3],
    ["late", 50],
  ]);
  assert.deepEqual(places("tokens", [0, 1000]), [["early", 300]]);
  assert.deepEqual(places("k", [0, 1000]), []);
  toggleMarks();
  assert.deepEqual(places("step", [0, 60]), []);
  toggleMarks();
  assert.equal(places("step", [0, 60]).length, 2);
});

test("moments are drawn as well, checkpoints only where they are few", () => {
  const moment = (kind, step) => ({ kind, step, text: "", from: { step } });
  const kinds = () => marksWithin("step", [0, 99]).map(({ kind, rule }) => kind ?? rule);
  takeMarks("a", { marks: [mark("late", 50)], moments: [moment("annotation", 3), moment("checkpoint", 60)] });
  assert.deepEqual(kinds(), ["annotation", "late", "checkpoint"]);
  const saved = Array.from({ length: 40 }, (_, step) => moment("checkpoint", step));
  takeMarks("a", { marks: [], moments: [...saved, moment("restart", 70)] });
  assert.deepEqual(kinds(), ["restart"]);
});

test("plots are told only of marks that are others", () => {
  const before = told;
  takeMarks("b", { marks: [mark("one", 1)] });
  takeMarks("b", { marks: [mark("one", 1)] });
  assert.equal(told, before + 1);
  takeMarks("b", { marks: [mark("one", 1), mark("two", 2)] });
  assert.equal(told, before + 2);
});

test("a mark is found by its finding, also where a rule found something twice", () => {
  takeMarks("a", { marks: [mark("spike", 3), mark("spike", 30)] });
  assert.equal(findingKey({ rule: "spike", onset: 30 }), "spike@30");
  assert.equal(markOf("a", { rule: "spike", onset: 30 }).from.step, 30);
  assert.equal(markOf("a", { rule: "spike", onset: 4 }), undefined);
  assert.equal(markOf("nobody", { rule: "spike", onset: 3 }), undefined);
});

test("marks that are near share a head, which leads to the worst open one", () => {
  const marks = [mark("a", 0), mark("b", 4, "critical", false), mark("c", 8, "critical"), mark("d", 40)];
  const groups = nearGroups(marks, (one) => one.onset);
  assert.deepEqual(
    groups.map((group) => group.marks.map((one) => one.rule)),
    [["a", "b", "c"], ["d"]],
  );
  assert.equal(worst(groups[0].marks).rule, "c");
  assert.equal(worst([mark("a", 0), mark("b", 0, "critical", false)]).rule, "a");
});
