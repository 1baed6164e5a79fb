// One hover card for all titles: what a metric means, what is good, and its name as logged, to copy.
import { el, icon, ICONS } from "./dom.js";
import { say, t } from "./words.js";

const card = el("div", { class: "tip", role: "tooltip", hidden: true });
let closing = null;

export function explainable(node, make) {
  node.tabIndex = 0;
  node.classList.add("explainable");
  const open = () => openTip(node, make());
  node.addEventListener("pointerenter", open);
  node.addEventListener("focus", open);
  node.addEventListener("pointerleave", closeSoon);
  node.addEventListener("blur", closeSoon);
  return node;
}

function openTip(node, content) {
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

function closeSoon() {
  closing = setTimeout(closeTip, 120);
}

export function closeTip() {
  card.hidden = true;
}

export function aboutMetric(metric, names, note) {
  const lines = [];
  if (metric) {
    lines.push(el("strong", { text: say(metric.title) }), el("p", { text: say(metric.about) }));
    if (metric.look?.en) lines.push(el("p", {}, el("b", { text: `${t("looks")} ` }), say(metric.look)));
    if (metric.next?.en) lines.push(el("p", {}, el("b", { text: `${t("next")} ` }), say(metric.next)));
    if (metric.band) lines.push(el("p", {}, el("b", { text: `${t("healthy_band")}: ` }), say(metric.band.text)));
  }
  if (note) lines.push(el("p", { class: "watch", text: say(note) }));
  lines.push(...names.map(copyable));
  return lines;
}

function copyable(name) {
  const said = el("span", { class: "quiet" });
  const copy = () => navigator.clipboard?.writeText(name).then(() => (said.textContent = t("copied")));
  return el(
    "div",
    { class: "logged" },
    el("code", { text: name }),
    el("button", { class: "ghost", title: t("copy"), "aria-label": t("copy"), onclick: copy }, icon(ICONS.copy)),
    said,
  );
}
