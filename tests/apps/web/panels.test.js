// Panels of one's own, points of one metric against another, flat charts and saved views.
import assert from "node:assert/strict";
import { test } from "node:test";

// The modules read the address of the page when they are loaded.
globalThis.document = { getElementById: () => null };
globalThis.location = { protocol: "http:", search: "?lang=en", hash: "", pathname: "/" };
globalThis.addEventListener = () => {};
globalThis.history = { pushState() {}, replaceState() {} };
const { changePanel, panelChart, readPanels } = await import("../../../src/barograph/apps/page/web/charts/panels.js");
const { against, lastAgainst } = await import("../../../src/barograph/apps/page/web/charts/scatter.js");
const { isFlat } = await import("../../../src/barograph/apps/page/web/charts/flat.js");
const { savedStates } = await import("../../../src/barograph/apps/page/web/data/saved_views.js");

const series = (x, last) => ({ name: "y", found: true, x, x_end: x, min: last, max: last, last });
const chart = (key, ...runs) => ({
  key,
  title: key.toUpperCase(),
  unit: "s",
  names: [key],
  band: null,
  lines: runs.map((run) => ({ run, mean: key, max: `${key}/max`, min: `${key}/min` })),
});
const charts = { a: chart("a", "r", "q"), b: chart("b", "r", "q"), c: chart("c", "r"), d: chart("d", "r") };
const find = (name) => charts[name];

test("panels are read from the URL, and what is not a panel is left out", () => {
  assert.deepEqual(readPanels('[{"metrics":["a"]},{"metrics":3},null,7]'), [{ metrics: ["a"] }]);
  assert.deepEqual(readPanels("nonsense"), []);
  assert.deepEqual(readPanels('{"metrics":["a"]}'), []);
  changePanel(0, { metrics: ["a"] });
  changePanel(1, { metrics: ["b"], low: 0 });
  changePanel(0, null);
  assert.deepEqual(readPanels(), [{ metrics: ["b"], low: 0 }]);
});

test("the lines of a panel have the colours of the runs and dashes, of one run the colours of the metrics", () => {
  const several = panelChart({ metrics: ["a", "b", "none"] }, 0, find);
  assert.deepEqual(
    several.lines.map(({ run, of, colour, dash, max }) => [run, of, colour, dash, max]),
    [
      ["r", "A", undefined, 0, null],
      ["q", "A", undefined, 0, null],
      ["r", "B", undefined, 1, null],
      ["q", "B", undefined, 1, null],
    ],
  );
  assert.equal(several.title, "A, B");
  const single = panelChart({ metrics: ["c", "d"], title: "mine" }, 0, find);
  assert.deepEqual(
    single.lines.map(({ colour, dash }) => [colour, dash]),
    [
      [0, 0],
      [1, 0],
    ],
  );
  assert.equal(single.title, "mine");
  const alone = panelChart({ metrics: ["c"], low: 0, log: true }, 0, find);
  assert.equal(alone.lines[0].max, "c/max");
  assert.deepEqual(alone.settings, { log: true, smooth: undefined, low: 0, high: undefined });
});

test("a metric against another has the names of both, and runs without one have no line of it", () => {
  const made = panelChart({ metrics: ["a"], kind: "steps", against: "c" }, 0, find);
  assert.equal(made.title, "A / C");
  assert.deepEqual(
    made.lines.map((line) => [line.run, line.against]),
    [
      ["r", "c"],
      ["q", undefined],
    ],
  );
});

test("points are the values of two series at the same steps, from left to right", () => {
  const made = against(series([0, 1, 2, 9], [5, 6, NaN, 8]), series([0, 1, 2, 3], [3, 1, 2, 4]));
  assert.deepEqual([...made.x], [1, 3]);
  assert.deepEqual([...made.last], [6, 5]);
  assert.deepEqual([...made.steps], [1, 0]);
  const last = lastAgainst(series([0, 1], [5, 6]), series([0, 1], [3, NaN]));
  assert.deepEqual([[...last.x], [...last.last]], [[3], [6]]);
  assert.equal(lastAgainst(series([0], [NaN]), series([0], [1])).x.length, 0);
});

test("a chart is flat without two different finite values", () => {
  assert.ok(isFlat({ found: false }));
  assert.ok(isFlat(series([0, 1], [2, 2])));
  assert.ok(isFlat(series([0, 1], [NaN, NaN])));
  assert.ok(!isFlat({ found: true, min: [1], max: [2] }));
});

test("a saved view has neither runs nor language", () => {
  assert.deepEqual(savedStates({ run: "a", with: "b", lang: "zh", filter: "loss", panels: "[]" }), {
    filter: "loss",
    panels: "[]",
  });
});
