// The table of runs: the order of its rows, their texts, and the CSV.
import assert from "node:assert/strict";
import { test } from "node:test";

Object.assign(globalThis, {
  location: { protocol: "http:", search: "?lang=en", pathname: "/" },
  addEventListener() {},
  innerWidth: 1440,
});
const { columnWidth, compareValues, differenceText, groupNameWidth, isComparable, meanText, tableCsv } = await import(
  "../../../src/barograph/apps/page/web/table/columns.js"
);
const { rowsOf, sortGroups, sortRuns } = await import("../../../src/barograph/apps/page/web/table/order.js");
const { comparedTitle, groupLabels, labelText } = await import("../../../src/barograph/apps/page/web/text/labels.js");

test("numbers come before texts, and absent values last in both directions", () => {
  const values = [3, null, "NaN", 1, "b10", undefined, "b9"];
  const sorted = (sign) => [...values].sort((a, b) => compareValues(a, b, sign));
  assert.deepEqual(sorted(1), [1, 3, "b9", "b10", "NaN", null, undefined]);
  assert.deepEqual(sorted(-1), [3, 1, "b10", "b9", "NaN", null, undefined]);
});

test("pinned runs come first, and equal ones keep their order", () => {
  const values = { a: 1, b: 2, c: 1, d: 0 };
  const order = (sign) =>
    sortRuns(
      Object.keys(values),
      (key) => values[key],
      sign,
      (key) => key === "d",
    );
  assert.deepEqual(order(-1), ["d", "b", "a", "c"]);
  assert.deepEqual(order(1), ["d", "a", "c", "b"]);
});

const GROUPS = [
  { label: [["actor.lr", 1e-6]], keys: ["a", "b"], values: [{ mean: [0.5, 0.4, 0.6, 2] }] },
  { label: [["actor.lr", 2e-6]], keys: ["c", "d"], values: [{ same: 0.7 }] },
  { label: [], keys: ["e"], values: [null] },
];

test("groups are sorted by their means, and unfold; a run that is alone is a row", () => {
  const sorted = sortGroups(GROUPS, 0, -1);
  assert.deepEqual(
    sorted.map((group) => group.keys[0]),
    ["c", "a", "e"],
  );
  assert.equal(labelText(GROUPS[0]), "lr=1e-6");
  const rows = rowsOf(sorted, ["e", "d", "c", "b", "a"], (group) => group === GROUPS[0]);
  assert.deepEqual(
    rows.map((row) => row.key ?? row.group.keys.join("+")),
    ["c+d", "a+b", "b", "a", "e"],
  );
});

test("the first column has room for the longest name of a group, up to a third of the window", () => {
  assert.equal(groupNameWidth(["lr=1e-6"], {}), 300);
  assert.ok(groupNameWidth(["lr=1e-6", "steps=14 turns=16 actor_lr=9e-4"], {}) > 380);
  assert.equal(groupNameWidth(["a".repeat(200)], {}), 480);
  assert.equal(groupNameWidth(["a".repeat(200)], { name: 200 }), 200); // as it was dragged
});

test("texts of means and of differences from the baseline", () => {
  assert.equal(meanText("reward", [0.5, 0.4, 0.6, 5]), "0.500 ± 0.1");
  assert.equal(meanText("reward", [0.5, null, null, 1]), "0.500");
  assert.equal(meanText("duration", [90, 80, 100, 5]), "1 min 30 s");
  assert.equal(differenceText("reward", 0.75, 0.5), "+0.250");
  assert.equal(differenceText("reward", "a", 0.5), "");
  assert.equal(differenceText("duration", 2, 1), "");
  assert.deepEqual(["duration", "began", "reward", "status"].map(isComparable), [false, false, true, true]);
});

test("the CSV quotes what needs it", () => {
  const text = tableCsv(
    ["name", "tag", "lr"],
    [
      ['a,"b"', ["x", "y"], 1e-6],
      ["c", [], null],
    ],
  );
  assert.equal(text, 'name,tag,lr\n"a,""b""",x y,0.000001\nc,,\n');
});

test("the title of a chart has what its names fill in, such as the domain; without a metric it is the name", () => {
  const title = { en: "Score: mean, by domain", zh: "得分：均值，按领域" };
  assert.equal(comparedTitle({ key: "k", title, here: { domain: "gsm8k" } }), "Score: mean, by domain · gsm8k");
  assert.equal(comparedTitle({ key: "mine", title: null, here: {} }), "mine");
});

test("a group with many settings is called by the names of its runs, and no two groups are called the same", () => {
  const settings = (value) => ["a", "b", "c", "d"].map((key) => [`demo.${key}`, value]);
  const group = (keys, value) => ({ keys, label: settings(value) });
  const names = { 1: "seed-1", 2: "seed-2", 3: "other", 4: "seed-9", 5: "seed-8", 6: "x", 7: "y" };
  const labels = (...groups) => groupLabels(groups, (key) => names[key], "none");
  assert.deepEqual(labels(group([1, 2], 1), group([3], 2), group([6, 7], 3)), ["seed-*", "other", "x +1"]);
  assert.deepEqual(labels(group([1, 2], 1), group([4, 5], 2)), ["a=1 b=1 c=1 d=1", "a=2 b=2 c=2 d=2"]);
  assert.deepEqual(labels({ keys: [3], label: [["lr", 0.1]] }, { keys: [6], label: [] }), ["lr=0.1", "x"]);
});

test("a column has room for its title, also in Chinese", () => {
  assert.equal(columnWidth("last:validation", "x".repeat(12), {}), 34 + 7.6 * 12);
  assert.ok(columnWidth("last:validation", "验证 · 最新值", {}) > 34 + 13 * 5 + 3 * 3);
  assert.equal(columnWidth("last:validation", "验证", { "last:validation": 70 }), 70);
});
