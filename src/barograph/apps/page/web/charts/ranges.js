// The ranges of axes.

// The range of x over all series; a single point gets half a unit on both sides, and points some space around them.
export function xRange(all, isSpaced = false) {
  const low = Math.min(...all.map((series) => series.x[0]));
  const high = Math.max(...all.map((series) => series.x_end[series.x_end.length - 1]));
  if (!Number.isFinite(low)) return [0, 1];
  if (low === high) return [low - 0.5, high + 0.5];
  const space = isSpaced ? (high - low) * 0.04 : 0;
  return [low - space, high + space];
}

// The range of y with some space around the curves, and the extremes to label on a small plot.
export function yRange(all, xs, { log = false, zero = false } = {}) {
  let [low, high] = extremes(all, xs, log);
  if (!(low <= high)) return { range: log ? [0.1, 1] : [0, 1], labels: [] };
  if (log) return logRange(low, high);
  if (zero && low > 0) low = 0;
  if (low === high) return { range: aroundConstant(low), labels: [low] };
  if (low > 0 && low < 0.35 * high) low = 0; // close enough to show the zero
  const space = (high - low) * 0.04;
  return { range: [low === 0 ? 0 : low - space, high + space], labels: [low, high] };
}

function logRange(low, high) {
  if (low === high) return { range: [low / 2, high * 2], labels: [] };
  return { range: [low / 1.05, high * 1.05], labels: [low, high] };
}

function aroundConstant(value) {
  return value === 0 ? [-1, 1] : [value - Math.abs(value) * 0.1, value + Math.abs(value) * 0.1];
}

// The smallest and largest value between two x; on a log scale of the positive values.
function extremes(all, xs, log) {
  let low = Infinity;
  let high = -Infinity;
  for (const series of all) {
    for (let i = 0; i < series.x.length; i++) {
      if (series.x_end[i] < xs[0] || series.x[i] > xs[1]) continue;
      if (series.min[i] < low && (!log || series.min[i] > 0)) low = series.min[i];
      if (series.max[i] > high && (!log || series.max[i] > 0)) high = series.max[i];
    }
  }
  return [low, high];
}
