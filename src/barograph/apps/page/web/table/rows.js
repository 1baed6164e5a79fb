// The rows of the table: runs and groups of runs, as elements. Thousands of them come into sight: each is made quickly.
import { colourOf } from "../data/colours.js";
import { openMenu } from "../run_menu.js";
import { labelText } from "../text/labels.js";
import { localized, t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { cutMiddle } from "../ui/cut_text.js";
import { el, ICONS, icon } from "../ui/dom.js";
import { SYMBOLS, stateLink, statusDot } from "../ui/widgets.js";
import { differenceText, isComparable, meanText, valueText } from "./columns.js";

// `table` is {data, columns, numeric, selected, base, isOpen(group)}; `actions` are tick(event, keys), fold(group) and
// setBase(key).
export function runRow({ key, inside, isBase }, table, actions) {
  const of = (name) => table.data.field(key, name);
  const name = of("name");
  const link = stateLink({ tab: "", run: key, with: "" }, { class: "table-name", "aria-label": name }, cutMiddle(name));
  const work = (event) => openMenu(event.currentTarget, table.data.run(key), [baselineItem(key, table, actions)]);
  const label = `${t("menu")}: ${name}`;
  const more = el("button", {
    class: "ghost more",
    text: "⋯",
    "aria-label": label,
    "aria-haspopup": "menu",
    onclick: work,
  });
  const look = `${of("hidden") ? " hidden-run" : ""}${isBase ? " base-row" : ""}`;
  return el(
    "div",
    { class: `grid-row${look}`, role: "row", "data-key": key },
    el(
      "div",
      { class: `grid-cell name-cell${inside ? " inside" : ""}`, role: "cell" },
      tickBox([key], name, table, actions),
      of("pinned") ? icon(ICONS.pin) : null,
      link,
      of("note") ? el("span", { class: "quiet table-note", text: of("note") }) : null,
      more,
    ),
    table.columns.map((column, i) => runCell(key, column, i, table)),
  );
}

function baselineItem(key, { base }, actions) {
  return [base === key ? t("unset_baseline") : t("set_baseline"), () => actions.setBase(base === key ? "" : key)];
}

function runCell(key, column, place, { data, numeric, base }) {
  const value = data.column(key, place);
  const other = base && base !== key ? data.column(base, place) : undefined;
  const difference = other === undefined ? "" : differenceText(column, value, other);
  const isOther = other !== undefined && !difference && isComparable(column) && String(other) !== String(value);
  const cell = el("div", {
    class: `grid-cell${numeric.has(column) ? " number" : ""}${isOther ? " differs" : ""}`,
    role: "cell",
  });
  cell.append(...cellContent(key, column, value, data));
  if (difference) cell.append(el("span", { class: "quiet difference", text: difference }));
  return cell;
}

function cellContent(key, column, value, data) {
  const text = valueText(column, value);
  if (column === "status") return [statusDot(value), text];
  if (column !== "health" || !value) return [text];
  const finding = data.field(key, "finding");
  const about = finding ? `${localized(finding.title)} · ${t("since_step", { n: finding.onset })}` : text;
  return [healthSign(value), el("span", { class: "cell-text", text: about })];
}

function healthSign(word) {
  return el("span", { class: `health ${word}`, text: SYMBOLS[word], "aria-hidden": "true" });
}

export function groupRow(group, table, actions) {
  const label = table.labels.get(group);
  const isOpen = table.isOpen(group);
  const fold = el("button", {
    class: "ghost unfold",
    text: isOpen ? "▾" : "▸",
    "aria-expanded": isOpen,
    "aria-label": `${t("unfold")}: ${label}`,
    onclick: () => actions.fold(group),
  });
  const isSeeds = group.seeds === group.keys.length;
  const size = t(isSeeds ? "n_seeds" : "n_runs", { n: group.keys.length });
  return el(
    "div",
    { class: "grid-row group-row", role: "row" },
    el(
      "div",
      { class: "grid-cell name-cell", role: "cell" },
      tickBox(group.keys, label, table, actions),
      fold,
      el("span", { class: "group-label", title: labelText(group, t("no_value")) }, cutMiddle(label)),
      el("span", { class: "quiet", text: size }),
    ),
    table.columns.map((column, i) => groupCell(column, group, group.values[i], table)),
  );
}

// A group is as sick as the sickest of its runs: how many are, and what the first of them has.
function sickRuns(group, data) {
  for (const word of ["bad", "watch"]) {
    const sick = group.keys.filter((key) => data.field(key, "health") === word);
    if (!sick.length) continue;
    const finding = data.field(sick[0], "finding");
    const count = t("n_of_group", { n: sick.length, m: group.keys.length });
    const about = finding ? `${count} · ${localized(finding.title)}` : `${count} · ${t(`health_${word}`)}`;
    return [healthSign(word), el("span", { class: "cell-text", text: about })];
  }
  return null;
}

function groupCell(column, group, value, { data, numeric }) {
  const sick = column === "health" ? sickRuns(group, data) : null;
  if (sick) return el("div", { class: "grid-cell", role: "cell" }, sick);
  const text = value?.mean
    ? meanText(column, value.mean)
    : (value?.same ?? null) === null
      ? ""
      : valueText(column, value.same);
  return el("div", { class: `grid-cell${numeric.has(column) ? " number" : ""}`, role: "cell", text });
}

function tickBox(keys, label, { selected }, actions) {
  const isSelected = keys.every((key) => selected.has(key));
  return el("input", {
    type: "checkbox",
    "aria-label": `${t("select_run")}: ${label}`,
    checked: isSelected,
    style: isSelected && keys.length === 1 ? { "accent-color": seriesColour(colourOf(keys[0])) } : {},
    onclick: (event) => actions.tick(event, keys),
  });
}
