// The text of a sample's tokens, tinted by one of their values, with an overview to drag above it.
import { formatNumber, formatPercent } from "../text/format.js";
import { t } from "../text/language.js";
import { cssVariable } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { html, nothing, render } from "../ui/html.js";
import { visibleText } from "./texts.js";
import { isNonfinite, isSpecial, overview, scaleOf, strength, tokenRows } from "./token_math.js";

const ROW = 22; // pixels
const BORDER = 0.3; // pixels of a token's border for each of its characters
const MAX_HEIGHT = 420;
const MAP_HEIGHT = 30;
const MARK_WIDTH = 3; // pixels
const BESIDE = 6; // rows that are drawn beyond each edge

// Only the rows in view exist.
export class TokenText {
  constructor(data, name, width) {
    this.data = data;
    this.values = name ? data.values[name] : null;
    this.scale = this.values ? scaleOf(this.values, data.mask, name) : null;
    this.rows = tokenRows(data.tokens, Math.max(20, Math.floor((width - 24) / characterWidth())));
    this.rowOf = firstRows(this.rows, data.tokens.length);
    this.marked = -1;
    this.inner = el("div", { class: "token-rows", style: { height: `${this.rows.length * ROW}px` } });
    this.scroller = el(
      "div",
      { class: "token-text", tabindex: 0, style: { height: `${Math.min(MAX_HEIGHT, this.rows.length * ROW + 12)}px` } },
      this.inner,
    );
    this.tip = el("div", { class: "token-tip", hidden: true });
    this.map = el("canvas", { class: "token-map", width: Math.max(1, Math.floor(width)), height: MAP_HEIGHT });
    this.scroller.addEventListener("scroll", () => this.draw());
    this.scroller.addEventListener("pointermove", (event) => this.explain(event));
    this.scroller.addEventListener("pointerleave", () => this.tip.toggleAttribute("hidden", true));
    this.map.addEventListener("pointerdown", (event) => this.drag(event));
    this.map.addEventListener("pointermove", (event) => event.buttons && this.drag(event));
    this.node = el("div", { class: "token-column" }, name ? this.map : null, this.scroller, this.tip);
    this.picture = this.values ? overviewPicture(overview(this.values, data.mask, this.scale, this.map.width)) : null;
    this.drawn = new Map(); // the rows that exist, by number
    this.draw();
  }

  // Scroll together with other texts.
  follow(texts) {
    const others = texts.filter((text) => text !== this);
    this.scroller.addEventListener("scroll", () => {
      for (const text of others) text.scroller.scrollTop = this.scroller.scrollTop;
    });
  }

  draw() {
    const top = this.scroller.scrollTop;
    const height = this.scroller.clientHeight || MAX_HEIGHT;
    const first = Math.max(0, Math.floor(top / ROW) - BESIDE);
    const last = Math.min(this.rows.length, Math.ceil((top + height) / ROW) + BESIDE);
    for (const [i, node] of this.drawn) {
      if (i >= first && i < last) continue;
      node.remove();
      this.drawn.delete(i);
    }
    for (let i = first; i < last; i++) if (!this.drawn.has(i)) this.addRow(i);
    if (this.picture) this.drawMap(top, height);
  }

  addRow(i) {
    const pieces = this.rows[i].map(([place, text]) => this.piece(place, text));
    const node = el("div", { class: "token-row", style: { top: `${i * ROW}px` } }, pieces);
    this.inner.append(node);
    this.drawn.set(i, node);
  }

  piece(place, text) {
    const masked = this.data.mask && !this.data.mask[place];
    const nonfinite = this.values && isNonfinite(this.values, this.data.mask, place);
    const classes = [
      masked && "masked",
      nonfinite && "nonfinite",
      place === this.marked && "marked",
      isSpecial(this.data.tokens[place]) && "special",
    ];
    const style =
      this.values && !masked && !nonfinite ? { background: tint(strength(this.values[place], this.scale)) } : {};
    return el("span", { class: classes.filter(Boolean).join(" ") || null, "data-place": place, text, style });
  }

