// One chart enlarged over the page. Its key is in the URL, so that a link shows it and Back closes it.
import { getState, setState } from "../data/url_state.js";
import { el } from "../ui/dom.js";
import { closeTooltip } from "../ui/tooltip.js";

const MAX_POINTS = 1600;
let enlarged = null; // the card, its frame, the placeholder at its place in the page, and what had the focus
let cards = []; // that can be enlarged

export function enlarge(plot) {
  if (!plot?.card) return;
  setState({ chart: getState("chart") ? "" : plot.card.chart.key });
}

export function shrink() {
  setState({ chart: "" });
}

// Take the cards of a view, and enlarge the one that the URL names.
export function offerCards(offered) {
  putBack();
  cards = offered;
  syncEnlarged();
}

// Enlarge the chart that the URL names, or none.
export function syncEnlarged() {
  const wanted = cards.find((card) => card.chart.key === getState("chart"));
  if (wanted === enlarged?.card) return;
  putBack();
  if (wanted) bringForward(wanted);
}

function bringForward(card) {
  closeTooltip();
  const frame = el("div", { role: "dialog", "aria-label": card.chart.title });
  enlarged = { card, frame, placeholder: el("div", { class: "card chart" }), focus: document.activeElement };
  card.node.replaceWith(enlarged.placeholder);
  frame.append(card.node);
  document.body.append(frame);
  card.setLarge(Math.max(220, Math.min(MAX_POINTS, Math.round(innerWidth * 1.25))));
  card.enter();
  card.node.querySelector(".tool-shrink").focus();
  setTimeout(() => addEventListener("pointerdown", shrinkOutside), 0); // not for the click that enlarged it
}

function shrinkOutside(event) {
  const inside = enlarged?.card.node.contains(event.target) || event.target.closest(".menu, .tip, dialog");
  if (enlarged && !inside) shrink();
}

function putBack() {
  if (!enlarged) return;
  removeEventListener("pointerdown", shrinkOutside);
  const { card, frame, placeholder, focus } = enlarged;
  placeholder.replaceWith(card.node);
  frame.remove();
  card.setLarge(0);
  if (!card.node.isConnected) {
    card.node.remove();
    card.leave();
  } else if (focus instanceof HTMLElement) focus.focus();
  enlarged = null;
}
