// The tokens of a sample, tinted by one of their values: an overview to drag, the text, and the most extreme ones.
import { getState, setState } from "../data/url_state.js";
import { formatNumber, formatPercent } from "../text/format.js";
import { t } from "../text/language.js";
import { cssVariable } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { panel, selectField, table } from "../ui/widgets.js";
import { visibleText } from "./texts.js";
import {
  allValues,
  alternativesOf,
  decodeArray,
  extremes,
  isNonfinite,
  isSpecial,
  nonfiniteCounts,
  overview,
  scaleOf,
  shownValue,
  strength,
  tokenRows,
} from "./token_math.js";

const ROW = 22; // pixels
const FONT_SIZE = 13; // pixels, as in the style sheet
const BORDER = 0.3; // pixels of a token's border for each of its characters
const MAX_HEIGHT = 420;
const MAP_HEIGHT = 30;
const MARK_WIDTH = 3; // pixels
const BESIDE = 6; // rows that are drawn beyond each edge
const SHOWN_PLACES = 5; // of a token in the table of sums
// What values mean: those that follow from others, and those that are known by their names.
const MEANINGS = {
  push: () => t("token_push"),
  gradient: () => t("token_gradient"),
  mismatch: () => t("token_mismatch"),
  kl: () => t("token_kl"),
  surprise: () => t("token_surprise"),
  ratio: () => t("token_ratio"),
  clipped: () => t("token_clipped"),
};
let areSumsOpen = false; // also after a link of theirs has led to another sample

// The panel of a sample's tokens; `fetchSums` gets the sums of a value over the step, and is null in a report.
export function tokenPanel(sample, fetchSums) {
  const given = Object.fromEntries(
    Object.entries(sample.token_values).map(([name, text]) => [name, decodeArray(text)]),
  );
  const data = {
    tokens: sample.tokens.map(visibleText),
    values: allValues(given),
    mask: given.mask,
    alternatives: alternativesOf(sample.top_logprobs),
    fetchSums,
  };
  const body = el("div");
  const node = panel(t("tokens_title"), t("tokens_count", { n: sample.tokens.length.toLocaleString() }), body);
  node.classList.add("token-panel");
  let texts = [];
  const reveal = () => {
    if (getState("tok")) revealAll(texts, Math.min(data.tokens.length - 1, Number(getState("tok")) || 0));
  };
  const draw = () => {
    texts = [];
    body.replaceChildren(...contents(data, body, texts));
    reveal();
  };
  return { node, draw, reveal };
}

// The nodes of the panel; its texts are added to `texts`.
function contents(data, body, texts) {
  const names = Object.keys(data.values);
  if (!names.length) return [new TokenText(data, null, body.clientWidth).node];
  const first = names.includes(getState("tv")) ? getState("tv") : shownValue(data.values);
  const second = names.includes(getState("tv2")) ? getState("tv2") : "";
  const choices = names.map((name) => [name, name]);
  const bar = el(
    "div",
    { class: "facts" },
    selectField(t("tint"), choices, first, (tv) => setState({ tv })),
    selectField(t("beside"), [["", "–"], ...choices], second, (tv2) => setState({ tv2 })),
    legend(scaleOf(data.values[first], data.mask, first)),
  );
  const shown = second ? [first, second] : [first];
  bar.append(...meanings(shown), nonfiniteValues(data.values));
  const width = body.clientWidth / shown.length;
  texts.push(...shown.map((name) => new TokenText(data, name, width - 12)));
  for (const text of texts) text.follow(texts);
  return [
    bar,
    el(
      "div",
      { class: "token-columns" },
      texts.map((text) => text.node),
    ),
    extremeList(data, first, texts),
    data.fetchSums ? sumTable(data, first) : "",
  ];
}

// What the shown values mean, with their names where there are two.
function meanings(shown) {
  const known = shown.filter((name) => name in MEANINGS);
  const line = (name) => (shown.length > 1 ? `${name}: ${MEANINGS[name]()}` : MEANINGS[name]());
  return known.map((name) => el("div", { class: "quiet", text: line(name) }));
}

// Buttons that show the values with tokens that are not finite.
function nonfiniteValues(values) {
  const buttons = nonfiniteCounts(values).map(([name, count]) =>
    el("button", { class: "ghost", onclick: () => setState({ tv: name }), text: `${name} ${count.toLocaleString()}` }),
  );
  return buttons.length ? el("div", { class: "extremes nonfinite-values" }, t("token_nonfinite"), buttons) : "";
}

