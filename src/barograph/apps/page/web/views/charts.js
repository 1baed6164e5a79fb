// The Charts view: all metrics, grouped by family.
import { axisBar } from "../charts/axis_bar.js";
import { ChartCard } from "../charts/card.js";
import { chartTexts } from "../charts/chart_texts.js";
import { sortByFamily } from "../charts/families.js";
import { flatCharts } from "../charts/flat.js";
import { histogramSection } from "../charts/histograms.js";
import { joinCharts, joinFamilies } from "../charts/joined.js";
import { joinedChart, metricChart } from "../charts/metric_chart.js";
import { PanelCard } from "../charts/panel_card.js";
import { editPanel } from "../charts/panel_editor.js";
import { panelChart, readPanels } from "../charts/panels.js";
import { drawSection, sectionLink, toggleSection } from "../charts/sections.js";
import { SeriesStore } from "../charts/store.js";
import { viewsButton } from "../charts/views_menu.js";
import { colourSwatch } from "../colour_menu.js";
import { fetchJson, runPath } from "../data/api.js";
import { report } from "../data/report.js";
import { selectedRuns } from "../data/runs.js";
import { getList, getState, setState } from "../data/url_state.js";
import { localized, t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { debounce } from "../ui/scheduling.js";
import { showMessage } from "../ui/toast.js";
import { emptyState, filterField, filterPredicate } from "../ui/widgets.js";
import { notComparablePanel } from "./not_comparable.js";

const MAX_RUNS = 32; // that the server compares

export const chartsView = (host, context) => new ChartsView(host, context);

class ChartsView {
  constructor(host, context) {
    this.host = host;
    this.context = context;
    this.store = new SeriesStore();
    this.families = el("nav", { class: "families", "aria-label": t("families") });
    this.body = el("div");
    this.apart = el("div");
    this.count = el("span", { class: "quiet" });
    this.filter = filterField(t("filter"));
    this.switches = chartSwitches(() => this.addPanel([]));
    this.bar = null;
    this.data = null;
    this.drawn = new Map(); // every chart as a card shows it, by key
    this.flat = null; // the keys of the charts that show nothing, once they were looked for
    this.linked = ""; // the name in the URL whose chart was brought into view
    this.rebuild = debounce(150, () => this.build());
    this.read();
  }

  async read() {
    const data = await this.context.load(readCharts(this.context));
    if (!data) return;
    this.data = data;
    this.flat = null;
    this.drawn = new Map(data.charts.map((chart) => [chart.key, drawnChart(chart, data)]));
    if (!this.bar) this.frame();
    this.apart.replaceChildren(data.comparison ? (notComparablePanel(data.comparison) ?? "") : "");
    this.build();
  }

  frame() {
    const { chosen } = this.context;
    this.bar = axisBar(this.data.axes, [this.filter]);
    const bar = el("div", { class: "bar" }, this.bar.nodes, this.switches.nodes, this.count);
    const legend = el("div", { class: "legend" }, chosen.length > 1 ? chosen.map(colourSwatch) : "");
    this.host.append(bar, legend, this.families, this.body, this.apart);
  }

  build() {
    const { data } = this;
    const isHiding = getState("flat") === "0";
    if (isHiding && !this.flat) return this.findFlat();
    const matches = filterPredicate(this.filter);
    const matching = data.charts.filter((chart) => chartTexts(chart, data.metrics[chart.metric]).some(matches));
    const shown = matching.filter((chart) => !isHiding || !this.flat.has(chart.key));
    const sections = this.sections(shown, matches).filter((section) => section.count);
    const made = sections.map((section) => drawSection(section, this.host.clientWidth));
    this.families.replaceChildren(...made.map(sectionLink));
    this.body.replaceChildren(...(made.length ? made.map(({ node }) => node) : [noCharts(data)]));
    this.count.textContent = countText(shown.length, data.charts.length, matching.length - shown.length);
    this.store.setCards(made.flatMap((one) => one.cards));
    this.showLinked();
  }

  // The sections with their number of charts, and how to make the cards of each.
  sections(shown, matches) {
    const { data } = this;
    const pins = getList("pins");
    const ofCharts = (key, title, intro, charts) => {
      return { key, title, intro, count: charts.length, make: () => charts.map((chart) => this.chartCard(chart)) };
    };
    const pinned = pins.map((key) => data.charts.find((one) => one.key === key)).filter(Boolean);
    const families = sortByFamily(data.families).map(({ key, title, intro }) => {
      const charts = shown.filter((chart) => chart.family === key && !pins.includes(chart.key));
      return ofCharts(key, localized(title), localized(intro), charts);
    });
    return [
      { key: "panels", title: t("panels"), intro: "", count: readPanels().length, make: () => this.panelCards() },
      ofCharts("pinned", t("pinned"), "", pinned),
      ...families,
      histogramSection(data.histograms.filter(matches), this.context),
    ];
  }

  // Bring the chart that a link names into view, once; those beside it are of the same family.
  showLinked() {
    const name = getState("look");
    const chart = name && name !== this.linked ? findChart(name, this.data.charts) : null;
    if (!chart) return;
    if (getList("closed").includes(chart.family)) return toggleSection(chart.family); // which builds again
    this.linked = name;
    const node = this.body.querySelector(`.chart[data-name="${CSS.escape(chart.key)}"]`);
    node?.classList.add("chosen");
    node?.scrollIntoView({ block: "center" });
  }

  chartCard({ key }) {
    return new ChartCard(this.store, { ...this.drawn.get(key), pinnable: true, edit: () => this.addPanel([key]) });
  }

  panelCards() {
    return readPanels().map((panel, number) => {
      const chart = panelChart(panel, number, (name) => this.drawn.get(findChart(name, this.data.charts)?.key));
      return new PanelCard(this.store, { ...chart, edit: () => editPanel(number, panel, [...this.drawn.values()]) });
    });
  }

  addPanel(metrics) {
    editPanel(readPanels().length, { metrics }, [...this.drawn.values()]);
  }

  async findFlat() {
    this.flat = await this.context.load(flatCharts([...this.drawn.values()]));
    if (this.flat) this.build();
  }

  update(news, changed) {
    if (this.data && news.names !== undefined && news.names !== this.data.names) this.read();
    else this.store.refresh(false, changed);
  }

  changed(names) {
    if (!this.data) return;
    this.bar.sync();
    this.switches.sync();
    if (names.includes("filter")) this.rebuild();
    else if (names.some((name) => ["pins", "panels", "closed", "flat"].includes(name))) this.build();
    else if (names.some((name) => ["from", "to", "x"].includes(name))) this.store.refresh(true);
    else for (const card of this.store.cards) card.draw();
  }

  destroy() {
    this.store.setCards([]);
  }
}

function countText(shown, all, hidden) {
  const text = t("shown", { n: shown, m: all });
  return hidden ? `${text} · ${t("flat_hidden", { n: hidden })}` : text;
}

// The buttons for flat charts, new panels and saved views.
function chartSwitches(addPanel) {
  const flat = el("button", {
    class: "flat-switch",
    text: t("hide_flat"),
    title: t("hide_flat_help"),
    onclick: () => setState({ flat: getState("flat") === "0" ? "" : "0" }),
  });
  const add = el("button", { class: "add-panel", text: `+ ${t("new_panel")}`, onclick: addPanel });
  const views = report ? null : viewsButton();
  const sync = () => {
    flat.setAttribute("aria-pressed", String(getState("flat") === "0"));
    views?.sync();
  };
  sync();
  return { nodes: [flat, add, views?.button ?? ""], sync };
}

// The charts of the run in view, or of all selected runs, joined by what their names mean.
async function readCharts({ run, chosen }) {
  const keys = chosen.slice(0, MAX_RUNS);
  if (keys.length < 2) return fetchJson(runPath(run, "names"));
  if (chosen.length > MAX_RUNS) showMessage(t("too_many", { n: MAX_RUNS }));
  const [comparison, ...all] = await Promise.all([
    fetchJson("/api/compare", { run: keys }),
    ...keys.map((key) => fetchJson(runPath(key, "names"))),
  ]);
  const views = all.map((data, i) => ({ run: keys[i], data }));
  const metrics = Object.assign({}, ...all.map((one) => one.metrics));
  return { ...all[0], comparison, metrics, charts: joinCharts(views, comparison), families: joinFamilies(views) };
}

function drawnChart(chart, data) {
  return (data.comparison ? joinedChart : metricChart)(chart, data.metrics, selectedRuns());
}

// The chart of a metric that a panel or a link names: by key, by a name as logged, or by the id of the metric.
function findChart(name, charts) {
  const tests = [
    (chart) => chart.key === name,
    (chart) => chartTexts(chart).includes(name),
    (chart) => chart.metric === name,
  ];
  return tests.map((test) => charts.find(test)).find(Boolean);
}

function noCharts(data) {
  return data.charts.length ? emptyState(t("nothing_found")) : emptyState(t("no_metrics"), t("no_metrics_do"));
}
