// The list of the samples that were found.
import { getState, setState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { html, nothing, repeat } from "../ui/html.js";
import { stateLink } from "../ui/widgets.js";
import { rewardChip } from "./facts.js";
import { searchParameters } from "./filters.js";
import { answerText, outputText, sharedBeginning } from "./outputs.js";
import { firstMatch, highlighted, visibleText } from "./texts.js";

const SNIPPET = 300; // characters
const BEFORE_MATCH = 40;

export function sampleRows(samples, selected, pattern) {
  const texts = samples.map(pattern ? outputText : answerText);
  const shared = sharedBeginning(texts);
  const row = (sample, i) => sampleRow(sample, selected, snippet(texts[i], shared, pattern));
  return repeat(samples, (sample) => sample.place, row);
}

function snippet(text, shared, pattern) {
  if (!text) return html`<span class="snippet quiet">${t("empty_sample")}</span>`;
  const match = firstMatch(text, pattern);
  const start = match >= 0 ? Math.max(0, match - BEFORE_MATCH) : shared;
  const shown = highlighted(text.slice(start, start + SNIPPET), pattern);
  return html`<span class="snippet" dir="auto">${start ? "… " : ""}${shown}</span>`;
}

function sampleRow(sample, selected, text) {
  const { place, step, task, group, length, reward, discarded } = sample;
  const facts = [
    t("at_step", { n: step ?? "–" }),
    (group ?? null) === null ? named(t("task"), task) : named(t("group"), group),
    named(t("length"), length),
    sample.finish_reason && `${t("finish")} ${sample.finish_reason}`,
  ].filter((fact) => fact !== null && fact !== undefined);
  return html`<button class=${discarded ? "sample-row discarded" : "sample-row"}
    aria-current=${place === selected || nothing} @click=${() => setState({ sample: place, tok: "" })}>
    <span class="facts">
      ${reward === null ? nothing : rewardChip(sample)}
      ${tokenCount(sample) ? html`<i class="has-tokens" role="img" aria-label=${t("has_tokens")} title=${t("has_tokens")}></i>` : nothing}
      ${facts.map((fact) => html`<span>${visibleText(String(fact))}</span>`)}
      ${discarded ? html`<span class="watch">${visibleText(discarded)}</span>` : nothing}
    </span>${text}
  </button>`;
}

// A bare number says nothing.
function named(label, value) {
  return /^[\d.]+$/.test(String(value ?? "")) ? `${label} ${value}` : value;
}

// A list has their number, a report has the tokens.
function tokenCount({ tokens }) {
  return Array.isArray(tokens) ? tokens.length : tokens;
}

// That nothing matches; of a step, also the nearest ones that have something.
export function nothingFound(search, fail) {
  const at = getState("at");
  const note = el("p", { class: "quiet pad", text: t("nothing_found") });
  if (!at) return note;
  const near = (order, sort) => {
    const where = [getState("where"), `step ${order} ${at}`].filter(Boolean).join(" and ");
    return search({ ...searchParameters(), step: "", where, sort, limit: 1 });
  };
  Promise.all([near("<", "-step"), near(">", "step")]).then((both) => {
    const steps = both.flatMap(({ samples }) => samples.slice(0, 1)).map((one) => one.step);
    const link = (step) => stateLink({ at: step }, { class: "near-step" }, String(step));
    if (steps.length)
      note.replaceChildren(`${t("none_at_step", { n: at })} `, ...steps.flatMap((step) => [link(step), " "]));
  }, fail);
  return note;
}
