// A report with its notes, charts and tables, which can be changed in place.
import { restyleAll } from "../charts/plot.js";
import { report } from "../data/report.js";
import { fetchFile, fetchWritten, saveReport } from "../data/reports.js";
import { getState, setState } from "../data/url_state.js";
import { loadParsers } from "../samples/rich_text.js";
import { localized, t } from "../text/language.js";
import { applyTheme, isDark } from "../theme.js";
import { download, el } from "../ui/dom.js";
import { throttle } from "../ui/scheduling.js";
import { offerUndo } from "../ui/toast.js";
import { emptyState } from "../ui/widgets.js";
import { addBar, allReports, blockTools, openAddMenu, toolbar } from "./block_tools.js";
import { Legend, ReportCards, reportCard } from "./cards.js";
import { editChart, editRuns } from "./forms.js";
import { askName, attempt } from "./new_report.js";
import { focusEditor, noteEditor, noteNode } from "./note.js";
import { deleteReport } from "./report_list.js";
import { runsTable } from "./runs_table.js";
import { joinSources } from "./source.js";

const unfinished = new Map(); // by report, what was being typed when another view was opened
const LIVE_MS = 5000; // between readings of the tables while runs go on

export class ReportPage {
  constructor(host, context) {
    this.host = host;
    this.context = context;
    this.name = getState("report");
    this.cards = new ReportCards();
    this.page = el("article", { class: "written" });
    this.data = null;
    this.legend = null;
    // What is in the field: the note at a place, {place, isNew, text}, or the whole text, {isWhole}.
    this.editing = unfinished.get(this.name) ?? null;
    this.readLater = throttle(LIVE_MS, () => this.host.isConnected && !this.editing && !report && this.read());
    this.stopPrinting = followPrinting();
    this.warn = (event) => this.typed() && event.preventDefault(); // the browser asks before the text is lost
    addEventListener("beforeunload", this.warn);
    unfinished.delete(this.name);
    this.read();
  }

  async read() {
    try {
      [this.data] = await Promise.all([fetchWritten({ name: this.name }, this.context.chosen), loadParsers()]);
    } catch (problem) {
      if (this.data) return this.context.fail(problem);
      const empty = emptyState(problem.status === 404 ? t("report_missing", { n: this.name }) : problem.message);
      empty.append(el("p", {}, allReports()));
      return this.host.replaceChildren(empty);
    }
    if (this.host.isConnected) this.draw();
  }

  draw() {
    this.legend = new Legend(this.data);
    const isWhole = this.editing?.isWhole;
    if (isWhole) this.page.replaceChildren(this.wholeField());
    const made = isWhole ? [] : this.drawBlocks();
    if (!this.host.firstChild) this.host.append(toolbar(this), this.page);
    document.title = `${this.data.title || this.name} · barograph`;
    this.cards.setCards(made);
    focusEditor(this.page);
  }

  // Draw all notes, charts and tables; return the cards of the charts.
  drawBlocks() {
    const { data, editing } = this;
    const made = data.blocks.map((block, place) =>
      block.charts?.length ? reportCard(block, place, this.legend, data.metrics, this.cards) : null,
    );
    const nodes = data.blocks.map((block, place) => this.blockNode(block, place, made[place]));
    if (editing?.isNew) nodes.splice(editing.place, 0, this.noteField("", editing.place));
    if (!nodes.length) nodes.push(emptyState(t("report_empty")));
    this.page.replaceChildren(...nodes, ...(report ? [] : [addBar((kind) => this.add(kind, data.blocks.length))]));
    return made.filter(Boolean);
  }

  blockNode(block, place, card) {
    const { data, editing, legend } = this;
    if (editing?.isNew === false && editing.place === place) return this.noteField(block.source, place);
    const problems = block.problems.map((text) => el("p", { class: "notice", role: "status", text: localized(text) }));
    const content = {
      note: () => noteNode(block.source),
      chart: () => card?.node,
      runs: () => runsTable(block, legend, data),
    }[block.kind]();
    const size = block.kind === "chart" ? (block.panel.size ?? "normal") : "full";
    const tools = report ? null : blockTools(block, place, this);
    return el("section", { class: `block ${block.kind}-block ${size}` }, tools, content, problems);
  }

