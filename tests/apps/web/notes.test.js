// The Markdown of a report's blocks.
import assert from "node:assert/strict";
import { test } from "node:test";
import { chartSource, joinSources, listText, runsSource } from "../../../src/barograph/apps/page/web/notes/source.js";

test("a chart has a line for each of its settings, and none for what is left as it is", () => {
  assert.equal(chartSource({ metrics: ["reward"] }), "```chart\nreward\n```");
  const chart = {
    metrics: ["a", 'b, "c"'],
    title: "Two\n```\nlines",
    runs: ["x", "kl-*"],
    by: "none",
    kind: "runs",
    against: "d",
    low: 0,
    high: "",
    log: false,
    smooth: 0.5,
    size: "wide",
    from: 3,
    to: 9,
  };
  assert.deepEqual(chartSource(chart).split("\n"), [
    "```chart",
    'a, "b, ""c"""',
    "title: Two ``` lines",
    "runs: x, kl-*",
    "by: none",
    "against: d",
    "points: runs",
    "y: 0 to",
    "scale: linear",
    "smooth: 0.5",
    "size: wide",
    "steps: 3 to 9",
    "```",
  ]);
});

test("a table of runs, and blocks between empty lines", () => {
  assert.equal(runsSource({ runs: [], by: "", columns: [] }), "```runs\n```");
  assert.equal(
    runsSource({ runs: ["a", "b"], by: "seeds", columns: ["actor.lr"] }),
    "```runs\na, b\nby: seeds\ncolumns: actor.lr\n```",
  );
  assert.equal(joinSources(["# A\n", "\nB"]), "# A\n\nB\n");
  assert.equal(listText(["a, b", "c"]), '"a, b", c');
});
