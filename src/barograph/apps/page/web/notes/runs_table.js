// The table of runs in a report: a row for each run, or for each group of runs with means.
import { groupSize } from "../charts/compared_chart.js";
import { formatConfigValue, formatNumber } from "../text/format.js";
import { localized, t } from "../text/language.js";
import { swatch, table } from "../ui/widgets.js";
import { intervalText } from "../views/group_verdict.js";

export function runsTable(block, legend, { metrics, runs }) {
  const groups = legend.groups(block.groups);
  const hasSeveral = groups.some((group) => group.keys.length > 1);
  const steps = new Map(runs.map(({ key, last_step }) => [key, last_step]));
  const heads = [
    t("run"),
    ...(hasSeveral ? [t("runs_in_group")] : []),
    t("col_steps"),
    ...block.columns.map(({ key, metric }) => (metric ? localized(metrics[metric].title) : key)),
  ];
  const rows = groups.map((group, i) => [
    swatch(group.swatch, group.label, group.about),
    ...(hasSeveral ? [groupSize(group)] : []),
    stepsText(group.keys.map((key) => steps.get(key))),
    ...block.rows[i].map(cellText),
  ]);
  return table(heads, rows, "right runs-table");
}

function stepsText(steps) {
  const known = [...new Set(steps.filter((one) => one !== null))].sort((a, b) => a - b);
  return known.length > 1 ? `${known[0]}–${known.at(-1)}` : String(known[0] ?? "–");
}

function cellText(cell) {
  if (!cell) return "–";
  if (cell.mean) return intervalText(cell.mean);
  return typeof cell.same === "number" ? formatNumber(cell.same) : formatConfigValue(cell.same);
}
