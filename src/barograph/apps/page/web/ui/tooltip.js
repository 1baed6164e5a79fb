// The tooltip of titles: explanation of a metric, its healthy range, and its logged name to copy.
import { localized, t } from "../text/language.js";
import { el, ICONS, icon } from "./dom.js";

const card = el("div", { class: "tip", role: "tooltip", hidden: true });
let closing = null;

// Show a tooltip for an element; `makeContent` returns its nodes.
export function addTooltip(node, makeContent) {
  node.tabIndex = 0;
  node.classList.add("explainable");
  const open = () => openTooltip(node, makeContent());
  node.addEventListener("pointerenter", open);
  node.addEventListener("focus", open);
  node.addEventListener("pointerleave", closeSoon);
  node.addEventListener("blur", closeSoon);
  return node;
}

function openTooltip(node, content) {
  clearTimeout(closing);
  if (!card.isConnected) {
    card.addEventListener("pointerenter", () => clearTimeout(closing));
    card.addEventListener("pointerleave", closeSoon);
    document.body.append(card);
  }
  card.replaceChildren(...content);
  card.hidden = false;
  const box = node.getBoundingClientRect();
  const left = Math.max(8, Math.min(box.left, innerWidth - card.offsetWidth - 8));
  const below = box.bottom + 6 + card.offsetHeight < innerHeight;
  card.style.left = `${left}px`;
  card.style.top = `${below ? box.bottom + 6 : Math.max(8, box.top - card.offsetHeight - 6)}px`;
}

// With a delay, so that the pointer can move from the element to the tooltip.
function closeSoon() {
  closing = setTimeout(closeTooltip, 120);
}

export function closeTooltip() {
  card.hidden = true;
}

// The explanation of a metric, a note, and its logged names.
export function metricTooltip(metric, names, note) {
  const lines = [];
  if (metric) {
    lines.push(el("strong", { text: localized(metric.title) }), el("p", { text: localized(metric.about) }));
    if (metric.look?.en) lines.push(el("p", {}, el("b", { text: `${t("looks")} ` }), localized(metric.look)));
    if (metric.next?.en) lines.push(el("p", {}, el("b", { text: `${t("next")} ` }), localized(metric.next)));
    if (metric.band) lines.push(el("p", {}, el("b", { text: `${t("healthy_band")}: ` }), localized(metric.band.text)));
  }
  if (note) lines.push(el("p", { class: "watch", text: localized(note) }));
  lines.push(...names.map(copyableName));
  return lines;
}

function copyableName(name) {
  const confirmation = el("span", { class: "quiet" });
  const copy = async () => {
    await navigator.clipboard?.writeText(name);
    confirmation.textContent = t("copied");
  };
  return el(
    "div",
    { class: "logged" },
    el("code", { text: name }),
    el("button", { class: "ghost", title: t("copy"), "aria-label": t("copy"), onclick: copy }, icon(ICONS.copy)),
    confirmation,
  );
}
