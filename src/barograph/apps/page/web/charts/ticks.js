// Ticks of axes and their labels.
const MAX_DIGITS = 6;
const ONE = { size: 1, suffix: "" };
const UNITS = [
  { from: 1e12, size: 1e12, suffix: "T" },
  { from: 1e9, size: 1e9, suffix: "G" },
  { from: 1e6, size: 1e6, suffix: "M" },
  { from: 1e4, size: 1e3, suffix: "k" },
];

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

const ROUND = [1, 2, 5, 10];
const ROUND_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200];
const DAY = 86400; // seconds

// Round ticks of a linear axis, at most `most` and one more, and at least two.
export function linearTicks([low, high], most) {
  const ticks = multiples(low, high, roundStep((high - low) / most));
  return ticks.length > 1 || !(high > low) ? ticks : multiples(low, high, roundStep((high - low) / (2 * most)));
}

// Round ticks of an axis of seconds, from 0: 15 s and 30 min are round too.
export function secondTicks(duration, most) {
  const wanted = duration / most;
  const onClock = ROUND_SECONDS.find((one) => one >= wanted) ?? DAY * roundStep(Math.max(1, wanted / DAY));
  const step = wanted > 1 ? onClock : roundStep(wanted);
  return multiples(0, duration, step);
}

// The smallest 1, 2 or 5 of a power of ten that is not below a number.
export function roundStep(wanted) {
  if (!(wanted > 0)) return 1;
  const power = Math.floor(Math.log10(wanted));
  return ROUND.map((digit) => Number(`${digit}e${power}`)).find((step) => step >= wanted * 0.999);
}

function multiples(low, high, step) {
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) {
    ticks.push(Number((n * step).toPrecision(12)));
  }
  return ticks;
}

// Labels of ticks, all in one form: with the same unit letter or exponent, and as many digits as tell them apart.
export function tickLabels(ticks) {
  const known = ticks.filter((v) => v !== null);
  const largest = Math.max(...known.map(Math.abs));
  const unit = unitOf(largest);
  const digits = digitsFor(known.map((v) => v / unit.size));
  return ticks.map((v) => (v === null ? "" : labelOf(v, unit, digits)));
}

// Labels of a log axis: plain numbers, or powers where one would be long.
export function logLabels(ticks) {
  const isLong = ticks.some((v) => v !== null && (v < 1e-3 || v >= 1e5));
  return ticks.map((v) => (v === null ? "" : isLong ? shortPower(v) : String(Number(v.toPrecision(3)))));
}

function shortPower(value) {
  return value
    .toExponential()
    .replace(/^(\d\.\d)\d+/, "$1")
    .replace("+", "");
}

// What the labels are counted in: thousands and more by a letter, thousandths and less by an exponent.
function unitOf(largest) {
  if (largest >= 1e15) return power(largest);
  if (largest > 0 && largest < 1e-3) return power(largest);
  return UNITS.find(({ from }) => largest >= from) ?? ONE;
}

function power(largest) {
  const exponent = Math.floor(Math.log10(largest) + 1e-9);
  return { size: Number(`1e${exponent}`), suffix: `e${exponent}` };
}

function smallestGap(values) {
  return Math.min(...values.slice(1).map((v, i) => Math.abs(v - values[i]) || Infinity));
}

// The number of digits after the point that ticks need.
function digitsFor(values) {
  const gap = values.length > 1 ? smallestGap(values) : Math.abs(values[0] ?? 0);
  const most = Math.min(MAX_DIGITS, Math.max(2, Math.ceil(-Math.log10(gap)) + 1));
  for (let digits = 0; digits < most; digits++) {
    if (values.every((v) => Math.abs(v - Number(v.toFixed(digits))) < gap / 100)) return digits;
  }
  return most;
}

function labelOf(value, { size, suffix }, digits) {
  const scaled = (value / size).toFixed(digits);
  return Number(scaled) === 0 ? "0" : `${scaled}${suffix}`.replace(/^-/, "−");
}
