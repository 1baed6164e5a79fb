// Ticks of axes and their labels.
import { formatShort } from "../text/format.js";

const MAX_DIGITS = 5;

// Ticks of a log axis: 1, 2 and 5 of each power of ten, only the powers on a longer axis, then every n-th power.
export function logTicks(range) {
  const [low, high] = range;
  const from = Math.floor(Math.log10(low));
  const to = Math.ceil(Math.log10(high));
  const stride = Math.max(1, Math.ceil((to - from) / 6));
  const ticks = [];
  for (let power = from; power <= to; power += stride) {
    for (const digit of to - from <= 2 ? [1, 2, 5] : [1]) ticks.push(Number(`${digit}e${power}`));
  }
  const inside = ticks.filter((value) => value >= low && value <= high);
  return inside.length > 1 ? inside : [low, high];
}

// Labels of ticks: short ones, with more digits where neighbours would look the same.
export function tickLabels(ticks) {
  const known = ticks.filter((v) => v !== null);
  const label = (v) => formatShort(withoutNoise(v));
  const ambiguous = new Set(known.map(label)).size < new Set(known).size;
  const digits = Math.min(MAX_DIGITS, Math.ceil(-Math.log10(known[1] - known[0])));
  return ticks.map((v) => (v === null ? "" : ambiguous && digits > 0 ? v.toFixed(digits) : label(v)));
}

// A tick without the rounding error of its sum of increments: 0.30000000000000004 is 0.3.
function withoutNoise(value) {
  return Math.abs(value) < 1e-12 ? 0 : Number(value.toPrecision(4));
}
