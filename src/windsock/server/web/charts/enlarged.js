// One chart enlarged over the page.
import { el } from "../ui/dom.js";
import { closeTooltip } from "../ui/tooltip.js";

const MAX_POINTS = 1600;
let enlarged = null; // the card, and the placeholder at its place in the page

export function enlarge(plot) {
  const card = plot?.card;
  if (!card || enlarged) return shrinkEnlarged();
  closeTooltip();
  enlarged = { card, placeholder: el("div", { class: "card chart" }) };
  card.node.replaceWith(enlarged.placeholder);
  card.node.classList.add("large-chart");
  document.body.append(card.node);
  card.points = Math.max(220, Math.min(MAX_POINTS, Math.round(innerWidth * 1.25)));
  card.enter();
  setTimeout(() => addEventListener("pointerdown", shrinkOutside), 0); // not for the click that enlarged it
}

function shrinkOutside(event) {
  if (enlarged && !enlarged.card.node.contains(event.target)) shrinkEnlarged();
}

export function shrinkEnlarged() {
  if (!enlarged) return;
  removeEventListener("pointerdown", shrinkOutside);
  const { card, placeholder } = enlarged;
  card.node.classList.remove("large-chart");
  placeholder.replaceWith(card.node);
  card.points = 0;
  if (!card.node.isConnected) card.leave();
  enlarged = null;
}
