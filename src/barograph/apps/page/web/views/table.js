// The table of runs: columns of one's choice, conditions, groups, a selection to compare, and a baseline.
import { MAX_SELECTED, select, selection, toggleSelection } from "../data/selection.js";
import { TableData } from "../data/table.js";
import { getList, getState, packList, setState, typeState } from "../data/url_state.js";
import { columnTitle, columnWidth, groupNameWidth, tableCsv } from "../table/columns.js";
import { Grid } from "../table/grid.js";
import { headCell, tickAll } from "../table/header.js";
import { rowsOf, sortGroups, sortRuns } from "../table/order.js";
import { groupRow, runRow } from "../table/rows.js";
import { chosenTools, groupingField, tableTools } from "../table/tools.js";
import { groupLabels, labelText } from "../text/labels.js";
import { t } from "../text/language.js";
import { download, el } from "../ui/dom.js";
import { html, render, repeat } from "../ui/html.js";
import { throttle } from "../ui/scheduling.js";
import { showMessage } from "../ui/toast.js";
import { emptyState } from "../ui/widgets.js";

const REFRESH_MS = 2000; // between requests while runs change
const TYPING_MS = 25;
const GROUP_WIDTH = 132; // at least, of a column with means
const MAX_JUDGED = 60; // runs in sight
const QUESTION = ["cols", "only", "pool", "hidden"]; // states that need an answer of the server

export const tableView = (host, context) => new TableView(host, context);

class TableView {
  constructor(host, context) {
    this.host = host;
    this.context = context;
    this.data = new TableData();
    // What the rows are drawn from, found out once for all of them.
    this.table = { data: this.data, columns: [], numeric: new Set(), selected: new Set(), labels: new Map(), base: "" };
    this.table.isOpen = (group) => this.open.has(groupName(group));
    this.open = new Set(); // names of the groups that are unfolded
    this.rows = [];
    this.shownKeys = [];
    this.lastTicked = null;
    this.widths = readWidths();
    this.grid = new Grid(
      (index) => this.drawRow(index),
      () => this.judgeSight(),
    );
    this.build();
    this.listed = throttle(REFRESH_MS, () => this.read());
    this.readSoon = throttle(TYPING_MS, () => this.read());
    this.read();
  }

  build() {
    this.problem = el("p", { class: "where-problem", role: "status" });
    this.where = el("input", {
      type: "search",
      id: "where",
      placeholder: t("table_where"),
      "aria-label": t("table_where"),
      value: getState("only"),
      oninput: () => typeState("only", this.where.value),
    });
    this.grouping = el("span");
    this.tools = el("span", { class: "table-tools" });
    this.count = el("span", { class: "quiet table-count", role: "status" });
    this.chosen = el("div", { class: "table-chosen" });
    this.empty = el("div");
    this.grid.node.setAttribute("aria-label", t("table"));
    const bar = el("div", { class: "bar" }, this.where, this.grouping, this.tools, this.count);
    this.host.append(bar, this.problem, this.chosen, this.grid.node, this.empty);
  }

  async read() {
    const isFirst = !this.data.fields.length;
    try {
      if (!(await this.data.fetch())) return;
      this.problem.textContent = "";
    } catch (error) {
      this.problem.textContent = error.message;
      this.where.classList.add("invalid");
      return;
    }
    this.where.classList.remove("invalid");
    if (!this.host.isConnected) return;
    this.draw();
    if (isFirst) this.judgeSight();
    if (this.data.pending) this.listed();
  }

  // The doctor looks first at the runs in sight.
  async judgeSight() {
    const [first, last] = this.grid.sight();
    const isUnjudged = (row) => row.key && this.data.field(row.key, "health") === null;
    const unjudged = this.rows.slice(first, last).filter(isUnjudged);
    const keys = unjudged.slice(0, MAX_JUDGED).map((row) => row.key);
    try {
      if (keys.length && (await this.data.fetch(keys))) this.draw();
    } catch (error) {
      this.context.fail(error);
    }
  }

  draw() {
    const { data, table } = this;
    this.open = new Set(getList("open"));
    table.columns = data.columns;
    table.numeric = new Set(data.columns.filter((_, place) => isNumeric(data, place)));
    const labels = groupLabels(data.groups, (one) => data.field(one, "name"), t("no_value"));
    table.labels = new Map(data.groups.map((group, i) => [group, labels[i]]));
    table.base = data.rows.has(getState("base")) ? getState("base") : "";
    this.orderRows();
    this.drawTools();
    this.drawSelection();
    this.empty.replaceChildren(this.rows.length ? "" : emptyState(data.all ? t("table_empty") : t("no_runs")));
  }

  orderRows() {
    const { data, table } = this;
    const { key, sign } = sorted();
    const place = data.columns.indexOf(key);
    const isShown = key === "name" || place >= 0;
    const value = place < 0 ? (one) => data.field(one, "name") : (one) => data.column(one, place);
    // The server's order is by age, the newest first.
    this.shownKeys = sortRuns(data.keys, isShown ? value : () => 0, sign, (one) => data.field(one, "pinned"));
    const groups = isShown ? sortGroups(data.groups, place, sign) : data.groups;
    const rows = rowsOf(groups, this.shownKeys, table.isOpen);
    const { base } = table;
    this.rows = base ? [{ key: base, isBase: true }, ...rows.filter((row) => row.key !== base)] : rows;
  }

