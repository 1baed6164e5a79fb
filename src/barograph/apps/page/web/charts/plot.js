// A plot: uPlot does axes, cursor and zoom; the curves are drawn here, from buckets with their true extremes.
import { formatNumber, formatSeconds } from "../text/format.js";
import { cssVariable } from "../ui/colours.js";
import { clamp, nearestIndex } from "./curve_math.js";
import { drawLines, hasBands, lineId, makeScale } from "./lines.js";
import { drawMarkLines, drawStretch, markHeads, marksWithin, nearGroups } from "./marks.js";
import { xRange, yRange } from "./ranges.js";
import { openStepMenu } from "./step_menu.js";
import { logLabels, logTicks, tickLabels } from "./ticks.js";
import { lineInWords } from "./values.js";

const DURATIONS = [
  ...[4, 3, 2, 1, 0].flatMap((places) => [1, 2, 5].map((digit) => digit / 10 ** places)),
  ...[10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200],
  ...[1, 2, 5, 10, 20, 50].map((days) => days * 86400),
];
const LABEL_GAP = 9; // pixels beside the labels of the y axis
const NEAR_LINE = 24; // pixels
const DESCRIBE_MS = 1000; // between descriptions of a chart that changes: they take as long as half of its lines
const plots = new Set();
const plotOf = new WeakMap();

// The observer reports sizes; reading them from elements would force a layout per chart.
const resizes = new ResizeObserver((entries) => {
  for (const entry of entries) plotOf.get(entry.target)?.resize(entry.contentRect);
});

/**
 * @typedef {object} PlotOptions
 * @property {string} [title] what the plot shows
 * @property {string} [x] the x axis
 * @property {number | string} [smooth] weight of exponential smoothing
 * @property {boolean} [log] a logarithmic y axis
 * @property {boolean} [small] only the extremes are labelled
 * @property {boolean} [zero] the y axis starts at 0
 * @property {number} [low] the lower end of the y axis
 * @property {number} [high] the upper end of the y axis
 * @property {string} [xTitle] what the x axis shows, where it is a metric
 * @property {{low: number | null, high: number | null}} [band] the healthy range
 * @property {() => {from: object, to: object, severity: string, is_open: boolean}} [stretch] the mark of a finding
 * @property {(range: number[] | null) => void} [onzoom]
 * @property {(cursor: {x: number, values: object[]} | null) => void} [oncursor]
 */

// Lines are {run, label, colour, main, max, min, older}; their series have x, x_end, min, max, last and nonfinite.
export class Plot {
  /**
   * @param {HTMLElement} host
   * @param {PlotOptions} options
   */
  constructor(host, options = {}) {
    this.host = host;
    /** @type {PlotOptions} */
    this.options = { x: "step", smooth: 0, log: false, ...options };
    this.card = null;
    this.lines = [];
    this.described = -1; // lines in the description
    this.describing = null; // the timer of the next one
    this.focused = null; // the id of the line at the pointer
    this.range = null; // the zoomed part of the x axis
    this.size = {};
    plotOf.set(host, this);
    resizes.observe(host);
    plots.add(this);
  }

  setLines(lines, changes = {}) {
    const rebuild = ["log", "x"].some((name) => name in changes && changes[name] !== this.options[name]);
    Object.assign(this.options, changes);
    this.lines = lines;
    if (rebuild) this.drop();
    this.draw();
  }

  restyle() {
    this.drop();
    this.draw();
  }

  resize({ width, height }) {
    this.size = { width: Math.floor(width), height: Math.floor(height) };
    if (!this.chart) return this.draw();
    const changed = this.size.width !== this.chart.width || this.size.height !== this.chart.height;
    if (width && changed) this.chart.setSize(this.size);
  }

  draw() {
    const { width, height } = this.size;
    if (!width || !height) return;
    const all = this.allSeries();
    this.xs = this.range ?? xRange(all, this.options.x === "value");
    const { range, labels } = yRange(this.drawnSeries(), this.xs, this.options);
    this.ys = [this.options.low ?? range[0], this.options.high ?? range[1]];
    if (!(this.ys[0] < this.ys[1])) this.ys = range;
    this.labels = labels;
    const data = [this.xs, [null, null]]; // uPlot only needs the ends of the axes
    if (this.chart) this.chart.setData(data);
    else this.chart = new globalThis.uPlot(this.uplotOptions(width, height), data, this.host);
    if (this.described !== this.lines.length) this.describe();
    else this.describing ??= setTimeout(() => this.describe(), DESCRIBE_MS);
  }

