// The table of runs: columns of one's choice, conditions, groups, a selection to compare, and a baseline.
import { MAX_SELECTED, select, selection, toggleSelection } from "../data/selection.js";
import { TableData } from "../data/table.js";
import { getList, getState, packList, setState, typeState } from "../data/url_state.js";
import { chooseColumns } from "../table/chooser.js";
import { columnTitle, columnWidth, groupNameWidth, tableCsv } from "../table/columns.js";
import { Grid } from "../table/grid.js";
import { keyOptions } from "../table/group_keys.js";
import { headCell } from "../table/header.js";
import { rowsOf, sortGroups, sortRuns } from "../table/order.js";
import { groupRow, runRow } from "../table/rows.js";
import { groupLabels, labelText } from "../text/labels.js";
import { t } from "../text/language.js";
import { controlsOf, download, el } from "../ui/dom.js";
import { throttle } from "../ui/scheduling.js";
import { showMessage } from "../ui/toast.js";
import { emptyState, selectField, stateLink } from "../ui/widgets.js";

const REFRESH_MS = 2000; // between requests while runs change
const TYPING_MS = 25;
const GROUP_WIDTH = 132; // at least, of a column with means
const MAX_JUDGED = 60; // runs in sight
const QUESTION = ["cols", "only", "pool", "hidden"]; // states that need an answer of the server

