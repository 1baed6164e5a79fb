// The menu with which the colour of a run is chosen.
import { chooseColour, colourOf } from "./data/colours.js";
import { report } from "./data/report.js";
import { runs, selectedRuns } from "./data/runs.js";
import { t } from "./text/language.js";
import { PALETTE_SIZE, seriesColour } from "./ui/colours.js";
import { el } from "./ui/dom.js";
import { menuItem, openMenuAt } from "./ui/menu.js";
import { offerUndo, showMessage } from "./ui/toast.js";

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
  const others = selectedRuns().filter((one) => one !== key);
  const taken = new Map(others.map((one) => [colourOf(one), runs.get(one)?.name]));
  const isFull = taken.size >= PALETTE_SIZE;
  const choose = async (colour) => {
    close();
    try {
      offerUndo(t("run_changed", { n: runs.get(key)?.name ?? key }), await chooseColour(key, colour));
    } catch (problem) {
      showMessage(problem.message);
    }
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
  const automatic = menuItem(t("automatic_colour"), () => choose(null));
  const close = openMenuAt(button, el("div", { class: "colours" }, choices), automatic);
}
