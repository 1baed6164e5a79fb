// Reports that people write: the list of them, and one with its notes, charts and tables, which can be changed in place.
import { restyleAll } from "../charts/plot.js";
import { report } from "../data/report.js";
import { fetchFile, fetchReports, fetchWritten, saveReport } from "../data/reports.js";
import { selection } from "../data/selection.js";
import { getState, setState } from "../data/url_state.js";
import { Legend, ReportCards, reportCard } from "../notes/cards.js";
import { editChart, editRuns } from "../notes/forms.js";
import { askName, attempt, beginReport } from "../notes/new_report.js";
import { focusEditor, noteEditor, noteNode } from "../notes/note.js";
import { runsTable } from "../notes/runs_table.js";
import { joinSources } from "../notes/source.js";
import { loadParsers } from "../samples/rich_text.js";
import { dateText, localized, t } from "../text/language.js";
import { applyTheme, isDark } from "../theme.js";
import { download, el, ICONS, icon } from "../ui/dom.js";
import { menuItem, openMenuAt } from "../ui/menu.js";
import { throttle } from "../ui/scheduling.js";
import { offerUndo } from "../ui/toast.js";
import { emptyState, stateLink } from "../ui/widgets.js";

const unfinished = new Map(); // by report, what was being typed when another view was opened
const LIVE_MS = 5000; // between readings of the tables while runs go on

export function writtenView(host, context) {
  return report || getState("report") ? oneReport(host, context) : listOfReports(host, context);
}

function listOfReports(host, context) {
  const rows = el("div", { class: "report-list" });
  const begin = el("button", {
    class: "primary",
    text: `+ ${t("report_new")}`,
    onclick: () => beginReport(selection()),
  });
  host.append(
    el("div", { class: "bar" }, el("h1", { class: "bar-title", text: t("report") }), begin),
    el("p", { class: "quiet report-intro", text: t("reports_what") }),
    rows,
  );

  async function read() {
    try {
      const all = await fetchReports();
      rows.replaceChildren(...(all.length ? all.map(row) : [emptyState(t("reports_none"))]));
    } catch (problem) {
      context.fail(problem);
    }
  }

  function row({ name, saved }) {
    return el(
      "div",
      { class: "card report-row" },
      stateLink({ report: name }, { class: "report-name", text: name }),
      el("span", {
        class: "quiet",
        text: t("report_saved", { d: dateText(saved) }),
      }),
      el("button", {
        class: "ghost",
        "aria-label": `${t("report_delete")}: ${name}`,
        text: t("report_delete"),
        onclick: () => attempt(() => deleteReport(name, read)),
      }),
    );
  }

  document.title = `${t("report")} · barograph`;
  read();
  return {
    changed: (names) => names.includes("report") && context.rerender(),
  };
}

async function deleteReport(name, after) {
  const text = await saveReport(name, null);
  await after();
  offerUndo(t("report_deleted", { n: name }), async () => {
    await saveReport(name, text);
    await after();
  });
}

