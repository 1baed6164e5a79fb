// The columns of the table of runs: titles, texts of their values, and their order.
import { formatBytes, formatConfigValue, formatNumber, formatSeconds } from "../text/format.js";
import { dateText, localized, t } from "../text/language.js";

export const STATISTIC = /^(last|best|max|min|mean(\d+)|at(-?\d+)):(.+)$/s;
const MIN_WIDTH = 96;
const WITHOUT_DIFFERENCE = ["duration", "began", "heard", "bytes", "attempts"];
const MAX_WIDTH = 220;
const MAX_GROUP_NAME = 480;
const BESIDE_GROUP_NAME = 150; // the box, the arrow and the number of seeds
const WIDTHS = {
  name: innerWidth < 700 ? 190 : 300,
  health: 250,
  status: 96,
  tag: 130,
  note: 200,
  began: 150,
  heard: 150,
  finding: 160,
};
const COLLATOR = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

export function columnTitle(key, choices) {
  const name = choices.headlines.find((one) => one.key === key);
  if (name) return `${localized(name.title)} · ${t("stat_last")}`;
  const found = STATISTIC.exec(key);
  if (!found) return choices.facts.includes(key) ? t(`col_${key}`) : key.replace(/^config:/, "");
  const [, what, count, step, metric] = found;
  const headline = choices.headlines.find((one) => one.key === metric);
  const how = count ? t("mean_of_last", { n: count }) : step ? t("at_step", { n: step }) : t(`stat_${what}`);
  return `${headline ? localized(headline.title) : metric} · ${how}`;
}

// The width of a column: as it was dragged, else wide enough for its title.
export function columnWidth(key, title, widths, least = MIN_WIDTH) {
  return widths[key] ?? WIDTHS[key] ?? Math.min(MAX_WIDTH, Math.max(least, 34 + 7.6 * letters(title)));
}

// The width of the first column where it has names of groups, which differ in the middle of their settings.
export function groupNameWidth(labels, widths) {
  const longest = labels.reduce((most, label) => Math.max(most, letters(label)), 0);
  const room = innerWidth < 700 ? 0.62 * innerWidth : innerWidth / 3; // on a phone the next column still begins
  const needed = Math.min(MAX_GROUP_NAME, room, BESIDE_GROUP_NAME + 7.6 * longest);
  return widths.name ?? Math.max(WIDTHS.name, needed);
}

// The length of a text in Latin letters; a Chinese character is nearly as wide as two.
function letters(text) {
  return [...text].reduce((sum, one) => sum + (one > "\u2e80" ? 1.85 : 1), 0);
}

// The text of a value in a cell.
export function valueText(key, value) {
  if (value === null || value === undefined) return "–";
  if (key === "duration") return formatSeconds(value);
  if (key === "bytes") return formatBytes(value);
  if (key === "began" || key === "heard") return dateText(value);
  if (key === "status") return t(value);
  if (key === "health") return t(`health_${value}`);
  if (Array.isArray(value)) return value.map((one) => `#${one}`).join(" ");
  if (typeof value === "number")
    return STATISTIC.test(key) || key === "steps" ? formatNumber(value) : shortNumber(value);
  return formatConfigValue(value);
}

function shortNumber(value) {
  const text = formatConfigValue(value);
  return text.length > 9 ? formatNumber(value) : text;
}

// The order of two values: numbers, then texts, then NaN, and absent ones last whatever the direction.
export function compareValues(a, b, sign) {
  const [first, second] = [rankOf(a), rankOf(b)];
  if (first !== second) return first - second;
  if (first === 0) return sign * (a - b);
  return first === 1 ? sign * COLLATOR.compare(String(a), String(b)) : 0;
}

function rankOf(value) {
  if (value === null || value === undefined || value === "" || value?.length === 0) return 3;
  if (value === "NaN") return 2;
  return typeof value === "number" ? 0 : 1;
}

// Whether a difference of the column says something: all runs begin at other times and take longer or shorter.
export function isComparable(key) {
  return !WITHOUT_DIFFERENCE.includes(key);
}

// A difference from the value of the baseline run; empty for what is no number.
export function differenceText(key, value, base) {
  if (!isComparable(key)) return "";
  if (typeof value !== "number" || typeof base !== "number" || value === base) return "";
  const difference = value - base;
  return `${difference > 0 ? "+" : ""}${formatNumber(difference)}`;
}

// The mean of a group with half the width of its interval.
export function meanText(key, [mean, low, high]) {
  if (key === "duration" || key === "bytes") return valueText(key, mean);
  if (low === null || low === high) return formatNumber(mean);
  return `${formatNumber(mean)} ± ${Number(((high - low) / 2).toPrecision(2))}`;
}

// The rows as CSV, as numbers and texts are stored.
export function tableCsv(heads, rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : Array.isArray(value) ? value.join(" ") : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${[heads, ...rows].map((row) => row.map(cell).join(",")).join("\n")}\n`;
}
