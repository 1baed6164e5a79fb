// The values of a plot as CSV.

const COLUMNS = ["x", "x_end", "min", "max", "last", "count", "nonfinite"];

// One row per bucket of every line, its maximum and its minimum.
export function linesCsv(lines) {
  const rows = [["run", "name", ...COLUMNS]];
  for (const line of lines) {
    for (const series of [line.main, line.max, line.min]) {
      for (let i = 0; i < (series?.x?.length ?? 0); i++) {
        rows.push([line.label, series.name, ...COLUMNS.map((column) => series[column][i])]);
      }
    }
  }
  return rows.map((row) => `${row.map(csvCell).join(",")}\n`).join("");
}

export function csvCell(value) {
  const text = String(value ?? "");
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
