// A chart: uPlot keeps axes, cursor and zoom; the curves are drawn here, from buckets with their true extremes.
import { css, hue, seconds, short, show } from "./dom.js";
import { t } from "./words.js";

const CLOCK = [0.01, 0.1, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 432000, 864000];
const alive = new Set();
// The size comes from the observer: asking an element for it would lay the page out once per chart.
const sizes = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.plot?.fit(entry.contentRect)));

// lines: [{run, label, colour, main, max, min, older}], each series with x, x_end, min, max, last, nonfinite.
export class Plot {
  constructor(host, options = {}) {
    Object.assign(this, {
      host,
      options: { x: "step", smooth: 0, log: false, ...options },
      lines: [],
      range: null,
      size: {},
    });
    host.plot = this;
    sizes.observe(host);
    alive.add(this);
  }

  set(lines, changes = {}) {
    const rebuilt = ["log", "x"].some((name) => name in changes && changes[name] !== this.options[name]);
    Object.assign(this.options, changes);
    this.lines = lines;
    if (rebuilt) this.drop();
    this.draw();
  }

  restyle() {
    this.drop();
    this.draw();
  }

  fit({ width, height }) {
    this.size = { width: Math.floor(width), height: Math.floor(height) };
    if (!this.chart) this.draw();
    else if (width && (this.size.width !== this.chart.width || this.size.height !== this.chart.height))
      this.chart.setSize(this.size);
  }

  draw() {
    const { width, height } = this.size;
    if (!width || !height) return;
    this.xs = this.spanOfX();
    this.ys = this.spanOfY();
    const data = [this.xs, [null, null]];
    if (this.chart) this.chart.setData(data);
    else this.chart = new globalThis.uPlot(this.setup(width, height), data, this.host);
  }

  drop() {
    this.chart?.destroy();
    this.chart = null;
  }

  destroy() {
    this.drop();
    sizes.unobserve(this.host);
    alive.delete(this);
    this.host.plot = null;
  }

  every() {
    return this.lines.flatMap((line) =>
      [...(line.older ?? []), line.main, line.max, line.min].filter((one) => one?.x?.length),
    );
  }

  spanOfX() {
    if (this.range) return this.range;
    const all = this.every();
    let low = Math.min(...all.map((one) => one.x[0]));
    let high = Math.max(...all.map((one) => one.x_end[one.x_end.length - 1]));
    if (!Number.isFinite(low)) [low, high] = [0, 1];
    return low === high ? [low - 0.5, high + 0.5] : [low, high];
  }

