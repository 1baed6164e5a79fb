// What there is of a step: links to its samples, time and memory, and to the charts around it. A click on a plot over
// steps opens it, or a key.
import { runs } from "../data/runs.js";
import { getState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { stateLink } from "../ui/widgets.js";

const STATES = { samples: "at", time: "step", memory: "step" }; // of the views, which show one step
const AROUND = 20; // steps on either side that charts show
const menu = el("div", { class: "step-menu card", role: "group", hidden: true });

// Open the menu at a place of the window.
export function openStepMenu(step, left, top) {
  const links = el("span", { class: "facts" });
  const box = el("input", { type: "number", min: 0, value: step, "aria-label": t("step") });
  const update = () =>
    links.replaceChildren(
      ...Object.keys(STATES).map((tab) => closingLink(tab, { [STATES[tab]]: box.value, sample: "", tok: "" })),
      closingLink("charts", { from: Math.max(0, Number(box.value) - AROUND), to: Number(box.value) + AROUND, x: "" }),
    );
  box.addEventListener("input", update);
  box.addEventListener("keydown", (event) => event.key === "Enter" && links.querySelector("a").click());
  update();
  const [before, after] = t("at_step", { n: "|" }).split("|"); // in Chinese the number stands between two words
  menu.replaceChildren(el("label", {}, before, box, after), links);
  if (!menu.isConnected) document.body.append(menu);
  menu.hidden = false;
  menu.style.left = `${Math.max(8, Math.min(left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.max(8, Math.min(top, innerHeight - menu.offsetHeight - 8))}px`;
}

// Open the menu from the keyboard: at the crosshair of a plot, else with the last step.
export function askForStep(plot) {
  const box = plot?.host.getBoundingClientRect();
  const step = plot?.stepAtCursor() ?? runs.get(getState("run"))?.last_step ?? 0;
  openStepMenu(step, box ? box.left + 50 : innerWidth / 2 - 140, box ? box.bottom : 60);
  menu.querySelector("input").select();
}

export function closeStepMenu() {
  menu.hidden = true;
}

function closingLink(tab, states) {
  const link = stateLink({ tab, ...states }, {}, t(tab));
  link.addEventListener("click", closeStepMenu);
  return link;
}

addEventListener("pointerdown", (event) => menu.contains(/** @type {Node} */ (event.target)) || closeStepMenu());
