// Stacked bars over steps, on a canvas.
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";

const LABEL_WIDTH = 56;
const CAPTION_HEIGHT = 22;

export class StackedBars {
  constructor(host, onpick) {
    this.host = host;
    this.steps = null;
    this.ends = this.layers = this.totals = [];
    this.format = String;
    this.colours = {};
    this.defaultCaption = "";
    this.canvas = el("canvas", { class: "stack" });
    this.caption = el("div", { class: "stack-caption quiet" });
    host.append(this.canvas, this.caption);
    this.resizes = new ResizeObserver(() => this.draw());
    this.resizes.observe(host);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.caption.replaceChildren(this.defaultCaption));
    this.canvas.addEventListener("click", (event) => onpick?.(this.steps[this.indexAt(event)]));
  }

  // `layers` are [{name, fill, values}] from bottom to top, `totals` the heights that must fit besides their sums,
  // `format` the text of a value.
  setData({ steps, ends, layers, totals, format, colours }) {
    Object.assign(this, { steps, ends, layers, totals, format, colours });
    this.defaultCaption = steps.length ? `${t("step")} ${steps[0]} – ${ends[ends.length - 1]}` : "";
    this.caption.textContent = this.defaultCaption;
    this.draw();
  }

  indexAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - LABEL_WIDTH) / (box.width - LABEL_WIDTH);
    return Math.max(0, Math.min(this.steps.length - 1, Math.floor(share * this.steps.length)));
  }

  hover(event) {
    const i = this.indexAt(event);
    const same = this.steps[i] === this.ends[i];
    const values = this.layers
      .filter((layer) => layer.values[i])
      .map((layer) => `${layer.name} ${this.format(layer.values[i])}`);
    this.caption.textContent = `${t("step")} ${this.steps[i]}${same ? "" : `–${this.ends[i]}`}: ${values.join(" · ")}`;
  }

  draw() {
    const { clientWidth: width, clientHeight: hostHeight } = this.host;
    const height = hostHeight - CAPTION_HEIGHT;
    if (!this.steps || width < 10 || height < 10) return;
    const ratio = devicePixelRatio;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const ctx = this.canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    const sums = this.steps.map((_, i) => this.layers.reduce((sum, layer) => sum + (layer.values[i] ?? 0), 0));
    const top = Math.max(...sums, ...this.totals.map((one) => one ?? 0)) || 1;
    const wide = (width - LABEL_WIDTH) / this.steps.length;
    this.steps.forEach((_, i) => {
      let bottom = height - 2;
      for (const layer of this.layers) {
        const size = ((layer.values[i] ?? 0) / top) * (height - 10);
        ctx.fillStyle = layer.fill;
        ctx.fillRect(LABEL_WIDTH + i * wide, bottom - size, Math.max(1, wide - (wide > 4 ? 1 : 0)), size);
        bottom -= size;
      }
    });
    ctx.fillStyle = this.colours.quiet;
    ctx.font = `11px ${this.colours.font}`;
    ctx.fillText(this.format(top), 0, 14);
    ctx.fillText("0", 0, height - 3);
  }

  destroy() {
    this.resizes.disconnect();
  }
}