  edit(block, place) {
    if (block.kind === "note") this.reopen({ place, isNew: false });
    else this.openForm(block.kind, block, (source) => this.change(place, 1, source));
  }

  openForm(kind, block, done) {
    const { data, legend, context } = this;
    const keys = data.runs.length ? data.runs.map((run) => run.key) : context.chosen;
    attempt(() => (kind === "chart" ? editChart : editRuns)(block, legend, keys, done));
  }

  noteField(source, place) {
    const { isNew, text = source } = this.editing;
    const done = (typed) => {
      this.editing = null;
      if (typed === source || (isNew && !typed.trim())) this.draw();
      else this.change(place, isNew ? 0 : 1, typed);
    };
    const cancel = (typed) => this.discard(typed, source);
    return el("section", { class: "block note-block full" }, noteEditor(text, done, cancel));
  }

  // The whole text in one field.
  wholeField() {
    const source = this.data.text;
    const done = (typed) => {
      this.editing = null;
      if (typed === source) this.draw();
      else this.keepWithUndo(typed, t("report_changed"));
    };
    const cancel = (typed) => this.discard(typed, source);
    return el("section", { class: "block full" }, noteEditor(this.editing.text ?? source, done, cancel));
  }

  discard(typed, source) {
    const discarded = { ...this.editing, text: typed };
    this.reopen(null);
    if (typed !== source) offerUndo(t("note_discarded"), () => this.reopen(discarded));
  }

  reopen(what) {
    this.editing = what;
    this.draw();
  }

  openAddMenu(button, place) {
    openAddMenu(button, (kind) => this.add(kind, place));
  }

  add(kind, place) {
    if (kind === "note") this.reopen({ place, isNew: true });
    else this.openForm(kind, null, (source) => this.change(place, 0, source));
  }

  move(place, by) {
    const sources = this.sources();
    const [moved] = sources.splice(place, 1);
    sources.splice(place + by, 0, moved);
    this.keep(joinSources(sources));
  }

  // Replace some blocks from a place on by others, or remove them.
  change(place, count, ...added) {
    const sources = this.sources();
    sources.splice(place, count, ...added);
    const said = added.some((source) => source.trim()) ? t("report_changed") : t("block_removed");
    return this.keepWithUndo(joinSources(sources.filter((source) => source.trim())), said);
  }

  sources() {
    return this.data.blocks.map((block) => block.source);
  }

  async keepWithUndo(text, said) {
    const before = this.data.text;
    await this.keep(text);
    offerUndo(said, () => this.keep(before));
  }

  async keep(text) {
    await attempt(() => saveReport(this.name, text));
    await this.read();
  }

  saveFile() {
    const { name, data, context } = this;
    attempt(async () => download(`${data.title || name}.html`, await fetchFile(name, context.chosen)));
  }

  // After the report is deleted its list is shown; after that is undone, the report.
  remove() {
    const toggle = () => setState({ report: getState("report") ? "" : this.name });
    attempt(() => deleteReport(this.name, toggle));
  }

  rename() {
    askName(t("report_rename"), this.name, async (next) => {
      await saveReport(next, this.data.text);
      await saveReport(this.name, null);
      setState({ report: next });
    });
  }

  typed() {
    return this.editing && this.page.querySelector("textarea")?.value;
  }

  update() {
    this.cards.refresh();
    if (this.data?.blocks.some((block) => block.kind === "runs")) this.readLater();
  }

  changed(names) {
    if (names.includes("report")) this.context.rerender();
    else if (this.data) this.cards.refresh(true);
  }

  destroy() {
    this.stopPrinting();
    removeEventListener("beforeunload", this.warn);
    if (this.typed()) unfinished.set(this.name, { ...this.editing, text: this.typed() });
    this.cards.setCards([]);
  }
}

// Paper is light, whatever the theme; return the function that ends this.
function followPrinting() {
  const paint = (theme) => {
    applyTheme(theme);
    restyleAll();
  };
  const toPaper = () => isDark() && paint("light");
  const back = () => paint();
  addEventListener("beforeprint", toPaper);
  addEventListener("afterprint", back);
  return () => {
    removeEventListener("beforeprint", toPaper);
    removeEventListener("afterprint", back);
  };
}
