// Charts of several runs: what means the same is one chart, whatever its name in each run.

// `views` are the runs with their charts, [{run, data}]; `comparison` tells which names mean the same.
export function joinCharts(views, comparison) {
  const charts = [];
  const chartOf = new Map(comparison.charts.flatMap((one) => one.lines.map((line) => [keyOf(line), one])));
  const done = new Set(); // charts of the comparison that are drawn
  const keys = new Set();
  for (const { run, data } of views) {
    for (const chart of data.charts) {
      const joined = chartOf.get(keyOf({ run, name: chart.main })) ?? alone(run, chart.main);
      if (done.has(joined)) continue;
      const extremes = ["max", "min"].map((name) => chartOf.get(keyOf({ run, name: chart.lines[name] })));
      const lines = joined.lines.map((line) => withExtremes(line, extremes));
      const key = keys.has(chart.key) ? joined.key : chart.key;
      charts.push({ ...chart, key, lines, names: chart.lines, band: joined.band ?? null });
      keys.add(key);
      done.add(joined);
      for (const one of extremes) if (one && isDrawn(one, lines)) done.add(one);
    }
  }
  return charts;
}

function keyOf({ run, name }) {
  return `${run}\n${name}`;
}

// A name that the run has got since the comparison.
function alone(run, name) {
  return { key: name, lines: [{ run, name, factor: 1, note: null }] };
}

// The line of a run with its maximum and minimum, which must be of the same scale.
function withExtremes({ run, name, factor, note }, extremes) {
  const [max, min] = extremes.map((one) => one?.lines.find((line) => line.run === run && line.factor === factor)?.name);
  return { run, mean: name, factor, note, max: max && min ? max : null, min: max && min ? min : null };
}

// Whether every line of a chart of extremes is the band of a line; otherwise it needs a chart of its own.
function isDrawn(chart, lines) {
  return chart.lines.every(({ run, name }) =>
    lines.some((line) => line.run === run && (line.max === name || line.min === name)),
  );
}

// The families of all runs, the known ones first, each in the order in which it comes.
export function joinFamilies(views) {
  const found = new Map();
  for (const { data } of views)
    for (const family of data.families) if (!found.has(family.key)) found.set(family.key, family);
  const isOther = (family) => Number(family.key.startsWith("other:"));
  return [...found.values()].sort((a, b) => isOther(a) - isOther(b));
}