export function tableView(host, context) {
  const data = new TableData();
  const actions = { sort, resize, move, tick, fold, setBase: (base) => setState({ base }) };
  // What the rows are drawn from, found out once for all of them.
  const table = { data, columns: [], numeric: new Set(), selected: new Set(), labels: new Map(), base: "", isOpen };
  let open = new Set(); // names of the groups that are unfolded
  let rows = [];
  let shownKeys = [];
  let lastTicked = null;
  let widths = readWidths();
  let isResizing = false;
  const drawn = new Map(); // by element, the inputs that its children were made from
  const grid = new Grid(drawRow, judgeSight);
  const problem = el("p", { class: "where-problem", role: "status" });
  const where = el("input", {
    type: "search",
    id: "where",
    placeholder: t("table_where"),
    "aria-label": t("table_where"),
    value: getState("only"),
  });
  const grouping = el("span");
  const tools = el("span", { class: "table-tools" });
  const count = el("span", { class: "quiet table-count", role: "status" });
  const chosen = el("div", { class: "table-chosen" });
  const empty = el("div");
  grid.node.setAttribute("aria-label", t("table"));
  host.append(el("div", { class: "bar" }, where, grouping, tools, count), problem, chosen, grid.node, empty);

  async function read() {
    const isFirst = !data.fields.length;
    try {
      if (!(await data.fetch())) return;
      problem.textContent = "";
    } catch (error) {
      problem.textContent = error.message;
      where.classList.add("invalid");
      return;
    }
    where.classList.remove("invalid");
    if (!host.isConnected) return;
    draw();
    if (isFirst) judgeSight();
    if (data.pending) readLater();
  }

  // The doctor looks first at the runs in sight.
  async function judgeSight() {
    const [first, last] = grid.sight();
    const unjudged = rows.slice(first, last).filter((row) => row.key && data.field(row.key, "health") === null);
    const keys = unjudged.slice(0, MAX_JUDGED).map((row) => row.key);
    try {
      if (keys.length && (await data.fetch(keys))) draw();
    } catch (error) {
      context.fail(error);
    }
  }

  function draw() {
    const columns = data.columns;
    const { key, sign } = sorted();
    const place = columns.indexOf(key);
    const isShown = key === "name" || place >= 0;
    const value = place < 0 ? (one) => data.field(one, "name") : (one) => data.column(one, place);
    open = new Set(getList("open"));
    table.columns = columns;
    table.numeric = new Set(columns.filter((_, i) => isNumeric(i)));
    table.selected = new Set(selection());
    const labels = groupLabels(data.groups, (one) => data.field(one, "name"), t("no_value"));
    table.labels = new Map(data.groups.map((group, i) => [group, labels[i]]));
    table.base = data.rows.has(getState("base")) ? getState("base") : "";
    // The server's order is by age, the newest first.
    shownKeys = sortRuns(data.keys, isShown ? value : () => 0, sign, (one) => data.field(one, "pinned"));
    rows = rowsOf(isShown ? sortGroups(data.groups, place, sign) : data.groups, shownKeys, isOpen);
    if (table.base) rows = [{ key: table.base, isBase: true }, ...rows.filter((row) => row.key !== table.base)];
    drawTools();
    drawHead();
    drawChosen();
    grid.redraw(rows.length);
    empty.replaceChildren(rows.length ? "" : emptyState(data.all ? t("table_empty") : t("no_runs")));
  }

  // Only boxes and what is said about them: the rows are the same.
  function drawSelection() {
    table.selected = new Set(selection());
    drawHead();
    drawChosen();
    grid.redraw(rows.length);
  }

  function sorted() {
    const by = getState("by");
    return { key: by.replace(/^-/, ""), sign: by.startsWith("-") ? -1 : 1 };
  }

  function isNumeric(place) {
    const filled = data.keys.find((key) => (data.column(key, place) ?? null) !== null);
    return filled !== undefined && typeof data.column(filled, place) === "number";
  }

  function isOpen(group) {
    return open.has(groupName(group));
  }

  function drawTools() {
    const reading = data.pending ? ` · ${t("table_reading", { n: data.pending })}` : "";
    count.textContent = t("table_count", { n: data.keys.length, m: data.all }) + reading;
    const { varying, facts } = data.choices;
    const keys = varying.filter((key) => key !== "seed");
    const options = [
      ["", t("group_none")],
      ["seeds", t("group_seeds")],
      ["group", t("group_group")],
      ["tag", t("group_tag")],
      ...keyOptions(keys, (key) => (facts.includes(key) ? `config:${key}` : key)),
    ];
    const current = getState("pool") === "none" ? "" : getState("pool");
    redraw(grouping, [options, current], () => [
      selectField(t("group_by"), options, current, (group) => setState({ pool: group, open: "" })),
    ]);
    const choose = () =>
      chooseColumns(data.columns, data.choices, (next) => setState({ cols: next && packList(next) }));
    redraw(tools, [current, data.hidden, getState("hidden")], () => [
      current ? "" : el("button", { text: t("group_seeds_now"), onclick: () => setState({ pool: "seeds", open: "" }) }),
      el("button", { text: t("columns"), onclick: choose }),
      el("button", { text: t("export_csv"), onclick: exportCsv }),
      data.hidden ? hiddenButton() : "",
    ]);
  }

  function hiddenButton() {
    const isShown = getState("hidden") === "1";
    const text = isShown ? t("hide_again") : t("hidden_runs", { n: data.hidden });
    return el("button", { class: "link", text, onclick: () => setState({ hidden: isShown ? "" : "1" }) });
  }

  // What is selected, and where to look at it.
  function drawChosen() {
    const count = selection().length;
    const { base } = table;
    const baseline = base ? data.field(base, "name") : "";
    redraw(chosen, [count, base, baseline], () => [
      count ? el("b", { text: t("selected", { n: count }) }) : "",
      count > 1 ? stateLink({ tab: "compare" }, { class: "button", text: t("compare") }) : "",
      count ? stateLink({ tab: "charts" }, { class: "button", text: t("charts") }) : "",
      count ? el("button", { text: t("report_new_of"), onclick: () => writeReport(selection()) }) : "",
      count ? el("button", { class: "link", text: t("select_none"), onclick: () => select([]) }) : "",
      base ? el("span", { class: "baseline-note", text: t("baseline", { n: baseline }) }) : "",
      base ? el("button", { class: "link", text: t("unset_baseline"), onclick: () => actions.setBase("") }) : "",
    ]);
  }

  function drawHead() {
    const columns = ["name", ...table.columns].map((key) => {
      const title = columnTitle(key, data.choices);
      return { key, title, width: widthOf(key), isNumber: table.numeric.has(key) };
    });
    setWidths(columns.map((column) => column.width));
    redraw(grid.head, [columns, sorted()], () => {
      const cells = columns.map((column) => headCell(column, sorted(), actions));
      const label = t("select_all");
      const tickAll = el("input", { type: "checkbox", class: "tick-all", "aria-label": label, title: label });
      tickAll.addEventListener("change", () => tell(select(tickAll.checked ? shownKeys : [])));
      cells[0].prepend(tickAll);
      return cells;
    });
    const all = shownKeys.slice(0, MAX_SELECTED);
    const isAll = all.length > 0 && all.every((key) => table.selected.has(key));
    grid.head.querySelector(".tick-all").checked = isAll;
  }

  // Replace the children of an element unless they would be the same: an open list, a drag and the focus would be lost.
  function redraw(element, inputs, make) {
    const key = JSON.stringify(inputs);
    if (drawn.get(element) === key || (element === grid.head && isResizing)) return;
    drawn.set(element, key);
    const focused = controlsOf(element).indexOf(document.activeElement);
    element.replaceChildren(...make());
    if (focused >= 0) controlsOf(element)[focused]?.focus();
  }

  // The means of groups need room for their intervals.
  function widthOf(key) {
    if (key === "name" && data.groups.length) return groupNameWidth([...table.labels.values()], widths);
    const isMean = data.groups.length > 0 && table.numeric.has(key);
    return columnWidth(key, columnTitle(key, data.choices), widths, isMean ? GROUP_WIDTH : undefined);
  }

  function setWidths(wide) {
    grid.node.style.setProperty("--grid", wide.map((one) => `${one}px`).join(" "));
    grid.node.style.setProperty("--wide", `${wide.reduce((sum, one) => sum + one, 0)}px`);
  }

  // A first click shows the highest numbers, or the first texts; another one turns the order.
  function sort(key) {
    const { key: now, sign } = sorted();
    const next = now === key ? -sign : table.numeric.has(key) ? -1 : 1;
    setState({ by: next < 0 ? `-${key}` : key });
  }

  function resize(key, width, isDone) {
    isResizing = !isDone;
    widths = { ...widths, [key]: width };
    setWidths(["name", ...table.columns].map(widthOf));
    if (isDone) setState({ widths: packList(Object.entries(widths).map(([one, wide]) => `${wide} ${one}`)) }, true);
  }

  function move(key, before) {
    const others = table.columns.filter((one) => one !== key);
    others.splice(Math.max(0, others.indexOf(before)), 0, key);
    setState({ cols: packList(others) });
  }

  function drawRow(index) {
    const row = rows[index];
    return row.group ? groupRow(row.group, table, actions) : runRow(row, table, actions);
  }

  function fold(group) {
    const name = groupName(group);
    const others = getList("open").filter((one) => one !== name);
    setState({ open: packList(isOpen(group) ? others : [...others, name]) });
  }

  // Select or leave out some runs; with shift also all rows since the last tick.
  function tick(event, keys) {
    const ticked = rows.findIndex((row) => (row.group ? row.group.keys === keys : row.key === keys[0]));
    const [from, to] = [Math.min(lastTicked ?? ticked, ticked), Math.max(lastTicked ?? ticked, ticked)];
    const between = rows.slice(from, to + 1).flatMap((row) => row.group?.keys ?? [row.key]);
    tell(event.shiftKey ? select([...selection(), ...between]) : toggleSelection(keys));
    lastTicked = ticked;
  }

  function tell(leftOut) {
    if (leftOut) showMessage(t("select_most", { n: MAX_SELECTED }));
  }

  function exportCsv() {
    const heads = ["key", "name", ...table.columns];
    const values = (key) => table.columns.map((_, i) => data.column(key, i));
    const lines = shownKeys.map((key) => [key, data.field(key, "name"), ...values(key)]);
    download("runs.csv", new Blob([tableCsv(heads, lines)], { type: "text/csv" }));
  }

  const readSoon = throttle(TYPING_MS, read);
  const readLater = throttle(REFRESH_MS, read);
  where.addEventListener("input", () => typeState("only", where.value));
  read();
  return {
    listed: readLater,
    changed(changed) {
      if (where.value !== getState("only")) where.value = getState("only");
      if (changed.includes("widths")) widths = readWidths();
      if (changed.some((name) => QUESTION.includes(name))) (changed.includes("only") ? readSoon : read)();
      else if (!data.fields.length) return;
      else if (changed.every((name) => ["run", "with"].includes(name))) drawSelection();
      else draw();
    },
    destroy: () => grid.destroy(),
  };
}

async function writeReport(keys) {
  (await import("../notes/new_report.js")).beginReport(keys);
}

// The name of a group in the URL.
function groupName(group) {
  return labelText(group) || group.keys[0];
}

// The widths that were changed, by column.
function readWidths() {
  const pairs = getList("widths").map((one) => /^(\d+) (.+)$/s.exec(one));
  return Object.fromEntries(pairs.filter(Boolean).map(([, width, key]) => [key, Number(width)]));
}
