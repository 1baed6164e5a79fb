// The edge of the list of runs, which is dragged, or moved with the arrow keys, to make the list wider.
import { readPreference, savePreference } from "./data/preferences.js";
import { t } from "./text/language.js";
import { el } from "./ui/dom.js";

const WIDTHS = { least: 180, first: innerWidth > 1100 ? 288 : 264, most: 640 };

export function sideEdge() {
  const edge = el("div", {
    class: "side-edge",
    role: "separator",
    tabindex: "0",
    "aria-orientation": "vertical",
    "aria-label": t("resize_list"),
    "aria-valuemin": WIDTHS.least,
    "aria-valuemax": WIDTHS.most,
  });
  let width = Number(readPreference("side")) || WIDTHS.first;

  function set(wanted, isDone) {
    width = Math.round(Math.min(WIDTHS.most, Math.max(WIDTHS.least, wanted)));
    document.documentElement.style.setProperty("--side", `${width}px`);
    edge.setAttribute("aria-valuenow", String(width));
    if (isDone) savePreference("side", String(width));
  }

  edge.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
    if (by) set(width + by, true);
  });
  edge.addEventListener("dblclick", () => set(WIDTHS.first, true));
  edge.addEventListener("pointerdown", (down) => {
    down.preventDefault();
    edge.setPointerCapture(down.pointerId);
    edge.onpointermove = (event) => set(event.clientX, false);
    edge.onpointerup = (event) => {
      edge.onpointermove = edge.onpointerup = null;
      if (event.clientX !== down.clientX) set(event.clientX, true);
    };
  });
  set(width, false);
  return edge;
}
