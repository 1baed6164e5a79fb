// The lines of a chart, on a canvas or in a picture.
import { cssVariable, PALETTE_SIZE, seriesColour } from "../ui/colours.js";
import { smoothed } from "./curve_math.js";
import { drawExtremes, drawLastPoint, drawNonFinite, drawPath, fillBand } from "./drawing.js";

const DASHES = [[], [5, 3], [1.5, 2.5]];
const MANY_LINES = 8; // more are thin: they hide each other less, and a browser draws a line of one pixel ten times as fast

// From values to places in a box.
export function makeScale([x0, x1], ys, log, { left, top, width, height }) {
  const scaled = log ? (v) => (v > 0 ? Math.log10(v) : NaN) : (v) => v;
  const [y0, y1] = ys.map(scaled);
  return {
    x: (v) => left + ((v - x0) / (x1 - x0)) * width,
    y: (v) => top + height - ((scaled(v) - y0) / (y1 - y0)) * height,
  };
}

/**
 * @typedef {object} LineOptions
 * @property {number} smooth weight of exponential smoothing
 * @property {string | null} focused the id of the line that is drawn before the others
 * @property {boolean} endDot a dot at the last value
 * @property {number} ratio pixels of the canvas in one of the page
 * @property {number} floor the place of the x axis
 */

// What tells the lines of a chart apart.
export function lineId({ id, run }) {
  return id ?? run;
}

// Draw lines from bottom to top: {run, colour, main, max, min, older}; with `dots` as points.
/**
 * @param {any} ctx
 * @param {any[]} lines
 * @param {{x: (v: number) => number, y: (v: number) => number}} scale
 * @param {LineOptions} options
 */
export function drawLines(ctx, lines, scale, options) {
  ctx.lineJoin = "round";
  for (const line of lines) {
    const isThin = lines.length > MANY_LINES && options.focused !== lineId(line);
    drawLine(ctx, line, scale, { ...options, isThin, banded: hasBands(line, lines, options.focused) });
  }
  for (const { main } of lines.filter((line) => line.main?.x?.length)) {
    drawNonFinite(ctx, main, scale, options.floor, { colour: cssVariable("--bad"), ratio: options.ratio });
  }
}

// Bands of several lines over each other are of a colour that means nothing: only the line at the pointer has its own.
// The intervals of groups are what is to be compared, and are always drawn.
export function hasBands(line, lines, focused) {
  return lines.length < 2 || focused === lineId(line) || Boolean(line.isGroup);
}

// Behind a line are its band from minimum to maximum and its superseded attempts.
function drawLine(ctx, line, scale, options) {
  const { ratio, banded } = options;
  const colour = seriesColour(line.colour);
  if (banded && line.max?.x?.length && line.min?.x?.length) {
    fillBand(ctx, line.min, line.max, scale, { colour, alpha: 0.13 });
  }
  const dash = DASHES[((line.dash ?? 0) + (line.colour < PALETTE_SIZE ? 0 : 1)) % DASHES.length];
  ctx.setLineDash(dash.map((length) => length * ratio));
  for (const { x_end, last } of (line.older ?? []).filter((series) => series.x?.length)) {
    drawPath(ctx, x_end, last, scale, { colour, alpha: 0.3, width: ratio });
  }
  if (line.main?.x?.length) (line.dots ? drawDots : drawMain)(ctx, line, scale, { ...options, colour });
  ctx.setLineDash([]);
}

function drawDots(ctx, line, scale, { focused, ratio, colour }) {
  const { main } = line;
  const isBehind = focused && focused !== lineId(line);
  ctx.fillStyle = colour;
  ctx.globalAlpha = isBehind ? 0.2 : main.x.length > 1 ? 0.55 : 1;
  for (let i = 0; i < main.x.length; i++) {
    ctx.beginPath();
    ctx.arc(scale.x(main.x[i]), scale.y(main.last[i]), (main.x.length > 1 ? 2.2 : 4.5) * ratio, 0, 7);
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}

function drawMain(ctx, line, scale, { smooth, focused, endDot, ratio, banded, isThin, colour }) {
  const { main, faint } = line;
  if (!main.exact) {
    if (banded) fillBand(ctx, main, main, scale, { colour, alpha: smooth ? 0.14 : 0.3 });
    if (!smooth) drawExtremes(ctx, main, scale, { colour, width: ratio });
  }
  const isBehind = faint || (focused && focused !== lineId(line));
  const alpha = smooth ? 0.28 : isBehind ? 0.4 : 1;
  drawPath(ctx, main.x_end, main.last, scale, { colour, alpha, width: (smooth || isThin ? 1 : 1.6) * ratio });
  const values = smooth ? smoothed(main.last, smooth) : main.last;
  const width = (isThin ? 1 : 1.8) * ratio;
  if (smooth) drawPath(ctx, main.x_end, values, scale, { colour, alpha: isBehind ? 0.4 : 1, width });
  if (endDot) drawLastPoint(ctx, main.x_end, values, scale, { colour, ratio });
}