  spanOfY() {
    let low = Infinity;
    let high = -Infinity;
    for (const one of this.every()) {
      for (let i = 0; i < one.x.length; i++) {
        if (one.x_end[i] < this.xs[0] || one.x[i] > this.xs[1]) continue;
        if (one.min[i] < low && (!this.options.log || one.min[i] > 0)) low = one.min[i];
        if (one.max[i] > high && (!this.options.log || one.max[i] > 0)) high = one.max[i];
      }
    }
    this.ends = low < high ? [low, high] : [];
    if (!(low <= high)) return this.options.log ? [0.1, 1] : [0, 1];
    if (this.options.log) return low === high ? [low / 2, high * 2] : [low / 1.05, high * 1.05];
    if (this.options.zero && low > 0) low = 0;
    if (low === high) this.ends = [low];
    if (low === high) return low === 0 ? [-1, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
    if (low > 0 && low < 0.35 * high) low = 0;
    this.ends = [low, high];
    const room = (high - low) * 0.04;
    return [low === 0 ? 0 : low - room, high + room];
  }

  setup(width, height) {
    const { small, log } = this.options;
    const quiet = css("--quiet");
    const grid = { stroke: css("--hair"), width: 1, show: !small };
    const font = `${small ? 10 : 11}px ${css("--font")}`;
    const ends = (u, axis) => (axis === 0 ? this.xs : this.ends);
    const base = { stroke: quiet, font, grid, ticks: { show: false } };
    const xAxis = {
      ...base,
      size: small ? 18 : 24,
      gap: 4,
      values: (u, at) => at.map((v) => this.saidX(v)),
      space: 64,
    };
    const yAxis = { ...base, size: small ? 42 : 50, gap: 4, values: (u, at) => marks(at) };
    if (this.options.x === "relative") xAxis.incrs = CLOCK;
    if (small) Object.assign(xAxis, { splits: ends, align: null, values: () => ["", ""] });
    if (small) Object.assign(yAxis, { splits: ends });
    else if (log) Object.assign(yAxis, { splits: () => decades(this.ys), filter: (u, at) => at });
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
          key: `windsock-${this.options.x}`,
          scales: ["x", null],
          filters: { pub: (type) => type.startsWith("mousem") || type === "mouseleave" },
        },
      },
      scales: {
        x: { time: this.options.x === "time", range: () => this.xs },
        y: { range: () => this.ys, distr: log ? 3 : 1 },
      },
      series: [{}, { paths: () => null, points: { show: false } }],
      axes: [xAxis, yAxis],
      hooks: {
        drawClear: [(u) => this.drawBand(u)],
        draw: [(u) => this.drawLines(u)],
        setCursor: [(u) => this.point(u)],
        setSelect: [(u) => this.chosen(u)],
      },
    };
  }

  saidX(value) {
    if (this.options.x === "relative") return seconds(value);
    if (this.options.x === "time")
      return new Date(value * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return Number.isInteger(value) ? (Math.abs(value) >= 1e6 ? show(value) : String(value)) : "";
  }

  chosen(u) {
    if (u.select.width < 4) return;
    const range = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.options.onzoom?.(range);
  }

  point(u) {
    const away = u.cursor.left === undefined || u.cursor.left < 0;
    this.options.onpoint?.(away ? null : this.valuesAt(u.posToVal(u.cursor.left, "x")));
  }

  // The bucket that holds x, else the nearest one before it.
  valuesAt(x) {
    const values = this.lines.map((line) => {
      const place = line.main?.x ? at(line.main.x, x) : -1;
      if (place < 0) return { line, value: null };
      const main = line.main;
      return {
        line,
        place,
        x: main.x_end[place],
        value: main.last[place],
        low: main.min[place],
        high: main.max[place],
        bad: main.nonfinite[place],
      };
    });
    return { x, values };
  }

  drawBand(u) {
    const band = this.options.band;
    if (!band) return;
    const { left, top, width, height } = u.bbox;
    const low = band.low === null ? top + height : clamp(u.valToPos(band.low, "y", true), top, top + height);
    const high = band.high === null ? top : clamp(u.valToPos(band.high, "y", true), top, top + height);
    if (!(low > high)) return;
    u.ctx.save(); // uPlot remembers what it set last
    u.ctx.fillStyle = css("--band");
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
    ctx.lineJoin = "round";
    const place = this.places(u);
    for (const line of this.lines) this.drawLine(ctx, line, place);
    for (const line of this.lines) this.drawMarks(ctx, line, place, top + height);
    ctx.restore();
  }

  places(u) {
    const { left, top, width, height } = u.bbox;
    const [x0, x1] = this.xs;
    const { log } = this.options;
    const scaled = log ? (v) => (v > 0 ? Math.log10(v) : NaN) : (v) => v;
    const y0 = scaled(this.ys[0]);
    const y1 = scaled(this.ys[1]);
    return {
      x: (v) => left + ((v - x0) / (x1 - x0)) * width,
      y: (v) => top + height - ((scaled(v) - y0) / (y1 - y0)) * height,
    };
  }

  drawLine(ctx, line, place) {
    const colour = hue(line.colour);
    const thin = devicePixelRatio;
    if (line.max?.x?.length && line.min?.x?.length) area(ctx, line.min, line.max, place, colour, 0.13);
    for (const older of line.older ?? [])
      if (older.x?.length) path(ctx, older.x_end, older.last, place, colour, 0.3, thin);
    if (!line.main?.x?.length) return;
    const smooth = Number(this.options.smooth);
    if (!line.main.exact) {
      area(ctx, line.main, line.main, place, colour, smooth ? 0.14 : 0.3);
      if (!smooth) edges(ctx, line.main, place, colour, thin);
    }
    path(
      ctx,
      line.main.x_end,
      line.main.last,
      place,
      colour,
      smooth ? 0.28 : line.faint ? 0.4 : 1,
      (smooth ? 1 : 1.6) * thin,
    );
    if (smooth) path(ctx, line.main.x_end, smoothed(line.main.last, smooth), place, colour, 1, 1.8 * thin);
    if (!this.range) dot(ctx, line.main, place, colour, smooth ? smoothed(line.main.last, smooth) : line.main.last);
  }

  // NaN and infinities are marks on the axis: they have no height, and they are never left out.
  drawMarks(ctx, line, place, floor) {
    const one = line.main;
    if (!one?.x?.length) return;
    ctx.strokeStyle = css("--bad");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    const r = 3 * devicePixelRatio;
    for (let i = 0; i < one.x.length; i++) {
      if (!one.nonfinite[i]) continue;
      const x = place.x((one.x[i] + one.x_end[i]) / 2);
      const y = floor - r - 1;
      ctx.beginPath();
      ctx.moveTo(x - r, y - r);
      ctx.lineTo(x + r, y + r);
      ctx.moveTo(x + r, y - r);
      ctx.lineTo(x - r, y + r);
      ctx.stroke();
    }
  }

  async picture(title) {
    const from = this.chart.ctx.canvas;
    const head = 26 * devicePixelRatio;
    const canvas = document.createElement("canvas");
    canvas.width = from.width;
    canvas.height = from.height + head;
    const ctx = canvas.getContext("2d");
    ctx.fillStyle = css("--card");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.fillStyle = css("--ink");
    ctx.font = `600 ${13 * devicePixelRatio}px ${css("--font")}`;
    ctx.fillText(title, 8 * devicePixelRatio, 17 * devicePixelRatio);
    ctx.drawImage(from, 0, head);
    return new Promise((done) => canvas.toBlob(done));
  }

  table() {
    const rows = ["run,name,x,x_end,min,max,last,count,nonfinite"];
    for (const line of this.lines) {
      for (const one of [line.main, line.max, line.min]) {
        for (let i = 0; i < (one?.x?.length ?? 0); i++) {
          const cells = [
            line.label,
            one.name,
            one.x[i],
            one.x_end[i],
            one.min[i],
            one.max[i],
            one.last[i],
            one.count[i],
            one.nonfinite[i],
          ];
          rows.push(cells.map(cell).join(","));
        }
      }
    }
    return new Blob([`${rows.join("\n")}\n`], { type: "text/csv" });
  }
}

