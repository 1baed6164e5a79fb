// A chart of a response as the chart of a card.
import { localized, t } from "../text/language.js";

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
    unit: [metric?.sign, guessedUnit(chart), triple && runs.length === 1 ? "min–max" : ""].filter(Boolean).join(" · "),
    metric,
    band: chart.band,
    note: chart.note ?? (metric ? null : guessNote(chart)),
    names: Object.values(chart.lines),
    lines: runs.map(line),
  };
}

// A chart of several runs, of which each has a line of its own name.
export function joinedChart(chart, metrics) {
  const { lines } = chart;
  const notes = lines.map((line) => line.note).filter(Boolean);
  const first = metricChart({ ...chart, lines: chart.names }, metrics, []);
  return { ...first, note: notes[0] ?? first.note, names: [...new Set(lines.map((line) => line.mean))], lines };
}

// What the form of an unknown name suggests is marked as guessed.
function guessedUnit({ guessed }) {
  return guessed?.unit ? `${guessed.unit} (${t("guessed")})` : "";
}

function guessNote({ guessed }) {
  return guessed ? `${t("guessed_from_form")}: ${localized(guessed.text)}` : t("unknown_name");
}