function oneReport(host, context) {
  const name = getState("report");
  const cards = new ReportCards();
  const page = el("article", { class: "written" });
  let data = null;
  let legend = null;
  // What is in the field: the note at a place, {place, isNew, text}, or the whole text, {isWhole}.
  let editing = unfinished.get(name) ?? null;

  async function read() {
    try {
      [data] = await Promise.all([fetchWritten({ name }, context.chosen), loadParsers()]);
    } catch (problem) {
      if (data) return context.fail(problem);
      const reason = problem.status === 404 ? t("report_missing", { n: name }) : problem.message;
      const empty = emptyState(reason);
      empty.append(el("p", {}, allReports()));
      return host.replaceChildren(empty);
    }
    if (host.isConnected) draw();
  }

  function draw() {
    legend = new Legend(data);
    const made = editing?.isWhole ? [] : drawBlocks();
    if (editing?.isWhole) page.replaceChildren(wholeField());
    if (!host.firstChild) host.append(toolbar(), page);
    document.title = `${data.title || name} · barograph`;
    cards.setCards(made);
    focusEditor(page);
  }

  // Draw all notes, charts and tables; return the cards of the charts.
  function drawBlocks() {
    const made = [];
    const nodes = data.blocks.map((block, place) => {
      const card = block.charts?.length ? reportCard(block, place, legend, data.metrics, cards) : null;
      if (card) made.push(card);
      return blockNode(block, place, card);
    });
    if (editing?.isNew) nodes.splice(editing.place, 0, noteField("", editing.place));
    if (!nodes.length) nodes.push(emptyState(t("report_empty")));
    page.replaceChildren(...nodes, ...(report ? [] : [addBar()]));
    return made;
  }

  function blockNode(block, place, card) {
    if (editing?.isNew === false && editing.place === place) return noteField(block.source, place);
    const problems = block.problems.map((text) => el("p", { class: "notice", role: "status", text: localized(text) }));
    const content = {
      note: () => noteNode(block.source),
      chart: () => card?.node,
      runs: () => runsTable(block, legend, data),
    }[block.kind]();
    const size = block.kind === "chart" ? (block.panel.size ?? "normal") : "full";
    return el(
      "section",
      { class: `block ${block.kind}-block ${size}` },
      report ? null : blockTools(block, place),
      content,
      problems,
    );
  }

  function blockTools(block, place) {
    const count = data.blocks.length;
    const tool = (path, label, work, isOff = false) =>
      el("button", { class: "ghost", title: label, "aria-label": label, disabled: isOff, onclick: work }, icon(path));
    const add = (event) => openAddMenu(event.currentTarget, place + 1);
    return el(
      "div",
      { class: "block-tools", role: "toolbar", "aria-label": t(`block_${block.kind}`) },
      tool(ICONS.edit, t("block_edit"), () => edit(block, place)),
      tool(ICONS.up, t("block_up"), () => move(place, -1), place === 0),
      tool(ICONS.down, t("block_down"), () => move(place, 1), place === count - 1),
      tool(ICONS.plus, t("block_add"), add),
      tool(ICONS.close, t("remove"), () => change(place, 1)),
    );
  }

  function edit(block, place) {
    if (block.kind !== "note") return openForm(block.kind, block, (source) => change(place, 1, source));
    reopen({ place, isNew: false });
  }

  function openForm(kind, block, done) {
    attempt(() => (kind === "chart" ? editChart : editRuns)(block, legend, keysOfReport(), done));
  }

  function keysOfReport() {
    return data.runs.length ? data.runs.map((run) => run.key) : context.chosen;
  }

  function noteField(source, place) {
    const { isNew, text = source } = editing;
    const cancel = (typed) => {
      const discarded = editing;
      editing = null;
      draw();
      if (typed !== source) offerUndo(t("note_discarded"), () => reopen({ ...discarded, text: typed }));
    };
    const done = (typed) => {
      editing = null;
      if (typed === source || (isNew && !typed.trim())) draw();
      else change(place, isNew ? 0 : 1, typed);
    };
    return el("section", { class: "block note-block full" }, noteEditor(text, done, cancel));
  }

  function reopen(what) {
    editing = what;
    draw();
  }

  function openAddMenu(button, place) {
    const kinds = ["note", "chart", "runs"].map((kind) =>
      menuItem(t(`block_${kind}`), () => {
        close();
        add(kind, place);
      }),
    );
    const close = openMenuAt(button, kinds);
  }

  function addBar() {
    const buttons = ["note", "chart", "runs"].map((kind) =>
      el("button", { text: `+ ${t(`block_${kind}`)}`, onclick: () => add(kind, data.blocks.length) }),
    );
    return el("div", { class: "add-bar" }, buttons);
  }

  function add(kind, place) {
    if (kind !== "note") return openForm(kind, null, (source) => change(place, 0, source));
    reopen({ place, isNew: true });
  }

  function move(place, by) {
    const sources = sourcesNow();
    const [moved] = sources.splice(place, 1);
    sources.splice(place + by, 0, moved);
    keep(joinSources(sources));
  }

  // Replace some blocks from a place on by others, or remove them.
  function change(place, count, ...added) {
    const sources = sourcesNow();
    sources.splice(place, count, ...added);
    const said = added.some((source) => source.trim()) ? t("report_changed") : t("block_removed");
    return keepWithUndo(joinSources(sources.filter((source) => source.trim())), said);
  }

  async function keepWithUndo(text, said) {
    const before = data.text;
    await keep(text);
    offerUndo(said, () => keep(before));
  }

  function sourcesNow() {
    return data.blocks.map((block) => block.source);
  }

  async function keep(text) {
    await attempt(() => saveReport(name, text));
    await read();
  }

  function toolbar() {
    const print = el("button", { text: t("report_print"), onclick: () => window.print() });
    if (report) return el("div", { class: "bar report-bar" }, print);
    const save = async () => download(`${data.title || name}.html`, await fetchFile(name, context.chosen));
    return el(
      "div",
      { class: "bar report-bar" },
      allReports(),
      el("span", { class: "grow" }),
      el("button", { text: t("report_source"), onclick: editSource }),
      el("button", { text: t("report_rename"), onclick: rename }),
      el("button", {
        text: t("report_delete"),
        onclick: () => attempt(() => deleteReport(name, toggleMissing)),
      }),
      print,
      el("button", {
        class: "primary",
        text: t("report_file"),
        title: t("report_file_help"),
        onclick: () => attempt(save),
      }),
    );
  }

  // After the report is deleted its list is shown; after that is undone, the report.
  function toggleMissing() {
    setState({ report: getState("report") ? "" : name });
  }

  function rename() {
    askName(t("report_rename"), name, async (next) => {
      await saveReport(next, data.text);
      await saveReport(name, null);
      setState({ report: next });
    });
  }

  // The whole text in one field.
  function editSource() {
    reopen({ isWhole: true });
  }

  function wholeField() {
    const { text = data.text } = editing;
    const done = (typed) => {
      editing = null;
      if (typed === data.text) draw();
      else keepWithUndo(typed, t("report_changed"));
    };
    const cancel = (typed) => {
      reopen(null);
      if (typed !== data.text) offerUndo(t("note_discarded"), () => reopen({ isWhole: true, text: typed }));
    };
    return el("section", { class: "block full" }, noteEditor(text, done, cancel));
  }

  const readLater = throttle(LIVE_MS, () => host.isConnected && !editing && !report && read());
  const stopPrinting = followPrinting();
  const typed = () => editing && page.querySelector("textarea")?.value;
  const warn = (event) => typed() && event.preventDefault(); // the browser asks before the text is lost
  addEventListener("beforeunload", warn);
  unfinished.delete(name);
  read();
  return {
    update() {
      cards.refresh();
      if (data?.blocks.some((block) => block.kind === "runs")) readLater();
    },
    changed(names) {
      if (names.includes("report")) context.rerender();
      else if (data) cards.refresh(true);
    },
    destroy() {
      stopPrinting();
      removeEventListener("beforeunload", warn);
      if (typed()) unfinished.set(name, { ...editing, text: typed() });
      cards.setCards([]);
    },
  };
}

function allReports() {
  return stateLink({ report: "" }, { class: "button", text: `‹ ${t("report_all")}` });
}

// Paper is light, whatever the theme; return the function that ends this.
function followPrinting() {
  const toPaper = () => {
    if (!isDark()) return;
    applyTheme("light");
    restyleAll();
  };
  const back = () => {
    applyTheme();
    restyleAll();
  };
  addEventListener("beforeprint", toPaper);
  addEventListener("afterprint", back);
  return () => {
    removeEventListener("beforeprint", toPaper);
    removeEventListener("afterprint", back);
  };
}
