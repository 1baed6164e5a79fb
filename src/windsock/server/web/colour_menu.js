// The menu with which the colour of a run is chosen.
import { chooseColour, colourOf } from "./data/colours.js";
import { report } from "./data/report.js";
import { runs, selectedRuns } from "./data/runs.js";
import { t } from "./text/language.js";
import { PALETTE_SIZE, seriesColour } from "./ui/colours.js";
import { el } from "./ui/dom.js";
import { showMessage } from "./ui/toast.js";

// The swatch of a run with its name: a button that opens the menu, in a report a plain swatch.
export function colourSwatch(key) {
  const name = runs.get(key)?.name ?? key;
  const content = [el("i", { style: { background: seriesColour(colourOf(key)) } }), name];
  if (report) return el("span", { class: "swatch" }, content);
  return el(
    "button",
    {
      class: "swatch",
      title: t("change_colour"),
      "aria-label": `${t("change_colour")}: ${name}`,
      "aria-haspopup": "menu",
      onclick: (event) => openColourMenu(event.currentTarget, key),
    },
    content,
  );
}

// Open the menu below a button. Colours of other selected runs cannot be chosen while others are free.
export function openColourMenu(button, key) {
  document.querySelector(".menu")?.remove();
  const others = selectedRuns().filter((one) => one !== key);
  const taken = new Map(others.map((one) => [colourOf(one), runs.get(one)?.name]));
  const isFull = taken.size >= PALETTE_SIZE;
  const choose = (colour) => {
    menu.remove();
    button.focus();
    chooseColour(key, colour).catch((problem) => showMessage(problem.message));
  };
  const choices = Array.from({ length: PALETTE_SIZE }, (_, colour) =>
    el("button", {
      role: "menuitemradio",
      class: "colour",
      "aria-checked": colourOf(key) === colour,
      "aria-label": `${t("colour")} ${colour + 1}${taken.has(colour) ? `: ${taken.get(colour)}` : ""}`,
      title: taken.get(colour),
      disabled: taken.has(colour) && !isFull,
      style: { background: seriesColour(colour) },
      onclick: () => choose(colour),
    }),
  );
  const automatic = el("button", { role: "menuitem", text: t("automatic_colour"), onclick: () => choose(null) });
  const menu = el("div", { class: "menu", role: "menu" }, el("div", { class: "colours" }, choices), automatic);
  document.body.append(menu);
  const box = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(box.left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.min(box.bottom + 4, innerHeight - menu.offsetHeight - 8)}px`;
  menu.querySelector("button:not([disabled])")?.focus();
  menu.addEventListener("keydown", (event) => moveFocus(event, menu, button));
  setTimeout(() =>
    addEventListener("pointerdown", (event) => menu.contains(event.target) || menu.remove(), { once: true }),
  );
}

function moveFocus(event, menu, button) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const all = [...menu.querySelectorAll("button:not([disabled])")];
  if (step) all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  if (event.key === "Escape") button.focus();
}
