// Widgets that several views use: panels, tables, fields, status dots.
import { report } from "../data/report.js";
import { addressWith, getState, setState, typeState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { el } from "./dom.js";
import { parseFilter } from "./filter.js";
import { html } from "./html.js";
import { closeTooltip } from "./tooltip.js";

// The signs of the doctor's verdicts.
export const SYMBOLS = { good: "✓", watch: "!", bad: "×", unknown: "?" };

// The doctor's verdict on a run, above what is said about it.
export function verdictBanner(word, ...content) {
  return html`<section class="banner card ${word}">
    <span class="verdict" aria-hidden="true">${SYMBOLS[word]}</span>
    <div><h1>${t(`health_${word}`)}</h1>${content}</div>
  </section>`;
}

export function emptyState(reason, advice) {
  return el(
    "div",
    { class: "empty" },
    el("p", { text: reason }),
    advice ? el("p", { class: "quiet", text: advice }) : null,
  );
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
  return el(
    "div",
    { class: "scroll", tabindex: 0 },
    el("table", { class: name }, el("thead", {}, head), el("tbody", {}, body)),
  );
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

// A panel with a list of texts, and their number.
export function listPanel(title, texts) {
  const items = texts.map((text) => el("li", { text }));
  return panel(title, String(texts.length), el("ul", { class: "notices" }, items));
}

// A link that changes states; in a new tab or window it opens the page with them.
export function stateLink(changes, props, ...children) {
  const link = el("a", { href: addressWith(changes), ...props }, ...children);
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    closeTooltip();
    setState(changes);
  });
  return link;
}

// A button that copies a text, and says so.
export function copyButton(text, label) {
  const button = el("button", { text: label });
  button.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(text);
    button.textContent = t("copied");
  });
  return button;
}

export function swatch(colour, label, title = null) {
  return el("span", { class: "swatch", title }, el("i", { style: { background: colour } }), label);
}

export function statusDot(status) {
  return el("i", { class: `dot ${status}`, "aria-hidden": "true" });
}

export function statusText(run) {
  const known = run.last_step !== null && run.last_step !== undefined;
  return [
    t(run.status),
    known ? el("span", { class: "chip-step", text: ` · ${t("at_step", { n: run.last_step })}` }) : null,
  ];
}

export function selectField(label, choices, chosen, onchange) {
  const box = el(
    "select",
    { "aria-label": label, onchange: () => onchange(box.value) },
    choices.map(([value, text]) => el("option", { value, text, selected: value === chosen })),
  );
  return el("label", { class: "field" }, el("span", { text: label }), box);
}

// A search field whose text is the filter in the URL.
export function filterField(label) {
  const box = el("input", { type: "search", placeholder: label, "aria-label": label, value: getState("filter") });
  box.addEventListener("input", () => typeState("filter", box.value));
  return box;
}

// A function that tests a text against the filter, a regular expression. An invalid one is searched as a plain text, and
// a message below the field says what is wrong with it.
export function filterPredicate(box) {
  if (box.value !== getState("filter")) box.value = getState("filter"); // after Back
  const { pattern, problem } = parseFilter(getState("filter"));
  box.classList.toggle("invalid", Boolean(problem));
  if (box.nextElementSibling?.matches(".filter-problem")) box.nextElementSibling.remove();
  if (problem) box.after(el("span", { class: "filter-problem", role: "status", text: t("bad_regex", { p: problem }) }));
  return (text) => pattern.test(text);
}

// A field for the step of a picture; a report has one step only, and says so.
export function stepField([first, last], step) {
  if (report) return el("span", { class: "quiet", text: t("report_step") });
  const box = el("input", {
    type: "number",
    min: first,
    max: last,
    value: step,
    "aria-label": t("step"),
    onchange: () => setState({ step: box.value }),
  });
  return box;
}

// While a step is being typed, an update must not replace the field.
export function isEditingStep() {
  return document.activeElement?.getAttribute("type") === "number";
}
