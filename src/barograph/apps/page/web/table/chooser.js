// The dialog in which the columns of the table are chosen and ordered.
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { selectField } from "../ui/widgets.js";
import { columnTitle } from "./columns.js";

const MAX_SHOWN = 200; // that match
const STATISTICS = ["last", "best", "max", "min", "mean", "at"];

// `change(columns)` is called with every change; null restores the default.
export function chooseColumns(columns, choices, change) {
  let chosen = columns;
  let what = "last";
  let number = 10;
  const shown = el("ul", { class: "chosen" });
  const found = el("ul", { class: "found" });
  const search = el("input", { type: "search", placeholder: t("columns_find"), "aria-label": t("columns_find") });
  const count = el("input", { type: "number", class: "short", value: number, min: 1, "aria-label": "n" });
  const statistic = selectField(
    t("column_value"),
    STATISTICS.map((key) => [key, t(`stat_${key}`)]),
    what,
    (key) => {
      what = key;
      draw();
    },
  );

  function set(next) {
    chosen = next ?? columns;
    change(next);
    if (next === null) dialog.close();
    else draw();
  }

  function move(key, by) {
    const place = chosen.indexOf(key);
    const others = chosen.filter((one) => one !== key);
    others.splice(Math.max(0, place + by), 0, key);
    set(others);
  }

  function draw() {
    count.hidden = !["mean", "at"].includes(what);
    shown.replaceChildren(...chosen.map(chosenItem));
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const options = candidates().filter((key) => !chosen.includes(key));
    const title = (key) => columnTitle(key, choices);
    const matching = options.filter((key) =>
      words.every((word) => `${key} ${title(key)}`.toLowerCase().includes(word)),
    );
    found.replaceChildren(...matching.slice(0, MAX_SHOWN).map(foundItem));
  }

  // All columns that can be added: facts, headline values and metrics as the chosen number of them, config keys.
  function candidates() {
    const prefix = ["mean", "at"].includes(what) ? `${what}${number}` : what;
    const facts = choices.facts.filter((key) => !["name", "key", "pinned"].includes(key));
    const values = [...choices.headlines.map((one) => one.key), ...choices.metrics].map((name) => `${prefix}:${name}`);
    const config = choices.config.map((key) => (choices.facts.includes(key) ? `config:${key}` : key));
    const varying = config.filter((key) => choices.varying.includes(key.replace(/^config:/, "")));
    return [...new Set([...varying, ...facts, ...values.slice(0, choices.headlines.length), ...config, ...values])];
  }

  function chosenItem(key, place) {
    const title = columnTitle(key, choices);
    const button = (text, label, work, disabled) =>
      el("button", { class: "ghost", text, title: label, "aria-label": `${label}: ${title}`, disabled, onclick: work });
    return el(
      "li",
      {},
      el("span", { class: "grow", text: title }),
      button("↑", t("column_earlier"), () => move(key, -1), place === 0),
      button("↓", t("column_later"), () => move(key, 1), place === chosen.length - 1),
      button("×", t("column_remove"), () => set(chosen.filter((one) => one !== key))),
    );
  }

  function foundItem(key) {
    const label = columnTitle(key, choices);
    const add = () => set([...chosen, key]);
    return el("li", {}, el("button", { class: "ghost", text: `+ ${label}`, "data-column": key, onclick: add }));
  }

  search.addEventListener("input", draw);
  count.addEventListener("input", () => {
    number = Math.max(1, Math.round(Number(count.value) || 1));
    draw();
  });
  const foot = el(
    "form",
    { method: "dialog" },
    el("button", { type: "button", class: "ghost", text: t("columns_reset"), onclick: () => set(null) }),
    el("button", { text: t("close") }),
  );
  const dialog = el(
    "dialog",
    { class: "chooser" },
    el("h2", { text: t("columns") }),
    el("div", { class: "chooser-search" }, search, statistic, count),
    el(
      "div",
      { class: "chooser-lists" },
      el("section", {}, el("h3", { text: t("columns_shown") }), shown),
      el("section", {}, el("h3", { text: t("columns_more") }), found),
    ),
    foot,
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  draw();
  dialog.showModal();
  search.focus();
}
