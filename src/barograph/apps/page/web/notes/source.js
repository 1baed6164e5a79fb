// Blocks of a report as the Markdown that the server reads; docs/page.md describes their lines.

const OPTIONS = ["title", "runs", "by", "against", "points", "y", "scale", "smooth", "size", "steps"];

// `chart` is a panel with {runs, by, from, to}: what it does not have is left out.
export function chartSource(chart) {
  const { metrics, runs, low, high, from, to, log, kind, ...others } = chart;
  const options = {
    ...others,
    runs: runs?.length ? listText(runs) : "",
    points: kind === "runs" ? "runs" : "",
    y: rangeText(low, high),
    steps: rangeText(from, to),
    scale: log === undefined ? "" : log ? "log" : "linear",
  };
  const lines = OPTIONS.filter((name) => hasText(options[name])).map((name) => `${name}: ${oneLine(options[name])}`);
  return ["```chart", listText(metrics), ...lines, "```"].join("\n");
}

export function runsSource({ runs, by, columns }) {
  const lines = [
    runs.length ? listText(runs) : "",
    by ? `by: ${oneLine(by)}` : "",
    columns.length ? `columns: ${listText(columns)}` : "",
  ];
  return ["```runs", ...lines.filter(Boolean), "```"].join("\n");
}

export function joinSources(sources) {
  return `${sources.map((one) => one.trim()).join("\n\n")}\n`;
}

// Values with commas between them; one that has commas or quotation marks itself is put between marks.
export function listText(values) {
  return values
    .map(oneLine)
    .map((one) => (/[",]/.test(one) ? `"${one.replaceAll('"', '""')}"` : one))
    .join(", ");
}

function rangeText(low, high) {
  return hasText(low) || hasText(high) ? [low ?? "", "to", high ?? ""].join(" ").trim() : "";
}

function hasText(value) {
  return value !== undefined && value !== null && value !== "";
}

function oneLine(value) {
  return String(value).replace(/\s+/g, " ").trim();
}
