// A chart as a picture to take along: title, axes, lines and a legend with the names of the runs.
import { formatNumber } from "../text/format.js";
import { t } from "../text/language.js";
import { cssVariable, seriesColour, withLightColours } from "../ui/colours.js";
import { clamp } from "./curve_math.js";
import { drawLines, makeScale } from "./lines.js";
import { SvgContext } from "./svg_context.js";
import { linearTicks, logLabels, logTicks, secondTicks, tickLabels } from "./ticks.js";

const SCREEN = { width: 760, height: 430, size: "" };
// The column of a paper in points: 85 mm, with letters of 8 points.
const PAPER = { width: 241, height: 160, size: ' width="85mm" height="{h}mm"' };
const FONT = "system-ui, 'Helvetica Neue', Arial, 'Noto Sans', 'Noto Sans CJK SC', sans-serif";
const ROW = 17;

// The picture in the colours of the page.
export function chartSvg(plot, { title, unit }) {
  return drawPicture(plot, { title, unit, ...SCREEN, letters: 12 });
}

// The picture for a paper: as wide as a column, and light.
export function paperSvg(plot, { title, unit }) {
  return withLightColours(() => drawPicture(plot, { title, unit, ...PAPER, letters: 8 }));
}

// The picture with twice as many pixels as its size.
export async function chartPng(plot, chart) {
  const text = chartSvg(plot, chart);
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * image.naturalWidth;
  canvas.height = 2 * image.naturalHeight;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  return new Promise((resolve) => canvas.toBlob(resolve));
}

function drawPicture(plot, { title, unit, width, height, size, letters }) {
  const scaleOf = letters / 12;
  const row = ROW * scaleOf;
  const entries = legendEntries(plot.lines, width - 24 * scaleOf, letters);
  const legendHeight = (entries.at(-1)?.row + 1 || 0) * row;
  const box = {
    left: 58 * scaleOf,
    top: 34 * scaleOf,
    width: width - 74 * scaleOf,
    height: height - 78 * scaleOf,
  };
  const all = height + legendHeight + 10 * scaleOf;
  const ctx = new SvgContext();
  ctx.rect(0, 0, width, all, cssVariable("--card"));
  const heading = { size: 1.15 * letters, weight: 600, colour: cssVariable("--ink") };
  ctx.text(title, 12 * scaleOf, 20 * scaleOf, heading);
  if (unit) {
    const place = { size: letters, anchor: "end", colour: cssVariable("--quiet") };
    ctx.text(unit, width - 16 * scaleOf, 20 * scaleOf, place);
  }
  const scale = makeScale(plot.xs, plot.ys, plot.options.log, box);
  drawHealthyBand(ctx, plot.options.band, scale, box);
  drawAxes(ctx, plot, scale, box, letters);
  const options = { ...plot.lineOptions(), focused: null, ratio: scaleOf, floor: box.top + box.height };
  ctx.clipped("inside", { ...box, top: box.top - 4, height: box.height + 8, width: box.width + 6 }, () =>
    drawLines(ctx, plot.lines, scale, options),
  );
  drawLegend(ctx, entries, height + 10 * scaleOf, row, letters);
  const physical = size.replace("{h}", ((85 * all) / width).toFixed(1)) || ` width="${width}" height="${all}"`;
  const open = `<svg xmlns="http://www.w3.org/2000/svg"${physical} viewBox="0 0 ${width} ${all}" font-family="${FONT}">`;
  return `${open}${ctx.parts.join("")}</svg>`;
}

function drawHealthyBand(ctx, band, scale, { left, top, width, height }) {
  if (!band) return;
  const inside = (v, beyond) => (v === null ? beyond : clamp(scale.y(v), top, top + height));
  const [low, high] = [inside(band.low, top + height), inside(band.high, top)];
  if (low > high) ctx.rect(left, high, width, low - high, cssVariable("--band"));
}

function drawAxes(ctx, plot, scale, { left, top, width, height }, letters) {
  const { x, log } = plot.options;
  const style = { size: letters, colour: cssVariable("--quiet") };
  const ys = log ? logTicks(plot.ys) : linearTicks(plot.ys, 7);
  const labels = log ? logLabels(ys) : tickLabels(ys);
  ys.forEach((v, i) => {
    ctx.rect(left, scale.y(v), width, 0.5, cssVariable("--hair-strong"));
    ctx.text(labels[i], left - letters / 2, scale.y(v) + letters / 3, { ...style, anchor: "end" });
  });
  const room = Math.max(2, Math.floor(width / (letters * 5)));
  for (const v of xTicks(plot.xs, x, room)) {
    ctx.rect(scale.x(v), top, 0.5, height, cssVariable("--hair"));
    ctx.text(plot.formatX(v), scale.x(v), top + height + 1.4 * letters, { ...style, anchor: "middle" });
  }
  ctx.rect(left, top + height, width, 1, cssVariable("--quiet"));
  ctx.text(plot.options.xTitle ?? t(`x_${x}`), left + width / 2, top + height + 2.7 * letters, {
    ...style,
    anchor: "middle",
  });
}

function xTicks([low, high], x, most) {
  if (x === "relative" && low >= 0) return secondTicks(high, most).filter((v) => v >= low);
  if (x !== "step") return linearTicks([low, high], most);
  return [...new Set(linearTicks([low, high], most).map(Math.round))].filter((v) => v >= low && v <= high);
}

// The run of each line with its last value, and where it stands in the legend.
function legendEntries(lines, width, letters) {
  let row = 0;
  let left = 0;
  return lines.map((line) => {
    const value = line.main?.x?.length ? formatNumber(line.main.last.at(-1)) : "–";
    const text = `${line.label}  ${value}`;
    const wide = textWidth(text, letters) + 2.5 * letters;
    if (left && left + wide > width) {
      row++;
      left = 0;
    }
    const entry = { text, row, left, colour: seriesColour(line.colour) };
    left += wide;
    return entry;
  });
}

// About the width of a text; Chinese characters are as wide as high.
function textWidth(text, letters) {
  return [...text].reduce((sum, one) => sum + (one > "\u2e80" ? 1 : 0.58) * letters, 0);
}

function drawLegend(ctx, entries, top, row, letters) {
  for (const entry of entries) {
    const y = top + entry.row * row;
    ctx.rect(letters + entry.left, y - 0.75 * letters, 0.8 * letters, 0.8 * letters, entry.colour);
    ctx.text(entry.text, 2.2 * letters + entry.left, y, { size: letters, colour: cssVariable("--ink") });
  }
}
