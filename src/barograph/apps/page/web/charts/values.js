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

// A line in words: its run, first and last value, and its extremes.
export function lineInWords({ label, main }) {
  if (!main?.x?.length) return `${label}: –`;
  let lowest = Infinity;
  let highest = -Infinity;
  for (let i = 0; i < main.x.length; i++) {
    if (main.min[i] < lowest) lowest = main.min[i]; // never where it is NaN
    if (main.max[i] > highest) highest = main.max[i];
  }
  const [first, last] = [main.last[0], main.last[main.last.length - 1]].map(formatNumber);
  const range = lowest <= highest ? t("from_low_to_high", { a: formatNumber(lowest), b: formatNumber(highest) }) : "";
  return `${label}: ${first} → ${last}${range && `, ${range}`}`;
}

// The number of points of a line, and of the buckets that show them.
export function pointCountText({ main }) {
  if (!main?.x) return "";
  return main.exact
    ? t("points", { n: main.points ?? main.x.length })
    : t("buckets", { n: main.points, m: main.x.length });
}
