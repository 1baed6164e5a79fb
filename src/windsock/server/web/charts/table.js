// The values of a chart as CSV and as Markdown.
import { formatNumber } from "../text/format.js";
import { t } from "../text/language.js";

// One row per point: run, name as logged, step or another x, and value. `series` are {label, name, x_end, last}.
export function pointsCsv(series, x) {
  const rows = [["run", "name", x, "value"]];
  for (const { label, name, x_end, last } of series) {
    for (let i = 0; i < (x_end?.length ?? 0); i++) rows.push([label, name, x_end[i], last[i]]);
  }
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
