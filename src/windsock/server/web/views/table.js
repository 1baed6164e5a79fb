// The table of runs: columns of one's choice, conditions, groups, a selection to compare, and a baseline.
import { fetchJson } from "../data/api.js";
import { colourOf } from "../data/colours.js";
import { MAX_SELECTED, select, selection, toggleSelection } from "../data/selection.js";
import { TableData } from "../data/table.js";
import { getList, getState, packList, setState } from "../data/url_state.js";
import { openMenu } from "../run_menu.js";
import { chooseColumns } from "../table/chooser.js";
import {
  columnTitle,
  columnWidth,
  defaultColumns,
  differenceText,
  meanText,
  tableCsv,
  valueText,
} from "../table/columns.js";
import { Grid } from "../table/grid.js";
import { headCell } from "../table/header.js";
import { labelText, rowsOf, sortGroups, sortRuns } from "../table/order.js";
import { localized, t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { cutMiddle } from "../ui/cut_text.js";
import { download, el, ICONS, icon } from "../ui/dom.js";
import { debounce, throttle } from "../ui/scheduling.js";
import { showMessage } from "../ui/toast.js";
import { emptyState, SYMBOLS, selectField, stateLink, statusDot } from "../ui/widgets.js";

const REFRESH_MS = 2000; // between requests while runs change
const QUESTION = ["cols", "where", "group", "hidden"]; // states that need an answer of the server

export function tableView(host, context) {
  const data = new TableData();
  let choices = null;
  let rows = [];
  let shownKeys = [];
  let numeric = new Set(); // columns of numbers
  let lastTicked = null;
  let widths = readWidths();
  const grid = new Grid(drawRow, () => judgeSight());
  const problem = el("p", { class: "where-problem", role: "status" });
  const where = el("input", {
    type: "search",
    id: "where",
    placeholder: t("table_where"),
    "aria-label": t("table_where"),
    value: getState("where"),
  });
  const grouping = el("span");
  const tools = el("span", { class: "table-tools" });
  const count = el("span", { class: "quiet table-count", role: "status" });
  const chosen = el("div", { class: "table-chosen" });
  const empty = el("div");
  host.append(el("div", { class: "bar" }, where, grouping, tools, count), problem, chosen, grid.node, empty);

  const columns = () => (getState("cols") ? getList("cols") : defaultColumns(choices));
  const isOpen = (group) => getList("open").includes(labelText(group) || group.keys[0]);
  const question = () => ({
    column: columns(),
    where: getState("where"),
    group: getList("group").filter((one) => one !== "none"),
    hidden: Number(getState("hidden") === "1"),
  });

  async function read() {
    const isFirst = !data.fields.length;
    try {
      if (!choices || !getState("cols")) choices = await fetchJson("/api/columns");
      if (!(await data.fetch(question(), []))) return;
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
    if (!unjudged.length) return;
    try {
      if (
        await data.fetch(
          question(),
          unjudged.slice(0, 60).map((row) => row.key),
        )
      )
        draw();
    } catch (error) {
      context.fail(error);
    }
  }

  function sorted() {
    const by = getState("by") || "-began";
    return { key: by.replace(/^-/, ""), sign: by.startsWith("-") ? -1 : 1 };
  }

  function valueIn(key, column) {
    const place = columns().indexOf(column);
    return place < 0 ? data.field(key, column) : data.column(key, place);
  }

  function draw() {
    numeric = new Set(columns().filter(isNumber));
    const { key, sign } = sorted();
    const isShown = key === "name" || columns().includes(key);
    // The server's order is by age, the newest first, which is a column only where it is chosen.
    const keys = key === "began" && !isShown && sign > 0 ? [...data.keys].reverse() : data.keys;
    shownKeys = sortRuns(keys, isShown ? (one) => valueIn(one, key) : () => 0, sign, (one) =>
      data.field(one, "pinned"),
    );
    const groups = isShown ? sortGroups(data.groups, columns().indexOf(key), sign) : data.groups;
    rows = rowsOf(groups, shownKeys, isOpen);
    const base = getState("base");
    if (base && data.rows.has(base)) rows = [{ key: base, isBase: true }, ...rows.filter((row) => row.key !== base)];
    drawTools();
    drawHead();
    drawChosen();
    grid.redraw(rows.length);
    empty.replaceChildren(rows.length ? "" : emptyState(data.all ? t("table_empty") : t("no_runs")));
  }

  function drawTools() {
    count.textContent = [
      t("table_count", { n: data.keys.length, m: data.all }),
      data.pending ? t("table_reading", { n: data.pending }) : "",
    ]
      .filter(Boolean)
      .join(" · ");
    const keys = choices.varying.filter((key) => key !== "seed");
    const options = [
      ["", t("group_none")],
      ["seeds", t("group_seeds")],
      ["group", t("group_group")],
      ["tag", t("group_tag")],
      ...keys.map((key) => [packList([choices.facts.includes(key) ? `config:${key}` : key]), key]),
    ];
    const current = getState("group") === "none" ? "" : getState("group");
    if (current && !options.some(([value]) => value === current)) options.push([current, getList("group").join(", ")]);
    grouping.replaceChildren(selectField(t("group_by"), options, current, (group) => setState({ group, open: "" })));
    const button = (text, work, extra = {}) => el("button", { text, onclick: work, ...extra });
    const toggleHidden = () => setState({ hidden: getState("hidden") === "1" ? "" : "1" });
    tools.replaceChildren(
      button(t("columns"), () =>
        chooseColumns(columns(), choices, (next) => setState({ cols: next && packList(next) })),
      ),
      button(t("export_csv"), exportCsv),
      data.hidden
        ? button(getState("hidden") === "1" ? t("hide_again") : t("hidden_runs", { n: data.hidden }), toggleHidden, {
            class: "link",
          })
        : "",
    );
  }

  // What is selected, and where to look at it.
  function drawChosen() {
    const keys = selection();
    const base = getState("base");
    chosen.replaceChildren(
      keys.length ? el("b", { text: t("selected", { n: keys.length }) }) : "",
      keys.length > 1 ? stateLink({ tab: "compare" }, { class: "button", text: t("compare") }) : "",
      keys.length ? stateLink({ tab: "charts" }, { class: "button", text: t("charts") }) : "",
      keys.length ? el("button", { class: "link", text: t("select_none"), onclick: () => select([]) }) : "",
      base ? el("span", { class: "baseline-note", text: t("baseline", { n: data.field(base, "name") ?? base }) }) : "",
      base ? el("button", { class: "link", text: t("unset_baseline"), onclick: () => setState({ base: "" }) }) : "",
    );
  }

  function drawHead() {
    const shown = columns();
    const wide = ["name", ...shown].map(widthOf);
    setWidths(wide);
    const all = shownKeys.slice(0, MAX_SELECTED);
    const tick = el("input", {
      type: "checkbox",
      "aria-label": t("select_all"),
      title: t("select_all"),
      checked: all.length > 0 && all.every((key) => selection().includes(key)),
      onchange: () => tell(tick.checked ? select(shownKeys) : select([])),
    });
    const cells = ["name", ...shown].map((key, i) =>
      headCell({ key, title: columnTitle(key, choices), width: wide[i], isNumber: numeric.has(key) }, sorted(), {
        sort,
        resize,
        move,
      }),
    );
    cells[0].prepend(tick);
    grid.head.replaceChildren(...cells);
  }

  function widthOf(key) {
    return columnWidth(key, columnTitle(key, choices), widths);
  }

  function setWidths(wide) {
    grid.node.style.setProperty("--grid", wide.map((one) => `${one}px`).join(" "));
    grid.node.style.setProperty("--wide", `${wide.reduce((sum, one) => sum + one, 0)}px`);
  }

  // A first click shows the highest numbers, or the first texts; another one turns the order.
  function sort(key) {
    const { key: now, sign } = sorted();
    const first = numeric.has(key) ? -1 : 1;
    const next = now === key ? -sign : first;
    setState({ by: next < 0 ? `-${key}` : key });
  }

  function isNumber(key) {
    const filled = data.keys.find((one) => ![null, undefined].includes(valueIn(one, key)));
    return filled !== undefined && typeof valueIn(filled, key) === "number";
  }

  function resize(key, width, isDone) {
    widths = { ...widths, [key]: width };
    setWidths(["name", ...columns()].map(widthOf));
    if (isDone) setState({ widths: packList(Object.entries(widths).map(([one, wide]) => `${wide} ${one}`)) }, true);
  }

  function move(key, before) {
    const others = columns().filter((one) => one !== key);
    others.splice(Math.max(0, others.indexOf(before)), 0, key);
    setState({ cols: packList(others) });
  }

  function drawRow(index) {
    const row = rows[index];
    return row.group ? groupRow(row.group) : runRow(row);
  }

  function groupRow(group) {
    const label = labelText(group, t("no_value")) || data.field(group.keys[0], "name");
    const open = isOpen(group);
    const size = group.keys.length === 1 ? t("one_run") : t("n_runs", { n: group.keys.length });
    const number = group.seeds === group.keys.length && group.seeds > 1 ? t("n_seeds", { n: group.seeds }) : size;
    const name = labelText(group) || group.keys[0];
    const fold = () => {
      const others = getList("open").filter((one) => one !== name);
      setState({ open: packList(open ? others : [...others, name]) });
    };
    return el(
      "div",
      { class: "grid-row group-row", role: "row" },
      el(
        "div",
        { class: "grid-cell name-cell", role: "cell" },
        tickBox(group.keys, label),
        el(
          "button",
          { class: "ghost fold", "aria-expanded": open, "aria-label": `${t("unfold")}: ${label}`, onclick: fold },
          open ? "▾" : "▸",
        ),
        el("span", { class: "group-label", title: label }, cutMiddle(label)),
        el("span", { class: "quiet", text: number }),
      ),
      columns().map((key, i) => groupCell(key, group.values[i])),
    );
  }

  function groupCell(key, value) {
    const isMean = value?.mean !== undefined;
    const text = isMean ? meanText(key, value.mean) : value && value.same !== null ? valueText(key, value.same) : "";
    const title = isMean && value.mean[1] !== null ? `${value.mean[1]} – ${value.mean[2]}` : text;
    return el("div", { class: `grid-cell ${numeric.has(key) ? "number" : ""}`, role: "cell", text, title });
  }

  function tickBox(keys, label) {
    const now = selection();
    const colour = keys.length === 1 ? seriesColour(colourOf(keys[0])) : "var(--ink)";
    const box = el("input", {
      type: "checkbox",
      "aria-label": `${t("select_run")}: ${label}`,
      checked: keys.every((key) => now.includes(key)),
      style: { "accent-color": colour },
    });
    box.addEventListener("click", (event) => {
      const ticked = rows.findIndex((row) => (row.group ? row.group.keys[0] : row.key) === keys[0] && !row.inside);
      tell(event.shiftKey && lastTicked !== null ? tickRange(lastTicked, ticked) : toggleSelection(keys));
      lastTicked = ticked;
    });
    return box;
  }

  // Select all rows between two that were ticked one after the other.
  function tickRange(from, to) {
    const between = rows.slice(Math.min(from, to), Math.max(from, to) + 1);
    return select([...selection(), ...between.flatMap((row) => row.group?.keys ?? [row.key])]);
  }

  function tell(leftOut) {
    if (leftOut) showMessage(t("select_most", { n: MAX_SELECTED }));
  }

  function runRow({ key, inside, isBase }) {
    const of = (name) => data.field(key, name);
    const name = stateLink(
      { tab: "", run: key, with: "" },
      { class: "table-name", title: of("name"), "aria-label": of("name") },
      cutMiddle(of("name")),
    );
    const more = el(
      "button",
      {
        class: "ghost more",
        "aria-label": `${t("menu")}: ${of("name")}`,
        "aria-haspopup": "menu",
        onclick: (event) => openMenu(event.currentTarget, data.run(key), [baselineItem(key)]),
      },
      icon(ICONS.more),
    );
    return el(
      "div",
      {
        class: `grid-row${of("hidden") ? " hidden-run" : ""}${isBase ? " base-row" : ""}`,
        role: "row",
        "data-key": key,
      },
      el(
        "div",
        { class: `grid-cell name-cell${inside ? " inside" : ""}`, role: "cell" },
        tickBox([key], of("name")),
        of("pinned") ? icon(ICONS.pin) : null,
        name,
        of("note") ? el("span", { class: "quiet table-note", text: of("note"), title: of("note") }) : null,
        more,
      ),
      columns().map((column, i) => runCell(key, column, data.column(key, i), i)),
    );
  }

  function baselineItem(key) {
    const isBase = getState("base") === key;
    return [isBase ? t("unset_baseline") : t("set_baseline"), () => setState({ base: isBase ? "" : key })];
  }

  function runCell(key, column, value, place) {
    const base = getState("base");
    const other = base && base !== key && data.rows.has(base) ? data.column(base, place) : undefined;
    const difference = other === undefined ? "" : differenceText(value, other);
    const isOther = other !== undefined && !difference && String(other) !== String(value);
    return el(
      "div",
      {
        class: `grid-cell ${numeric.has(column) ? "number" : ""}${isOther ? " differs" : ""}`,
        role: "cell",
        title: typeof value === "number" ? String(value) : valueText(column, value),
      },
      cellContent(key, column, value),
      difference ? el("span", { class: "quiet difference", text: difference }) : null,
    );
  }

  function cellContent(key, column, value) {
    const text = el("span", { class: "cell-text", text: valueText(column, value) });
    if (column === "status") return [statusDot(value), text];
    if (column !== "health" || !value) return text;
    const finding = data.field(key, "finding");
    if (finding) text.textContent = `${localized(finding.title)} · ${t("since_step", { n: finding.onset })}`;
    return [el("span", { class: `health ${value}`, text: SYMBOLS[value], "aria-hidden": "true" }), text];
  }

  function exportCsv() {
    const shown = columns();
    const heads = ["key", "name", ...shown];
    const lines = shownKeys.map((key) => [key, data.field(key, "name"), ...shown.map((_, i) => data.column(key, i))]);
    download("runs.csv", new Blob([tableCsv(heads, lines)], { type: "text/csv" }));
  }

  const readSoon = debounce(25, read);
  const readLater = throttle(REFRESH_MS, read);
  where.addEventListener("input", () => setState({ where: where.value }, true));
  grid.node.setAttribute("aria-label", t("table"));
  read();
  return {
    listed: readLater,
    changed(changed) {
      if (where.value !== getState("where")) where.value = getState("where");
      if (changed.includes("widths")) widths = readWidths();
      if (!choices) return;
      if (changed.some((name) => QUESTION.includes(name))) (changed.includes("where") ? readSoon : read)();
      else if (data.fields.length) draw();
    },
    destroy: () => grid.destroy(),
  };
}

// The widths that were changed, by column.
function readWidths() {
  const pairs = getList("widths").map((one) => /^(\d+) (.+)$/s.exec(one));
  return Object.fromEntries(pairs.filter(Boolean).map(([, width, key]) => [key, Number(width)]));
}