// The colours from the lowest to the highest value, with none at the neutral one.
function legend(scale) {
  const { low, high, neutral } = scale;
  if (Number.isNaN(low)) return el("span", { text: t("no_finite_value") });
  if (low === high) return el("span", { text: t("same_value", { n: formatNumber(low) }) });
  const [first, last] = [low, high].map((value) => tint(strength(value, scale)) || "transparent");
  const nothing = low < neutral && high > neutral ? `transparent ${(100 * (neutral - low)) / (high - low)}%, ` : "";
  const bar = el("i", { style: { background: `linear-gradient(to right, ${first}, ${nothing}${last})` } });
  return el("span", { class: "token-legend" }, formatNumber(low), bar, formatNumber(high));
}

// The ten most extreme tokens; a click scrolls to one.
function extremeList(data, name, texts) {
  const buttons = extremes(data.values[name], data.mask, name).map((place) =>
    el(
      "button",
      { class: "ghost", onclick: () => revealAll(texts, place) },
      el("code", { text: data.tokens[place].trim() || JSON.stringify(data.tokens[place]) }),
      el("span", { class: "quiet", text: formatNumber(data.values[name][place]) }),
    ),
  );
  return buttons.length
    ? el("div", { class: "extremes" }, el("span", { class: "quiet", text: t("extremes") }), buttons)
    : "";
}

// The tokens of the step that carry most of a value, fetched when it is opened, with links to the most extreme places.
function sumTable(data, name) {
  const body = el("div");
  const node = el("details", { open: areSumsOpen }, el("summary", { text: t("token_sums", { n: name }) }), body);
  node.addEventListener("toggle", async () => {
    areSumsOpen = node.open;
    if (!node.open || body.firstChild) return;
    const found = await data.fetchSums(name);
    const rows = found.tokens.map((one) => {
      const text = el("code", { text: JSON.stringify(visibleText(one.text)) });
      const sums = [formatPercent(one.share), formatNumber(one.sum), formatNumber(one.mean), one.count];
      return [text, ...sums, placeLinks(one.places)];
    });
    const names = [t("token"), t("share"), t("sum"), t("mean"), t("count"), t("token_places")];
    body.replaceChildren(table(names, rows, "right"));
  });
  return node;
}

// A link for each place of a token, with the value there; of many, the rest is shown at a click.
function placeLinks(places) {
  const links = places.map(({ value, place, token }) =>
    el("button", { class: "ghost", text: formatNumber(value), onclick: () => setState({ sample: place, tok: token }) }),
  );
  const hidden = links.length > SHOWN_PLACES + 1 ? links.splice(SHOWN_PLACES) : [];
  const more = el("button", {
    class: "ghost quiet",
    text: `+${hidden.length}`,
    onclick: () => more.replaceWith(...hidden),
  });
  const style = { margin: "0", "justify-content": "flex-end", "min-width": "15em" };
  return el("div", { class: "extremes", style }, links, hidden.length ? more : null);
}

function revealAll(texts, place) {
  for (const text of texts) text.reveal(place);
}

// The text with an overview above it. Only the rows in view exist.
class TokenText {
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
    const lines = Object.entries(this.data.values).map(([name, values]) =>
      el("div", {}, el("span", { class: "quiet", text: name }), el("span", { text: formatNumber(values[place]) })),
    );
    this.tip.replaceChildren(
      el("code", { text: JSON.stringify(this.data.tokens[place]) }),
      el("span", { class: "quiet", text: ` ${place}` }),
      ...lines,
      this.alternatives(place),
    );
    const box = this.node.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX - box.left + 12, box.width - 180)}px`;
    this.tip.style.top = `${event.clientY - box.top + 16}px`;
  }

  // The most likely tokens at a place with their probabilities; the one that was taken is marked.
  alternatives(place) {
    const rows = this.data.alternatives(place).map(([text, logProb]) => {
      const shown = visibleText(text);
      const name = shown === this.data.tokens[place] ? "taken" : null;
      const label = el("code", { text: JSON.stringify(shown) });
      return el("div", { class: name }, label, el("span", { text: formatPercent(Math.exp(logProb)) }));
    });
    return rows.length ? el("div", { class: "alternatives" }, el("span", { text: t("alternatives") }), rows) : "";
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
  ink.font = `${FONT_SIZE}px ${cssVariable("--mono")}`;
  return ink.measureText("0".repeat(100)).width / 100 + BORDER;
}

function firstRows(rows, count) {
  const found = new Uint32Array(count);
  for (let i = rows.length - 1; i >= 0; i--) for (const [place] of rows[i]) found[place] = i;
  return found;
}

function tint(value) {
  const share = Math.round(Math.abs(value) * 75);
  return share < 4 ? "" : `color-mix(in srgb, var(${value > 0 ? "--s0" : "--s1"}) ${share}%, transparent)`;
}
