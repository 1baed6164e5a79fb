// A chart of a response as the chart of a card.
import { localized } from "../text/language.js";

// `metrics` are the catalogue's records by id; every run has a line.
export function metricChart(chart, metrics, runs) {
  const metric = metrics[chart.metric];
  const here = Object.values(chart.here ?? {}).join(" · ");
  const triple = chart.lines.max && chart.lines.min;
  const line = (run) => ({
    run,
    mean: chart.main,
    max: triple ? chart.lines.max : null,
    min: triple ? chart.lines.min : null,
  });
  return {
    key: chart.key,
    title: metric ? [localized(metric.title), here].filter(Boolean).join(" · ") : chart.key,
    unit: [metric?.sign, triple ? "min–max" : ""].filter(Boolean).join(" · "),
    metric,
    note: chart.note,
    names: Object.values(chart.lines),
    lines: runs.map(line),
  };
}
