// The bar of the Samples view: search, conditions on any column, order.
import { getState, setState, toggleState, typeState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { debounce } from "../ui/scheduling.js";
import { conditionsOf, toggledCondition } from "./conditions.js";

const FIXED_SORTS = [
  ["-step", "s_new"],
  ["step", "s_old"],
  ["-reward", "s_high"],
  ["reward", "s_low"],
  ["-length", "s_long"],
  ["-advantage", "s_adv"],
];
const FIXED_COLUMNS = ["reward", "advantage", "length", "step", "task", "group", "finish_reason", "weight_version"];
const HAS_TOKENS = "tokens > 0";
const NARROW = ["at", "task", "group", "low", "high", "short", "long", "finish"];

// The parameters of a search by their state in the URL.
const PARAMETERS = {
  at: "step",
  task: "task",
  group: "group",
  finish: "finish_reason",
  low: "min_reward",
  high: "max_reward",
  short: "min_length",
  long: "max_length",
  where: "where",
  order: "sort",
};
export const STATES = [...Object.keys(PARAMETERS), "grep", "rx"];

// The parameters of the search that the URL has.
export function searchParameters() {
  const found = Object.fromEntries(Object.entries(PARAMETERS).map(([state, name]) => [name, getState(state)]));
  const text = getState("rx") === "1" ? { regex: getState("grep") } : { grep: getState("grep") };
  return { ...found, ...text, sort: found.sort || "-step" };
}

export class FilterBar {
  constructor() {
    this.summary = el("span", { class: "quiet found" });
    this.boxes = [];
    this.order = el("select", { "aria-label": t("sort"), onchange: () => this.chooseOrder(this.order.value) });
    this.columns = el("select", { "aria-label": t("condition"), onchange: () => this.begin(this.columns.value) });
    this.where = this.box("where", "text", { class: "where", placeholder: "reward.format < 0.5 and correct = false" });
    this.typing = null; // the field whose text is not in the URL yet
    this.setLater = debounce(200, (state, text) => {
      this.typing = null;
      typeState(state, text);
    });
    const search = this.box("grep", "search", { placeholder: t("search_samples"), "aria-label": t("search_samples") });
    this.regex = el("button", {
      text: ".*",
      title: t("regex"),
      "aria-label": t("regex"),
      onclick: () => toggleState("rx"),
    });
    this.tokens = el("button", {
      text: t("with_tokens"),
      title: t("with_tokens_what"),
      hidden: true,
      onclick: () => setState({ where: toggledCondition(getState("where"), HAS_TOKENS), sample: "" }),
    });
    this.rich = el("button", { text: t("rendered"), title: t("rendered_what"), onclick: () => toggleState("rich") });
    this.node = el(
      "div",
      { class: "bar sample-bar" },
      search,
      this.regex,
      labelled(t("sort"), this.order),
      labelled(t("condition"), this.where),
      this.columns,
      el(
        "details",
        { class: "narrow", open: NARROW.some(getState) },
        el("summary", { text: t("filters") }),
        this.narrow(),
      ),
      this.summary,
      this.tokens,
      this.rich,
    );
    this.show({});
  }

  narrow() {
    return el(
      "div",
      { class: "facts" },
      labelled(t("step"), this.box("at", "number", { min: 0 })),
      labelled(t("task"), this.box("task", "text", { class: "short" })),
      labelled(t("group"), this.box("group", "text", { class: "short" })),
      labelled(t("at_least"), this.box("low", "number", { step: "any" })),
      labelled(t("at_most"), this.box("high", "number", { step: "any" })),
      labelled(t("long_least"), this.box("short", "number", { min: 0 })),
      labelled(t("long_most"), this.box("long", "number", { min: 0 })),
      labelled(t("finish"), this.box("finish", "text", { class: "short" })),
    );
  }

  box(state, type, extra) {
    const box = el("input", { type, value: getState(state), "aria-label": state, ...extra });
    box.addEventListener("input", () => {
      this.typing = box;
      this.setLater(state, box.value);
    });
    this.boxes.push([state, box]);
    return box;
  }

  // An order, or one with a condition.
  chooseOrder(value) {
    const [order, where] = value.split(" where ");
    setState(where ? { order, where, sample: "" } : { order });
  }

  // Begin a condition on a column.
  begin(column) {
    const name = /^[^\s=<>!~",]+$/.test(column) ? column : JSON.stringify(column);
    this.where.value = [this.where.value.trim(), `${name} `].filter(Boolean).join(" and ");
    this.columns.value = "";
    this.where.focus();
  }

  // Show the states of the URL, and the columns that a census has.
  show(columns) {
    for (const [state, box] of this.boxes) if (box !== this.typing) box.value = getState(state);
    this.press();
    const names = Object.keys(columns);
    this.tokens.toggleAttribute("hidden", !columns.tokens && !this.isPressed(HAS_TOKENS));
    const sorts = names.flatMap((name) => [
      [`-${name}`, `${name} ↓`],
      [name, `${name} ↑`],
    ]);
    const order = getState("order") || "-step";
    const choices = [...FIXED_SORTS.map(([key, word]) => [key, t(word)]), ...bestOfFalse(columns), ...sorts];
    if (!choices.some(([key]) => key === order)) choices.push([order, order]);
    const preset = `${order} where ${getState("where")}`;
    fillSelect(this.order, choices, choices.some(([key]) => key === preset) ? preset : order);
    const all = [...FIXED_COLUMNS, ...names].map((name) => [name, columnText(name, columns[name])]);
    fillSelect(this.columns, [["", `+ ${t("column")}`], ...all], "");
  }

  isPressed(condition) {
    return conditionsOf(getState("where")).includes(condition);
  }

  // Show which of the switches are on.
  press() {
    this.tokens.setAttribute("aria-pressed", String(this.isPressed(HAS_TOKENS)));
    this.regex.setAttribute("aria-pressed", String(getState("rx") === "1"));
    this.rich.setAttribute("aria-pressed", String(getState("rich") === "1"));
  }

  // Show why a search could not be answered, or that it could.
  complain(message) {
    const box = getState("where") ? this.where : this.boxes.find(([state]) => state === "grep")[1];
    box.classList.toggle("invalid", Boolean(message));
    box.title = message;
    if (message) this.summary.textContent = message;
  }
}

function labelled(text, box) {
  return el("label", { class: "field" }, el("span", { text }), box);
}

function fillSelect(select, choices, chosen) {
  const key = JSON.stringify([choices, chosen]);
  if (select.dataset.of === key) return;
  select.dataset.of = key;
  select.replaceChildren(...choices.map(([value, text]) => el("option", { value, text, selected: value === chosen })));
}

// The order that begins with the best sample that is wrong, for each column of truth values.
function bestOfFalse(columns) {
  const names = Object.keys(columns).filter((name) => columns[name].kind === "truth" && !/\s/.test(name));
  return names.map((name) => [`-reward where ${name} = false`, t("s_best_of", { n: `${name} = false` })]);
}

function columnText(name, summary) {
  if (!summary || summary.low === null)
    return summary?.names.length ? `${name} (${summary.names.slice(0, 3)}, …)` : name;
  if (summary.kind === "truth") return `${name} (true, false)`;
  return `${name} (${Number(summary.low.toPrecision(3))} … ${Number(summary.high.toPrecision(3))})`;
}