  // The picture in words, for those who do not see it.
  describe() {
    this.describing = null;
    if (!this.chart) return;
    this.described = this.lines.length;
    const { canvas } = this.chart.ctx;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${this.options.title ?? ""}: ${this.lines.map(lineInWords).join("; ")}`);
  }

  drop() {
    this.chart?.destroy();
    this.chart = null;
    this.described = -1;
  }

  destroy() {
    this.drop();
    resizes.unobserve(this.host);
    plots.delete(this);
    plotOf.delete(this.host);
  }

  allSeries() {
    const all = this.lines.flatMap((line) => [...(line.older ?? []), line.main, line.max, line.min]);
    return all.filter((series) => series?.x?.length);
  }

  // The series that are drawn without the pointer. A band that shows at the pointer only would flatten all lines.
  drawnSeries() {
    const banded = (line) => (hasBands(line, this.lines, null) ? [line.max, line.min] : []);
    const all = this.lines.flatMap((line) => [...(line.older ?? []), line.main, ...banded(line)]);
    return all.filter((series) => series?.x?.length);
  }

  uplotOptions(width, height) {
    const { small, log, x } = this.options;
    return {
      width,
      height,
      legend: { show: false },
      padding: [8, small ? 8 : 12, 0, 0],
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => this.options.onzoom?.(null) },
        sync: {
          key: x === "value" ? null : `barograph-${x}`, // charts against another metric have an axis of their own
          scales: ["x", null],
          filters: { pub: (type) => type.startsWith("mousem") || type === "mouseleave" },
        },
      },
      scales: {
        x: { time: x === "time", range: () => this.xs },
        y: { range: () => this.ys, distr: log ? 3 : 1 },
      },
      series: [{}, { paths: () => null, points: { show: false } }],
      axes: this.axes(),
      hooks: {
        ready: [(u) => u.over.addEventListener("click", (event) => this.offerStep(event))],
        drawClear: [(u) => this.drawBehind(u)],
        draw: [(u) => this.drawLines(u), (u) => this.drawMarks(u)],
        setCursor: [(u) => this.reportCursor(u)],
        setSelect: [(u) => this.reportSelection(u)],
      },
    };
  }

  axes() {
    const { small, log, x } = this.options;
    const base = {
      stroke: cssVariable("--quiet"),
      font: `${small ? 10 : 11}px ${cssVariable("--font")}`,
      grid: { stroke: cssVariable("--hair"), width: 1, show: !small },
      ticks: { show: false },
      gap: 4,
    };
    const xAxis = {
      ...base,
      size: small ? 18 : 24,
      values: (_, ticks) => (x === "value" ? tickLabels(ticks) : ticks.map((v) => this.formatX(v))),
      space: 64,
      ...(x === "relative" ? { incrs: DURATIONS } : {}),
    };
    const least = small ? 42 : 50;
    const size = (u, labels) => Math.max(least, labelWidth(u, base.font, labels ?? []) + LABEL_GAP);
    const yAxis = { ...base, size, values: (_, ticks) => tickLabels(ticks) };
    if (small) {
      const ends = { splits: () => this.xs, align: null, values: () => ["", ""] };
      return [
        { ...xAxis, ...ends },
        { ...yAxis, splits: () => this.labels },
      ];
    }
    if (!log) return [xAxis, yAxis];
    const powers = { splits: () => logTicks(this.ys), filter: (_, ticks) => ticks };
    return [xAxis, { ...yAxis, ...powers, values: (_, ticks) => logLabels(ticks) }];
  }

  formatX(value) {
    if (this.options.x === "value") return formatNumber(value);
    if (this.options.x === "relative") return formatSeconds(value);
    if (this.options.x === "time")
      return new Date(value * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return Number.isInteger(value) ? (Math.abs(value) >= 1e6 ? formatNumber(value) : String(value)) : "";
  }

  reportSelection(u) {
    if (u.select.width < 4) return; // a click
    const range = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.options.onzoom?.(range);
  }

  reportCursor(u) {
    const outside = u.cursor.left === undefined || u.cursor.left < 0;
    this.focusLine(outside || !u.over.matches(":hover") ? null : this.lineAt(u));
    this.options.oncursor?.(outside ? null : this.valuesAt(u.posToVal(u.cursor.left, "x")));
  }

  // The line nearest to the pointer, of several.
  lineAt(u) {
    if (this.lines.length < 2) return null;
    const { values } = this.valuesAt(u.posToVal(u.cursor.left, "x"));
    let nearest = { line: null, distance: NEAR_LINE };
    for (const { line, value } of values.filter((one) => Number.isFinite(one.value))) {
      const distance = Math.abs(u.valToPos(value, "y") - u.cursor.top);
      if (distance < nearest.distance) nearest = { line, distance };
    }
    return nearest.line;
  }

  // Draw one of several lines with its bands, and the others fainter.
  focusLine(line) {
    const id = line ? lineId(line) : null;
    if (this.focused === id) return;
    this.focused = id;
    this.chart?.redraw(false);
  }

  // The step of the values that are shown for the cursor; null without a cursor, and on another axis.
  stepAtCursor() {
    const { left } = this.chart?.cursor ?? {};
    if (this.options.x !== "step" || !(left >= 0)) return null;
    const { x, values } = this.valuesAt(this.chart.posToVal(left, "x"));
    return values.find((one) => one.x !== undefined)?.x ?? Math.round(x);
  }

  // Open the menu of the step that is clicked, which is no end of a zoom: uPlot stops those clicks.
  offerStep(event) {
    const step = this.stepAtCursor();
    if (step === null || event.target !== this.chart.over) return;
    openStepMenu(step, event.clientX, this.host.getBoundingClientRect().bottom);
  }

  // The values of the buckets that contain x, else of the nearest ones; none beyond the ends of a line.
  valuesAt(x) {
    const values = this.lines.map((line) => {
      const i = line.main?.x ? nearestIndex(line.main, x) : -1;
      if (i < 0) return { line, value: null };
      const { x_end, last, min, max, nonfinite } = line.main;
      return {
        line,
        step: line.main.steps?.[i],
        x: x_end[i],
        value: last[i],
        low: min[i],
        high: max[i],
        nonfinite: nonfinite[i],
      };
    });
    return { x, values };
  }

  drawBehind(u) {
    this.drawBand(u);
    const mark = this.options.stretch?.();
    if (mark) drawStretch(u.ctx, mark, this.options.x, this.scale(u), u.bbox);
  }

  // Where findings begin: lines on the canvas, and their heads above it.
  drawMarks(u) {
    const marks = marksWithin(this.options.x, this.xs);
    drawMarkLines(u.ctx, marks, this.scale(u), u.bbox);
    const groups = nearGroups(marks, ({ x }) => Math.round(u.valToPos(x, "x")));
    const now = JSON.stringify(groups);
    if (now === u.over.dataset.marks) return; // a head that has the focus stays
    u.over.dataset.marks = now;
    for (const head of u.over.querySelectorAll(".mark-head")) head.remove();
    u.over.append(...markHeads(groups));
  }

  // The healthy band of the metric, behind the curves.
  drawBand(u) {
    const band = this.options.band;
    if (!band) return;
    const { left, top, width, height } = u.bbox;
    const low = band.low === null ? top + height : clamp(u.valToPos(band.low, "y", true), top, top + height);
    const high = band.high === null ? top : clamp(u.valToPos(band.high, "y", true), top, top + height);
    if (!(low > high)) return;
    u.ctx.save(); // uPlot caches the context's styles, so they must be restored
    u.ctx.fillStyle = cssVariable("--band");
    u.ctx.fillRect(left, high, width, low - high);
    u.ctx.restore();
  }

  drawLines(u) {
    const { ctx } = u;
    const { left, top, width, height } = u.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top - 4, width + 6 * devicePixelRatio, height + 8);
    ctx.clip();
    drawLines(ctx, this.lines, this.scale(u), { ...this.lineOptions(), ratio: devicePixelRatio, floor: top + height });
    ctx.restore();
  }

  // How lines are drawn, here and in a picture to download.
  lineOptions() {
    return { smooth: Number(this.options.smooth), focused: this.focused, endDot: !this.range };
  }

  // From values to pixels of the canvas.
  scale(u) {
    return makeScale(this.xs, this.ys, this.options.log, u.bbox);
  }
}

// The width of the widest label: neighbouring values of a curve that hardly changes have many digits.
function labelWidth({ ctx }, font, labels) {
  ctx.save(); // uPlot caches the context's styles
  ctx.font = font;
  const widest = Math.max(0, ...labels.map((label) => ctx.measureText(label ?? "").width));
  ctx.restore();
  return Math.ceil(widest);
}

// Draw the marks of all plots again.
export function redrawMarks() {
  for (const plot of plots) plot.chart?.redraw(false);
}

// Draw all plots again, in the colours of a new theme.
export function restyleAll() {
  for (const plot of plots) plot.restyle();
}

export function plotUnderPointer() {
  return [...plots].find((plot) => plot.host.matches(":hover") || plot.host.closest(".card")?.matches(":hover"));
}