  // Only boxes and what is said about them: the rows are the same.
  drawSelection() {
    const { data, table } = this;
    table.selected = new Set(selection());
    this.drawHead();
    render(chosenTools(table.base, table.base && data.field(table.base, "name")), this.chosen);
    this.grid.redraw(this.rows.length);
  }

  drawTools() {
    const { data } = this;
    const reading = data.pending ? ` · ${t("table_reading", { n: data.pending })}` : "";
    this.count.textContent = t("table_count", { n: data.keys.length, m: data.all }) + reading;
    render(groupingField(data.choices), this.grouping);
    render(
      tableTools(data, () => this.exportCsv()),
      this.tools,
    );
  }

  drawHead() {
    const { table, shownKeys } = this;
    const columns = ["name", ...table.columns].map((key) => {
      const title = columnTitle(key, this.data.choices);
      return { key, title, width: this.widthOf(key), isNumber: table.numeric.has(key) };
    });
    this.setWidths(columns.map((column) => column.width));
    const all = tickAll((isOn) => tell(select(isOn ? shownKeys : [])));
    const cell = (column, i) => headCell(column, sorted(), this, i ? "" : all);
    render(html`${repeat(columns, (column) => column.key, cell)}`, this.grid.head);
    const most = shownKeys.slice(0, MAX_SELECTED);
    const isAll = most.length > 0 && most.every((key) => table.selected.has(key));
    /** @type {HTMLInputElement} */ (this.grid.head.querySelector(".tick-all")).checked = isAll;
  }

  // The means of groups need room for their intervals.
  widthOf(key) {
    const { data, table, widths } = this;
    if (key === "name" && data.groups.length) return groupNameWidth([...table.labels.values()], widths);
    const isMean = data.groups.length > 0 && table.numeric.has(key);
    return columnWidth(key, columnTitle(key, data.choices), widths, isMean ? GROUP_WIDTH : undefined);
  }

  setWidths(wide) {
    this.grid.node.style.setProperty("--grid", wide.map((one) => `${one}px`).join(" "));
    this.grid.node.style.setProperty("--wide", `${wide.reduce((sum, one) => sum + one, 0)}px`);
  }

  // A first click shows the highest numbers, or the first texts; another one turns the order.
  sort(key) {
    const { key: now, sign } = sorted();
    const next = now === key ? -sign : this.table.numeric.has(key) ? -1 : 1;
    setState({ by: next < 0 ? `-${key}` : key });
  }

  resize(key, width, isDone) {
    this.widths = { ...this.widths, [key]: width };
    this.setWidths(["name", ...this.table.columns].map((one) => this.widthOf(one)));
    const widths = packList(Object.entries(this.widths).map(([one, wide]) => `${wide} ${one}`));
    if (isDone) setState({ widths }, true);
  }

  move(key, before) {
    const others = this.table.columns.filter((one) => one !== key);
    others.splice(Math.max(0, others.indexOf(before)), 0, key);
    setState({ cols: packList(others) });
  }

  drawRow(index) {
    const row = this.rows[index];
    return row.group ? groupRow(row.group, this.table, this) : runRow(row, this.table, this);
  }

  fold(group) {
    const name = groupName(group);
    const others = getList("open").filter((one) => one !== name);
    setState({ open: packList(this.open.has(name) ? others : [...others, name]) });
  }

  setBase(base) {
    setState({ base });
  }

  // Select or leave out some runs; with shift also all rows since the last tick.
  tick(event, keys) {
    const { rows, lastTicked } = this;
    const ticked = rows.findIndex((row) => (row.group ? row.group.keys === keys : row.key === keys[0]));
    const [from, to] = [Math.min(lastTicked ?? ticked, ticked), Math.max(lastTicked ?? ticked, ticked)];
    const between = rows.slice(from, to + 1).flatMap((row) => row.group?.keys ?? [row.key]);
    tell(event.shiftKey ? select([...selection(), ...between]) : toggleSelection(keys));
    this.lastTicked = ticked;
  }

  exportCsv() {
    const { data, table } = this;
    const heads = ["key", "name", ...table.columns];
    const values = (key) => table.columns.map((_, i) => data.column(key, i));
    const lines = this.shownKeys.map((key) => [key, data.field(key, "name"), ...values(key)]);
    download("runs.csv", new Blob([tableCsv(heads, lines)], { type: "text/csv" }));
  }

  changed(names) {
    if (this.where.value !== getState("only")) this.where.value = getState("only");
    if (names.includes("widths")) this.widths = readWidths();
    if (names.some((name) => QUESTION.includes(name))) names.includes("only") ? this.readSoon() : this.read();
    else if (!this.data.fields.length) return;
    else if (names.every((name) => ["run", "with"].includes(name))) this.drawSelection();
    else this.draw();
  }

  destroy() {
    this.grid.destroy();
  }
}

function sorted() {
  const by = getState("by");
  return { key: by.replace(/^-/, ""), sign: by.startsWith("-") ? -1 : 1 };
}

function isNumeric(data, place) {
  const filled = data.keys.find((key) => (data.column(key, place) ?? null) !== null);
  return filled !== undefined && typeof data.column(filled, place) === "number";
}

function tell(leftOut) {
  if (leftOut) showMessage(t("select_most", { n: MAX_SELECTED }));
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
