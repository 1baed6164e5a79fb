// Panels of one's own: several metrics in one chart, or one metric against another.
import { getState, setState } from "../data/url_state.js";
import { t } from "../text/language.js";

export const KINDS = ["lines", "steps", "runs"]; // over the x axis; against another metric, by step or by run
export const SIZES = ["normal", "wide", "full"];

/**
 * @typedef {object} Panel
 * @property {string} [title]
 * @property {string} [kind] one of KINDS
 * @property {string[]} metrics keys or names of charts, or ids of metrics
 * @property {string} [against] the metric on the x axis
 * @property {string} [size] one of SIZES
 * @property {number} [low] the lower end of the y axis
 * @property {number} [high] the upper end of the y axis
 * @property {boolean} [log]
 * @property {number} [smooth]
 */

// The panels in the URL; what is not a panel is left out.
/** @returns {Panel[]} */
export function readPanels(text = getState("panels")) {
  try {
    const found = JSON.parse(text || "[]");
    return found.filter((one) => Array.isArray(one?.metrics) && one.metrics.every((name) => typeof name === "string"));
  } catch {
    return [];
  }
}

// Replace the panel of a number, add one after the last, or with null remove it.
export function changePanel(number, panel) {
  const panels = readPanels();
  panels.splice(number, 1, ...(panel ? [panel] : []));
  setState({ panels: panels.length ? JSON.stringify(panels) : "", chart: "" });
}

// The panel as a chart of a card. `find` returns the chart of a metric, as drawn, or undefined.
export function panelChart(panel, number, find) {
  const charts = panel.metrics.map(find).filter(Boolean);
  const against = panel.kind && panel.kind !== "lines" ? find(panel.against ?? "") : null;
  const isSingle = new Set(charts.flatMap((chart) => chart.lines.map((line) => line.run))).size < 2;
  const titles = charts.map((chart) => chart.title);
  return {
    key: `panel-${number}`,
    number,
    panel,
    title: panel.title || [titles.join(", ") || panel.metrics.join(", "), against?.title].filter(Boolean).join(" / "),
    unit: [...new Set(charts.map((chart) => chart.unit).filter((unit) => unit && unit !== "min–max"))].join(", "),
    xTitle: against?.title,
    names: charts.flatMap((chart) => chart.names),
    band: charts.length === 1 && !against ? charts[0].band : null,
    note: charts.length ? null : t("panel_empty"),
    lines: charts.flatMap((chart, i) => panelLines(chart, { against, isSingle, several: charts.length > 1, i })),
    settings: { log: panel.log, smooth: panel.smooth, low: panel.low, high: panel.high },
  };
}

// Lines of several metrics: of one run each has a colour, of several runs each has its dashes.
function panelLines(chart, { against, isSingle, several, i }) {
  return chart.lines.map((line) => ({
    ...line,
    max: several || against ? null : line.max,
    min: several || against ? null : line.min,
    of: several ? chart.title : "",
    colour: several && isSingle ? i : line.colour,
    dash: several && !isSingle ? i : 0,
    against: against?.lines.find((other) => other.run === line.run)?.mean,
  }));
}
