// Stacked bars over steps, on a canvas.
import { t } from "../text/language.js";
import { cssVariable } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { clamp } from "./curve_math.js";
import { linearTicks, roundStep, secondTicks } from "./ticks.js";

const LEFT = 56;
const BOTTOM = 20;
const TOP = 8;
const MAX_NAMED = 9; // values in the caption
const LABEL_SPACE = 60; // between the labels of steps

export class StackedBars {
  // `onpick` is called with the step of a clicked bar; null: bars cannot be clicked.
  constructor(host, onpick = null) {
    this.host = host;
    this.steps = null;
    this.chosen = null; // a step whose bar is marked
    this.ends = this.layers = this.totals = [];
    this.isSeconds = true;
    this.format = String;
    this.canvas = el("canvas", {
      class: `stack${onpick ? " pickable" : ""}`,
      role: "img",
      "aria-label": t("where_step"),
    });
    this.caption = el("div", { class: "stack-caption quiet" });
    host.append(this.canvas, this.caption);
    this.resizes = new ResizeObserver(() => this.draw());
    this.resizes.observe(host);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.showDefault());
    if (onpick) this.canvas.addEventListener("click", (event) => onpick(this.steps[this.indexAt(event)]));
  }

  // `layers` are [{name, fill, values}] from bottom to top, `totals` the heights that must fit besides their sums,
  // `format` the text of a value.
  setData({ steps, ends, layers, totals, isSeconds, format }) {
    Object.assign(this, { steps, ends, layers, totals, isSeconds, format });
    this.draw();
  }

  // Mark the bar of a step.
  choose(step) {
    this.chosen = step;
    this.draw();
  }

  indexAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT);
    return clamp(Math.floor(share * this.steps.length), 0, this.steps.length - 1);
  }

  chosenIndex() {
    if (this.chosen === null) return -1;
    return this.steps.findIndex((first, i) => first <= this.chosen && this.chosen <= this.ends[i]);
  }

  hover(event) {
    this.caption.textContent = this.textOf(this.indexAt(event));
  }

  // Without the pointer, the caption is about the chosen bar, or the last one.
  showDefault() {
    const chosen = this.chosenIndex();
    this.caption.textContent = this.textOf(chosen < 0 ? this.steps.length - 1 : chosen);
  }

  // The values of a bar, the largest first; small ones that have no room are summed.
  textOf(i) {
    const same = this.steps[i] === this.ends[i];
    const shown = this.layers.filter((layer) => layer.values[i]).sort((a, b) => b.values[i] - a.values[i]);
    const rest = shown.length > MAX_NAMED ? shown.splice(MAX_NAMED - 1) : [];
    const values = shown.map((layer) => `${layer.name} ${this.format(layer.values[i])}`);
    const sum = rest.reduce((total, layer) => total + layer.values[i], 0);
    if (rest.length) values.push(t("n_others", { n: rest.length, v: this.format(sum) }));
    return `${t("at_step", { n: same ? this.steps[i] : `${this.steps[i]}–${this.ends[i]}` })}: ${values.join(" · ")}`;
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!this.steps?.length || width < 10 || height < 40) return;
    this.showDefault();
    const last = this.steps.length - 1;
    this.canvas.setAttribute("aria-label", `${t("where_step")}. ${this.textOf(0)}; ${this.textOf(last)}`);
    this.canvas.width = width * devicePixelRatio;
    this.canvas.height = height * devicePixelRatio;
    const ctx = this.canvas.getContext("2d");
    ctx.scale(devicePixelRatio, devicePixelRatio);
    const sums = this.steps.map((_, i) => this.layers.reduce((sum, layer) => sum + (layer.values[i] ?? 0), 0));
    const top = Math.max(...sums, ...this.totals.map((one) => one ?? 0)) || 1;
    const layout = {
      width,
      height,
      barWidth: (width - LEFT) / this.steps.length,
      y: (v) => height - BOTTOM - (v / top) * (height - BOTTOM - TOP),
    };
    this.drawAxes(ctx, layout, top);
    for (let i = 0; i <= last; i++) this.drawBar(ctx, layout, i);
    if (this.chosenIndex() >= 0) this.drawMark(ctx, layout, this.chosenIndex(), sums);
  }

  drawAxes(ctx, { width, height, barWidth, y }, top) {
    ctx.font = `11px ${cssVariable("--font")}`;
    ctx.textAlign = "right";
    for (const tick of this.isSeconds ? secondTicks(top, 4) : linearTicks([0, top], 4)) {
      ctx.fillStyle = cssVariable("--hair");
      ctx.fillRect(LEFT, y(tick), width - LEFT, 1);
      ctx.fillStyle = cssVariable("--quiet");
      ctx.fillText(this.format(tick), LEFT - 6, Math.max(10, y(tick) + 4));
    }
    const every = roundStep(Math.ceil(LABEL_SPACE / barWidth));
    ctx.textAlign = "center";
    for (let i = 0; i < this.steps.length; i += every) {
      ctx.fillText(String(this.steps[i]), clamp(LEFT + (i + 0.5) * barWidth, LEFT + 8, width - 14), height - 5);
    }
  }

  drawBar(ctx, { barWidth, y }, i) {
    let sum = 0;
    for (const { fill, values } of this.layers) {
      const below = y(sum);
      sum += values[i] ?? 0;
      ctx.fillStyle = fill;
      ctx.fillRect(LEFT + i * barWidth, y(sum), Math.max(1, barWidth - (barWidth > 4 ? 1 : 0)), below - y(sum));
    }
  }

  // A frame around the chosen bar, and a triangle below it.
  drawMark(ctx, { height, barWidth, y }, i, sums) {
    const x = LEFT + i * barWidth;
    const wide = Math.max(2, barWidth - (barWidth > 4 ? 1 : 0));
    ctx.strokeStyle = ctx.fillStyle = cssVariable("--ink");
    ctx.lineWidth = 1.5;
    ctx.strokeRect(x - 0.5, y(sums[i]) - 1, wide + 1, y(0) - y(sums[i]) + 1);
    ctx.beginPath();
    ctx.moveTo(x + wide / 2, height - BOTTOM + 1);
    ctx.lineTo(x + wide / 2 - 4, height - BOTTOM + 7);
    ctx.lineTo(x + wide / 2 + 4, height - BOTTOM + 7);
    ctx.fill();
  }

  destroy() {
    this.resizes.disconnect();
  }
}
