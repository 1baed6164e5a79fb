// The tokens of a sample, tinted by one of their values: an overview to drag, the text, and the most extreme ones.
import { getState, setState } from "../data/url_state.js";
import { formatNumber, formatPercent } from "../text/format.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { fragmentOf, html, nothing } from "../ui/html.js";
import { panel, selectField, table } from "../ui/widgets.js";
import { visibleText } from "./texts.js";
import {
  allValues,
  alternativesOf,
  decodeArray,
  extremes,
  nonfiniteCounts,
  scaleOf,
  shownValue,
  strength,
} from "./token_math.js";
import { TokenText, tint } from "./token_text.js";

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
    body.replaceChildren();
    body.append(fragmentOf(contents(data, body.clientWidth, texts)));
    reveal();
  };
  return { node, draw, reveal };
}

// The nodes of the panel; its texts are added to `texts`.
function contents(data, width, texts) {
  const names = Object.keys(data.values);
  if (!names.length) return new TokenText(data, null, width).node;
  const first = names.includes(getState("tv")) ? getState("tv") : shownValue(data.values);
  const second = names.includes(getState("tv2")) ? getState("tv2") : "";
  const choices = names.map((name) => [name, name]);
  const shown = second ? [first, second] : [first];
  texts.push(...shown.map((name) => new TokenText(data, name, width / shown.length - 12)));
  for (const text of texts) text.follow(texts);
  return html`<div class="facts">
      ${selectField(t("tint"), choices, first, (tv) => setState({ tv }))}
      ${selectField(t("beside"), [["", "–"], ...choices], second, (tv2) => setState({ tv2 }))}
      ${legend(scaleOf(data.values[first], data.mask, first))}
      ${meanings(shown)}${nonfiniteValues(data.values)}
    </div>
    <div class="token-columns">${texts.map((text) => text.node)}</div>
    ${extremeList(data, first, texts)}${data.fetchSums ? sumTable(data, first) : nothing}`;
}

// What the shown values mean, with their names where there are two.
function meanings(shown) {
  const known = shown.filter((name) => name in MEANINGS);
  const line = (name) => (shown.length > 1 ? `${name}: ${MEANINGS[name]()}` : MEANINGS[name]());
  return known.map((name) => html`<div class="quiet">${line(name)}</div>`);
}

// Buttons that show the values with tokens that are not finite.
function nonfiniteValues(values) {
  const button = ([name, count]) =>
    html`<button class="ghost" @click=${() => setState({ tv: name })}>${name} ${count.toLocaleString()}</button>`;
  const counts = nonfiniteCounts(values);
  if (!counts.length) return nothing;
  return html`<div class="extremes nonfinite-values">${t("token_nonfinite")}${counts.map(button)}</div>`;
}

// The colours from the lowest to the highest value, with none at the neutral one.
function legend(scale) {
  const { low, high, neutral } = scale;
  if (Number.isNaN(low)) return html`<span>${t("no_finite_value")}</span>`;
  if (low === high) return html`<span>${t("same_value", { n: formatNumber(low) })}</span>`;
  const [first, last] = [low, high].map((value) => tint(strength(value, scale)) || "transparent");
  const none = low < neutral && high > neutral ? `transparent ${(100 * (neutral - low)) / (high - low)}%, ` : "";
  const style = `background: linear-gradient(to right, ${first}, ${none}${last})`;
  return html`<span class="token-legend">${formatNumber(low)}<i .style=${style}></i>${formatNumber(high)}</span>`;
}

// The ten most extreme tokens; a click scrolls to one.
function extremeList(data, name, texts) {
  const places = extremes(data.values[name], data.mask, name);
  const button = (place) => html`<button class="ghost" @click=${() => revealAll(texts, place)}>
    <code>${data.tokens[place].trim() || JSON.stringify(data.tokens[place])}</code>
    <span class="quiet">${formatNumber(data.values[name][place])}</span></button>`;
  if (!places.length) return nothing;
  return html`<div class="extremes"><span class="quiet">${t("extremes")}</span>${places.map(button)}</div>`;
}

// The tokens of the step that carry most of a value, fetched when it is opened, with links to the most extreme places.
function sumTable(data, name) {
  const names = [t("token"), t("share"), t("sum"), t("mean"), t("count"), t("token_places")];
  const row = (one) => {
    const text = el("code", { text: JSON.stringify(visibleText(one.text)) });
    const sums = [formatPercent(one.share), formatNumber(one.sum), formatNumber(one.mean), one.count];
    return [text, ...sums, placeLinks(one.places)];
  };
  const open = async ({ currentTarget }) => {
    areSumsOpen = currentTarget.open;
    const body = currentTarget.lastElementChild;
    if (!areSumsOpen || body.firstChild) return;
    const found = await data.fetchSums(name);
    body.replaceChildren(table(names, found.tokens.map(row), "right"));
  };
  const title = el("summary", { text: t("token_sums", { n: name }) });
  return el("details", { open: areSumsOpen, ontoggle: open }, title, el("div"));
}

// A link for each place of a token, with the value there; of many, the rest is shown at a click.
function placeLinks(places) {
  const links = places.map(({ value, place, token }) =>
    el("button", { class: "ghost", text: formatNumber(value), onclick: () => setState({ sample: place, tok: token }) }),
  );
  const hidden = links.length > SHOWN_PLACES + 1 ? links.splice(SHOWN_PLACES) : [];
  const show = () => more.replaceWith(...hidden);
  const more = el("button", { class: "ghost quiet", text: `+${hidden.length}`, onclick: show });
  return el("div", { class: "extremes token-places" }, links, hidden.length ? more : null);
}

function revealAll(texts, place) {
  for (const text of texts) text.reveal(place);
}
