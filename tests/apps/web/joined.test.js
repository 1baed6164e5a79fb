// Charts of several runs, joined by what their names mean.
import assert from "node:assert/strict";
import { test } from "node:test";
import { joinCharts, joinFamilies } from "../../../src/barograph/apps/page/web/charts/joined.js";

const single = (name) => ({ key: name, main: name, lines: { line: name } });
const triple = (stem) => ({
  key: stem,
  main: `${stem}/mean`,
  lines: { mean: `${stem}/mean`, max: `${stem}/max`, min: `${stem}/min` },
});
const line = (run, name, factor = 1) => ({ run, name, factor, note: null });
const joined = (key, ...lines) => ({ key, lines });

test("names that mean the same are one chart, with the name of each run", () => {
  const views = [
    { run: "a", data: { charts: [single("reward"), single("mine")] } },
    { run: "b", data: { charts: [single("critic/score/mean"), single("theirs")] } },
  ];
  const comparison = {
    charts: [
      joined("reward", line("a", "reward"), line("b", "critic/score/mean", 0.1)),
      joined("mine", line("a", "mine")),
      joined("theirs", line("b", "theirs")),
    ],
  };
  const found = joinCharts(views, comparison);
  assert.deepEqual(
    found.map((chart) => [chart.key, chart.lines.map(({ run, mean, factor }) => [run, mean, factor])]),
    [
      [
        "reward",
        [
          ["a", "reward", 1],
          ["b", "critic/score/mean", 0.1],
        ],
      ],
      ["mine", [["a", "mine", 1]]],
      ["theirs", [["b", "theirs", 1]]],
    ],
  );
});

test("extremes are the band of the line of their run, and no line is dropped", () => {
  const views = [
    { run: "a", data: { charts: [triple("score")] } },
    { run: "b", data: { charts: [triple("reward")] } },
    { run: "c", data: { charts: [single("best")] } },
  ];
  const comparison = {
    charts: [
      joined("score/mean", line("a", "score/mean"), line("b", "reward/mean")),
      joined("score/max", line("a", "score/max"), line("b", "reward/max"), line("c", "best")),
      joined("score/min", line("a", "score/min"), line("b", "reward/min")),
    ],
  };
  const found = joinCharts(views, comparison);
  assert.deepEqual(
    found.map((chart) => chart.lines.map(({ run, mean, max, min }) => [run, mean, max, min])),
    [
      [
        ["a", "score/mean", "score/max", "score/min"],
        ["b", "reward/mean", "reward/max", "reward/min"],
      ],
      [
        ["a", "score/max", null, null],
        ["b", "reward/max", null, null],
        ["c", "best", null, null],
      ],
    ],
  );
});

test("one name of two meanings has two charts with different keys", () => {
  const views = ["a", "b"].map((run) => ({ run, data: { charts: [single("kl")] } }));
  const comparison = { charts: [joined("kl", line("a", "kl")), joined("kl (trl/rloo)", line("b", "kl"))] };
  assert.deepEqual(
    joinCharts(views, comparison).map((chart) => chart.key),
    ["kl", "kl (trl/rloo)"],
  );
});

test("a name that came after the comparison has a chart", () => {
  const found = joinCharts([{ run: "a", data: { charts: [single("new")] } }], { charts: [] });
  assert.deepEqual(found[0].lines, [{ run: "a", mean: "new", factor: 1, note: null, max: null, min: null }]);
});

test("families of all runs, the known ones first", () => {
  const view = (...keys) => ({ data: { families: keys.map((key) => ({ key })) } });
  assert.deepEqual(
    joinFamilies([view("reward", "other:my"), view("time", "other:", "reward")]).map(({ key }) => key),
    ["reward", "time", "other:my", "other:"],
  );
});