  drawMap(top, height) {
    const { width } = this.map;
    const ink = this.map.getContext("2d");
    ink.clearRect(0, 0, width, MAP_HEIGHT);
    ink.drawImage(this.picture, 0, 0);
    const total = this.rows.length * ROW;
    ink.strokeStyle = cssVariable("--ink");
    ink.strokeRect(
      (top / total) * width + 0.5,
      0.5,
      Math.max(4, Math.min(1, height / total) * width - 1),
      MAP_HEIGHT - 1,
    );
  }

  drag(event) {
    const box = this.map.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    this.scroller.scrollTop = share * this.rows.length * ROW - this.scroller.clientHeight / 2;
  }

  // Scroll to a token and mark it.
  reveal(place) {
    this.marked = place;
    this.scroller.scrollTop = this.rowOf[place] * ROW - this.scroller.clientHeight / 2;
    this.inner.replaceChildren();
    this.drawn.clear();
    this.draw();
  }

  // Show all values of the token under the pointer.
  explain(event) {
    const found = event.target.dataset?.place;
    this.tip.toggleAttribute("hidden", found === undefined);
    if (found === undefined) return;
    const place = Number(found);
    const line = ([name, values]) =>
      html`<div><span class="quiet">${name}</span><span>${formatNumber(values[place])}</span></div>`;
    render(
      html`<code>${JSON.stringify(this.data.tokens[place])}</code><span class="quiet"> ${place}</span>
        ${Object.entries(this.data.values).map(line)}${this.alternatives(place)}`,
      this.tip,
    );
    const box = this.node.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX - box.left + 12, box.width - 180)}px`;
    this.tip.style.top = `${event.clientY - box.top + 16}px`;
  }

  // The most likely tokens at a place with their probabilities; the one that was taken is marked.
  alternatives(place) {
    const row = ([text, logProb]) => {
      const shown = visibleText(text);
      const name = shown === this.data.tokens[place] ? "taken" : nothing;
      const percent = formatPercent(Math.exp(logProb));
      return html`<div class=${name}><code>${JSON.stringify(shown)}</code><span>${percent}</span></div>`;
    };
    const rows = this.data.alternatives(place).map(row);
    return rows.length ? html`<div class="alternatives"><span>${t("alternatives")}</span>${rows}</div>` : nothing;
  }
}

// A bar for each pixel of the overview, on a canvas of its own: it is copied whenever the text is scrolled. A stretch
// with a value that is not finite is at least MARK_WIDTH wide.
function overviewPicture(bars) {
  const canvas = el("canvas", { width: bars.length, height: MAP_HEIGHT });
  const ink = canvas.getContext("2d");
  const colours = [cssVariable("--s1"), cssVariable("--s0")];
  bars.forEach((bar, x) => {
    ink.globalAlpha = Math.abs(bar);
    ink.fillStyle = colours[Number(bar > 0)];
    ink.fillRect(x, 0, 1, MAP_HEIGHT);
  });
  ink.globalAlpha = 1;
  ink.fillStyle = cssVariable("--bad");
  bars.forEach((bar, x) => {
    if (Number.isNaN(bar)) ink.fillRect(x - 1, 0, MARK_WIDTH, MAP_HEIGHT);
  });
  return canvas;
}

// The width of a character of the text's font; each token has a border of a pixel, too.
function characterWidth() {
  const ink = el("canvas").getContext("2d");
  ink.font = `${cssVariable("--text-row")} ${cssVariable("--mono")}`;
  return ink.measureText("0".repeat(100)).width / 100 + BORDER;
}

function firstRows(rows, count) {
  const found = new Uint32Array(count);
  for (let i = rows.length - 1; i >= 0; i--) for (const [place] of rows[i]) found[place] = i;
  return found;
}

// The colour of a value, of which `strength` says how far it is from the neutral one.
export function tint(value) {
  const share = Math.round(Math.abs(value) * 75);
  return share < 4 ? "" : `color-mix(in srgb, var(${value > 0 ? "--s0" : "--s1"}) ${share}%, transparent)`;
}
