// Drawing of curves on a canvas. `scale` maps values to pixels: {x(value), y(value)}.
import { finiteRanges } from "./curve_math.js";

const FAR_BELOW = 1e5; // pixels; the plot's clip cuts it off

export function drawPath(ctx, xs, ys, scale, { colour, alpha = 1, width }) {
  ctx.globalAlpha = alpha;
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.beginPath();
  let down = false;
  for (let i = 0; i < xs.length; i++) {
    const y = scale.y(ys[i]);
    if (!Number.isFinite(y)) {
      down = false;
      continue;
    }
    const x = scale.x(xs[i]);
    if (down) ctx.lineTo(x, y);
    else {
      ctx.moveTo(x, y);
      const isolated = i + 1 >= xs.length || !Number.isFinite(ys[i + 1]);
      if (isolated) ctx.lineTo(x + width, y); // a path of one point draws nothing
    }
    down = true;
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
}

// Fill from the minima of one series to the maxima of another.
export function fillBand(ctx, low, high, scale, { colour, alpha }) {
  ctx.globalAlpha = alpha;
  ctx.fillStyle = colour;
  for (const [first, last] of finiteRanges(high.max, low.min, Math.min(low.x.length, high.x.length))) {
    ctx.beginPath();
    for (let i = first; i <= last; i++) {
      ctx.lineTo(scale.x(high.x[i]), scale.y(high.max[i]));
      ctx.lineTo(scale.x(high.x_end[i]), scale.y(high.max[i]));
    }
    for (let i = last; i >= first; i--) {
      ctx.lineTo(scale.x(low.x_end[i]), bottomY(scale, low.min[i]));
      ctx.lineTo(scale.x(low.x[i]), bottomY(scale, low.min[i]));
    }
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}

// On a log scale a value of 0 or below is below the plot.
function bottomY(scale, value) {
  const y = scale.y(value);
  return Number.isFinite(y) ? y : FAR_BELOW;
}

// A vertical stroke per bucket from its minimum to its maximum, so that one high point among thousands is visible.
export function drawExtremes(ctx, series, scale, { colour, width }) {
  ctx.globalAlpha = 0.75;
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.beginPath();
  for (let i = 0; i < series.x.length; i++) {
    const top = scale.y(series.max[i]);
    const bottom = bottomY(scale, series.min[i]);
    if (!Number.isFinite(top) || bottom - top < 3) continue;
    const x = scale.x((series.x[i] + series.x_end[i]) / 2);
    ctx.moveTo(x, top);
    ctx.lineTo(x, bottom);
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
}

// A dot at the last finite value.
export function drawLastPoint(ctx, xs, values, scale, { colour, ratio }) {
  let i = xs.length - 1;
  while (i >= 0 && !Number.isFinite(values[i])) i--;
  if (i < 0) return;
  ctx.fillStyle = colour;
  ctx.beginPath();
  ctx.arc(scale.x(xs[i]), scale.y(values[i]), 2.6 * ratio, 0, 7);
  ctx.fill();
}

// A cross on the x axis for each bucket with NaN or an infinity: they have no height, and must not be overlooked.
export function drawNonFinite(ctx, series, scale, floor, { colour, ratio }) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * ratio;
  const r = 3 * ratio;
  for (let i = 0; i < series.x.length; i++) {
    if (!series.nonfinite[i]) continue;
    const x = scale.x((series.x[i] + series.x_end[i]) / 2);
    const y = floor - r - 1;
    ctx.beginPath();
    ctx.moveTo(x - r, y - r);
    ctx.lineTo(x + r, y + r);
    ctx.moveTo(x + r, y - r);
    ctx.lineTo(x - r, y + r);
    ctx.stroke();
  }
}
