// A chart of a comparison as the chart of a card: a line for each run, or for each group of runs.
import { runs } from "../data/runs.js";
import { comparedTitle, groupLabels, labelText } from "../text/labels.js";
import { t } from "../text/language.js";
import { seriesStyle } from "../ui/colours.js";
import { groupLine } from "./band_store.js";

// `metrics` are the catalogue's records by id; `groups` are those of `namedGroups`, or null.
export function comparedChart(chart, metrics, groups) {
  const metric = metrics[chart.metric];
  const notes = chart.lines.map((line) => line.note).filter(Boolean);
  const lines = groups
    ? groups.map((group) => groupLine(chart, group)).filter(Boolean)
    : chart.lines.map((line) => ({ run: line.run, mean: line.name, factor: line.factor ?? 1 }));
  return {
    key: chart.key,
    title: comparedTitle(chart),
    unit: metric?.sign ?? "",
    metric,
    band: chart.band,
    note: notes[0] ?? null,
    names: [...new Set(chart.lines.map((line) => line.name))],
    lines,
  };
}

// Groups of runs with what the page calls and paints them.
export function namedGroups(groups, nameOf = (key) => runs.get(key)?.name, colourOf = (_, i) => i) {
  const labels = groupLabels(groups, nameOf, t("no_value"));
  return groups.map((group, i) => ({
    ...group,
    about: labelText(group, t("no_value")),
    id: `group ${i}`,
    label: labels[i],
    colour: colourOf(group, i),
    swatch: seriesStyle(colourOf(group, i)),
  }));
}

export function groupSize({ keys, seeds }) {
  if (keys.length === 1) return t("one_run");
  return seeds === keys.length ? t("n_seeds", { n: seeds }) : t("n_runs", { n: keys.length });
}
