// Texts for the values of lines.
import { formatNumber } from "../text/format.js";
import { t } from "../text/language.js";

// The text of each value: a bucket also shows its extremes and its number of non-finite values.
export function valueTexts(values) {
  return values.map(({ line, value, low, high, nonfinite }) => {
    const text = value === null ? "–" : formatNumber(value);
    const range = Number.isFinite(low) && low !== high ? ` (${formatNumber(low)}–${formatNumber(high)})` : "";
    const bad = nonfinite ? ` · ${t("nonfinite", { n: nonfinite })}` : "";
    return { line, text: `${text}${range}${bad}` };
  });
}

// The number of points of a line, and of the buckets that show them.
export function pointCountText({ main }) {
  if (!main?.x) return "";
  return main.exact
    ? t("points", { n: main.points ?? main.x.length })
    : t("buckets", { n: main.points, m: main.x.length });
}
