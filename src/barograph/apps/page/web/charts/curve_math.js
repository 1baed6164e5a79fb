// Arithmetic on the columns of a curve.

export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

// The index of the last of the sorted xs that is at most x, at least 0; -1 where there are none.
export function indexAt(xs, x) {
  if (!xs.length) return -1;
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

// The index of the bucket that contains x, else of the nearest one; -1 where x is beyond the ends of the curve, by more
// than half of its mean distance between buckets.
export function nearestIndex({ x: xs, x_end: ends }, x) {
  const i = indexAt(xs, x);
  if (i < 0) return -1;
  const last = xs.length - 1;
  const beyond = Math.max(xs[0] - x, x - ends[last]);
  if (beyond > 0 && last > 0 && beyond > (ends[last] - xs[0]) / last / 2) return -1;
  return i < last && x > ends[i] && xs[i + 1] - x < x - ends[i] ? i + 1 : i;
}

// The ranges [first, last] of indices at which both columns are finite.
export function finiteRanges(tops, bottoms, length) {
  const ranges = [];
  let first = -1;
  for (let i = 0; i <= length; i++) {
    const finite = i < length && Number.isFinite(tops[i]) && Number.isFinite(bottoms[i]);
    if (finite && first < 0) first = i;
    if (!finite && first >= 0) {
      ranges.push([first, i - 1]);
      first = -1;
    }
  }
  return ranges;
}

// Exponential smoothing, corrected for its start; it skips non-finite values.
export function smoothed(values, weight) {
  let sum = 0;
  let norm = 0;
  return Float64Array.from(values, (value) => {
    if (!Number.isFinite(value)) return NaN;
    sum = sum * weight + value * (1 - weight);
    norm = norm * weight + (1 - weight);
    return sum / norm;
  });
}
