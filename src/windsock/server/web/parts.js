// Pieces that several views are made of: empty states, tables, cards with a chart in them.
import { el, hue, number, show, svg } from "./dom.js";
import { get, set } from "./state.js";
import { t } from "./words.js";

export function empty(why, what) {
  return el("div", { class: "empty" }, el("p", { text: why }), what ? el("p", { class: "quiet", text: what }) : null);
}

export function table(heads, rows, name = "") {
  const head = el(
    "tr",
    {},
    heads.map((one) => el("th", { text: one, scope: "col" })),
  );
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      row.map((one) => (one instanceof Node ? el("td", {}, one) : el("td", { text: one ?? "–" }))),
    ),
  );
  return el("div", { class: "scroll" }, el("table", { class: name }, el("thead", {}, head), el("tbody", {}, body)));
}

export function panel(title, aside, ...content) {
  const head = el(
    "header",
    {},
    el("h2", { text: title }),
    aside instanceof Node ? aside : el("span", { class: "quiet", text: aside ?? "" }),
  );
  return el("section", { class: "panel card" }, head, content);
}

export function swatch(colour, label) {
  return el("span", { class: "swatch" }, el("i", { style: { background: colour } }), label);
}

export function dotOf(word) {
  return el("i", { class: `dot ${word}`, "aria-hidden": "true" });
}

// The reward of a run in a few pixels, from true extremes.
export function spark(reward, colour) {
  const width = 66;
  const height = 22;
  const picture = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const low = (reward?.spark.min ?? []).map(number);
  const high = (reward?.spark.max ?? []).map(number);
  const finite = [...low, ...high].filter(Number.isFinite);
  if (!finite.length) return picture;
  const bottom = Math.min(...finite);
  const span = Math.max(...finite) - bottom || 1;
  const x = (i) => (low.length === 1 ? width / 2 : 2 + (i / (low.length - 1)) * (width - 4));
  const y = (v) => height - 3 - ((v - bottom) / span) * (height - 6);
  let text = "";
  low.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    text += `${text ? "L" : "M"}${x(i).toFixed(1)} ${y(high[i]).toFixed(1)}L${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  picture.append(svg("path", { d: text, style: { stroke: hue(colour) } }));
  return picture;
}

export function statusText(run) {
  const known = run.last_step !== null && run.last_step !== undefined;
  return [t(run.status), known ? el("span", { class: "chip-step", text: ` · ${t("step")} ${run.last_step}` }) : null];
}

export function select(label, choices, chosen, onchange) {
  const box = el(
    "select",
    { "aria-label": label, onchange: () => onchange(box.value) },
    choices.map(([value, text]) => el("option", { value, text, selected: value === chosen })),
  );
  return el("label", { class: "field" }, el("span", { text: label }), box);
}

// A field whose text is the filter in the address.
export function filterBox(label) {
  const box = el("input", { type: "search", placeholder: label, "aria-label": label, value: get("filter") });
  box.addEventListener("input", () => set({ filter: box.value }, true));
  return box;
}

// The filter as a regular expression: what tells whether a text fits. One that is not finished hides nothing.
export function expression(box) {
  let wanted = null;
  try {
    wanted = new RegExp(get("filter"), "i");
  } catch {
    // told beside the field
  }
  box.classList.toggle("invalid", !wanted);
  box.title = wanted ? "" : t("bad_regex");
  return (text) => !wanted || wanted.test(text);
}

export function stepBox([first, last], step) {
  const box = el("input", {
    type: "number",
    min: first,
    max: last,
    value: step,
    "aria-label": t("step"),
    onchange: () => set({ step: box.value }),
  });
  return box;
}

// Somebody who writes a step is not to lose the field to what is new.
export function typing() {
  return document.activeElement?.type === "number";
}

// Stacked bars over steps on a canvas: parts is [{name, colour, values}], in the order from below.
export class Stack {
  constructor(host, onpick) {
    this.host = host;
    this.canvas = el("canvas", { class: "stack" });
    this.tell = el("div", { class: "stack-tell quiet" });
    host.append(this.canvas, this.tell);
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(host);
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => (this.tell.textContent = this.rest));
    this.canvas.addEventListener("click", (event) => onpick?.(this.steps[this.placeOf(event)]));
  }

  set(steps, ends, parts, whole, unit, colours) {
    Object.assign(this, { steps, ends, parts, whole, unit, colours });
    this.rest = steps.length ? `${t("step")} ${steps[0]} – ${ends[ends.length - 1]}` : "";
    this.tell.textContent = this.rest;
    this.draw();
  }

  placeOf(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT);
    return Math.max(0, Math.min(this.steps.length - 1, Math.floor(share * this.steps.length)));
  }

  hover(event) {
    const i = this.placeOf(event);
    const same = this.steps[i] === this.ends[i];
    const each = this.parts.filter((part) => part.values[i]).map((part) => `${part.name} ${this.unit(part.values[i])}`);
    this.tell.textContent = `${t("step")} ${this.steps[i]}${same ? "" : `–${this.ends[i]}`}: ${each.join(" · ")}`;
  }

  draw() {
    const { clientWidth: width, clientHeight: tall } = this.host;
    const height = tall - 22;
    if (!this.steps || width < 10 || height < 10) return;
    const ratio = devicePixelRatio;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const ctx = this.canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    const sums = this.steps.map((_, i) => this.parts.reduce((sum, part) => sum + (part.values[i] ?? 0), 0));
    const top = Math.max(...sums, ...this.whole.map((one) => one ?? 0)) || 1;
    const wide = (width - LEFT) / this.steps.length;
    this.steps.forEach((_, i) => {
      let at = height - 2;
      for (const part of this.parts) {
        const size = ((part.values[i] ?? 0) / top) * (height - 10);
        ctx.fillStyle = part.fill;
        ctx.fillRect(LEFT + i * wide, at - size, Math.max(1, wide - (wide > 4 ? 1 : 0)), size);
        at -= size;
      }
    });
    ctx.fillStyle = this.colours.quiet;
    ctx.font = `11px ${this.colours.font}`;
    ctx.fillText(this.unit(top), 0, 14);
    ctx.fillText("0", 0, height - 3);
  }

  destroy() {
    this.sizes.disconnect();
  }
}

const LEFT = 56;

export function valueText(values) {
  return values.map(({ line, value, low, high, bad }) => {
    const wide = Number.isFinite(low) && low !== high ? ` (${show(low)}–${show(high)})` : "";
    return {
      line,
      text: `${value === null ? "–" : show(value)}${wide}${bad ? ` · ${t("nonfinite", { n: bad })}` : ""}`,
    };
  });
}
