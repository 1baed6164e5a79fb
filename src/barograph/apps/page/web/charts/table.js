// The values of a chart as CSV and as Markdown.
import { formatNumber } from "../text/format.js";
import { t } from "../text/language.js";

// One row per point: run, name as logged, step or another x, and value. Where a series has only buckets, as in a file, a
// row is the last point of a bucket, and further columns tell where it begins, its number of points and their extremes.
export function pointsCsv(series, x) {
  const isExact = series.every((one) => one.exact ?? true);
  const rows = series.flatMap(({ label, name, x: from, x_end, last, count, min, max }) =>
    Array.from(x_end ?? [], (end, i) => {
      const point = [label, name, end, last[i]];
      return isExact ? point : [...point, from[i], count[i], min[i], max[i]];
    }),
  );
  const heads = ["run", "name", x, "value", ...(isExact ? [] : [`first_${x}`, "points", "lowest", "highest"])];
  return csvText([heads, ...rows]);
}

// The means of groups with the ends of their intervals. `lines` are those of a plot.
export function meansCsv(lines, x) {
  const rows = lines.flatMap(({ label, main, min, max }) =>
    Array.from(main.x_end, (end, i) => [label, end, main.last[i], min?.last[i], max?.last[i]]),
  );
  return csvText([["group", x, "mean", "low", "high"], ...rows]);
}

function csvText(rows) {
  return rows.map((row) => `${row.map(csvCell).join(",")}\n`).join("");
}

export function csvCell(value) {
  const text = String(value ?? "");
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// A chart as a table of its runs: first, last, lowest and highest value, with a link to it.
export function chartMarkdown({ title, unit, names }, lines, url) {
  const heads = [t("run"), t("first"), t("last"), t("lowest"), t("highest")];
  const rows = lines.map(({ label, main }) => {
    const first = main.x.length ? main.last[0] : null;
    const last = main.x.length ? main.last[main.last.length - 1] : null;
    const values = [first, last, extreme(main.min, Math.min), extreme(main.max, Math.max)];
    return [label.replaceAll("|", "\\|"), ...values.map(formatNumber)];
  });
  const table = [heads, heads.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |`);
  const code = names.map((name) => `\`${name}\``).join(", ");
  return [`**${title}**${unit ? ` (${unit})` : ""}: ${code}`, "", ...table, "", `<${url}>`, ""].join("\n");
}

function extreme(values, choose) {
  const finite = Array.from(values).filter(Number.isFinite);
  return finite.length ? finite.reduce((a, b) => choose(a, b)) : null;
}