export function restyleAll() {
  for (const plot of alive) plot.restyle();
}

export function underPointer() {
  return [...alive].find((plot) => plot.host.matches(":hover") || plot.host.closest(".card")?.matches(":hover"));
}

// 1, 2 and 5 of each power of ten while they are few, then the powers alone, then every so many.
function decades([low, high]) {
  const from = Math.floor(Math.log10(low));
  const to = Math.ceil(Math.log10(high));
  const each = Math.max(1, Math.ceil((to - from) / 6));
  const found = [];
  for (let power = from; power <= to; power += each) {
    for (const times of to - from <= 2 ? [1, 2, 5] : [1]) found.push(Number(`${times}e${power}`));
  }
  const inside = found.filter((value) => value >= low && value <= high);
  return inside.length > 1 ? inside : [low, high];
}

function cell(value) {
  const text = String(value ?? "");
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// What stands beside an axis: as few digits as tell the marks apart.
function marks(at) {
  const known = at.filter((v) => v !== null);
  const same = new Set(known.map((v) => short(tidy(v)))).size < new Set(known).size;
  const digits = Math.min(5, Math.ceil(-Math.log10(known[1] - known[0])));
  return at.map((v) => (v === null ? "" : same && digits > 0 ? v.toFixed(digits) : short(tidy(v))));
}

function tidy(value) {
  return Math.abs(value) < 1e-12 ? 0 : Number(value.toPrecision(4));
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

function at(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  if (high < 0 || x < xs[0]) return high < 0 ? -1 : 0;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

function path(ctx, xs, ys, place, colour, alpha, width) {
  ctx.globalAlpha = alpha;
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.beginPath();
  let down = false;
  for (let i = 0; i < xs.length; i++) {
    const y = place.y(ys[i]);
    if (!Number.isFinite(y)) {
      down = false;
      continue;
    }
    const x = place.x(xs[i]);
    if (down) ctx.lineTo(x, y);
    else {
      ctx.moveTo(x, y);
      const alone = i + 1 >= xs.length || !Number.isFinite(ys[i + 1]);
      if (alone) ctx.lineTo(x + width, y);
    }
    down = true;
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
}

function area(ctx, low, high, place, colour, alpha) {
  ctx.globalAlpha = alpha;
  ctx.fillStyle = colour;
  const parts = runsOf(high.max, low.min, Math.min(low.x.length, high.x.length));
  for (const [from, to] of parts) {
    ctx.beginPath();
    for (let i = from; i <= to; i++) {
      ctx.lineTo(place.x(high.x[i]), place.y(high.max[i]));
      ctx.lineTo(place.x(high.x_end[i]), place.y(high.max[i]));
    }
    for (let i = to; i >= from; i--) {
      ctx.lineTo(place.x(low.x_end[i]), floorOf(place, low.min[i]));
      ctx.lineTo(place.x(low.x[i]), floorOf(place, low.min[i]));
    }
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}

function floorOf(place, value) {
  const y = place.y(value);
  return Number.isFinite(y) ? y : 1e5;
}

function runsOf(tops, bottoms, length) {
  const parts = [];
  let from = -1;
  for (let i = 0; i <= length; i++) {
    const whole = i < length && Number.isFinite(tops[i]) && Number.isFinite(bottoms[i]);
    if (whole && from < 0) from = i;
    if (!whole && from >= 0) {
      parts.push([from, i - 1]);
      from = -1;
    }
  }
  return parts;
}

// A single high point among thousands must be seen: each bucket is also a thin upright stroke.
function edges(ctx, one, place, colour, width) {
  ctx.globalAlpha = 0.75;
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.beginPath();
  for (let i = 0; i < one.x.length; i++) {
    const top = place.y(one.max[i]);
    const bottom = floorOf(place, one.min[i]);
    if (!Number.isFinite(top) || bottom - top < 3) continue;
    const x = place.x((one.x[i] + one.x_end[i]) / 2);
    ctx.moveTo(x, top);
    ctx.lineTo(x, bottom);
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
}

function dot(ctx, one, place, colour, values) {
  let i = one.x.length - 1;
  while (i >= 0 && !Number.isFinite(values[i])) i--;
  if (i < 0) return;
  ctx.fillStyle = colour;
  ctx.beginPath();
  ctx.arc(place.x(one.x_end[i]), place.y(values[i]), 2.6 * devicePixelRatio, 0, 7);
  ctx.fill();
}

// Exponential, corrected for its start, passing over what is not finite.
function smoothed(values, weight) {
  let sum = 0;
  let norm = 0;
  return Float64Array.from(values, (value) => {
    if (!Number.isFinite(value)) return NaN;
    sum = sum * weight + value * (1 - weight);
    norm = norm * weight + (1 - weight);
    return sum / norm;
  });
}

export function pointsFor(width) {
  return Math.max(220, Math.min(1600, Math.round(width * 1.25)));
}

export function drawnText(line) {
  const one = line.main;
  if (!one?.x) return "";
  return one.exact ? t("points", { n: one.points ?? one.x.length }) : t("buckets", { n: one.points, m: one.x.length });
}
