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
import { SeriesStore } from "../charts/store.js";
import { viewsButton } from "../charts/views_menu.js";
import { colourSwatch } from "../colour_menu.js";
import { fetchJson, runPath } from "../data/api.js";
import { report } from "../data/report.js";
import { selectedRuns } from "../data/runs.js";
import { getList, getState, packList, setState } from "../data/url_state.js";
import { localized, t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { debounce } from "../ui/scheduling.js";
import { showMessage } from "../ui/toast.js";
import { emptyState, filterField, filterPredicate } from "../ui/widgets.js";
import { notComparablePanel } from "./not_comparable.js";

const MAX_RUNS = 32; // that the server compares

export function chartsView(host, context) {
  const store = new SeriesStore();
  const families = el("nav", { class: "families", "aria-label": t("families") });
  const body = el("div");
  const apart = el("div");
  const count = el("span", { class: "quiet" });
  const filter = filterField(t("filter"));
  const switches = chartSwitches(() => openEditor(readPanels().length, { metrics: [] }));
  let bar = null;
  let data = null;
  let drawn = new Map(); // every chart as a card shows it, by key
  let flat = null; // the keys of the charts that show nothing, once they were looked for
  let linked = ""; // the name in the URL whose chart was brought into view

  function openEditor(number, panel) {
    editPanel(number, panel, [...drawn.values()]);
  }

  function build() {
    const isHiding = getState("flat") === "0";
    if (isHiding && !flat) return findFlat();
    const matches = filterPredicate(filter);
    const pins = getList("pins");
    const matching = data.charts.filter((chart) => chartTexts(chart, data.metrics[chart.metric]).some(matches));
    const shown = matching.filter((chart) => !isHiding || !flat.has(chart.key));
    const ofCharts = (key, title, intro, charts) => ({
      key,
      title,
      intro,
      count: charts.length,
      make: () => charts.map(chartCard),
    });
    const pinned = pins.map((key) => data.charts.find((one) => one.key === key)).filter(Boolean);
    const sections = [
      { key: "panels", title: t("panels"), intro: "", count: readPanels().length, make: panelCards },
      ofCharts("pinned", t("pinned"), "", pinned),
      ...sortByFamily(data.families).map(({ key, title, intro }) => {
        const charts = shown.filter((chart) => chart.family === key && !pins.includes(chart.key));
        return ofCharts(key, localized(title), localized(intro), charts);
      }),
      histogramSection(data.histograms.filter(matches), context),
    ];
    const cards = [];
    const made = sections
      .filter((section) => section.count)
      .map((section) => {
        const isOpen = !getList("closed").includes(section.key);
        const added = isOpen ? section.make() : [];
        if (!section.fetchesItself) cards.push(...added);
        return {
          key: section.key,
          title: section.title,
          node: familySection(section, added, isOpen, host.clientWidth),
        };
      });
    families.replaceChildren(...made.map(sectionLink));
    body.replaceChildren(...(made.length ? made.map(({ node }) => node) : [noCharts(data)]));
    const hidden = matching.length - shown.length;
    count.textContent = [
      t("shown", { n: shown.length, m: data.charts.length }),
      hidden ? t("flat_hidden", { n: hidden }) : "",
    ]
      .filter(Boolean)
      .join(" · ");
    store.setCards(cards);
    showLinked();
  }

  // Bring the chart that a link names into view, once; those beside it are of the same family.
  function showLinked() {
    const name = getState("look");
    const chart = name && name !== linked ? findChart(name, data.charts) : null;
    if (!chart) return;
    if (getList("closed").includes(chart.family)) return toggleSection(chart.family); // which builds again
    linked = name;
    const node = body.querySelector(`.chart[data-name="${CSS.escape(chart.key)}"]`);
    node?.classList.add("chosen");
    node?.scrollIntoView({ block: "center" });
  }

  function chartCard({ key }) {
    const edit = () => openEditor(readPanels().length, { metrics: [key] });
    return new ChartCard(store, { ...drawn.get(key), pinnable: true, edit });
  }

  function panelCards() {
    return readPanels().map((panel, number) => {
      const chart = panelChart(panel, number, (name) => drawn.get(findChart(name, data.charts)?.key));
      return new PanelCard(store, { ...chart, edit: () => openEditor(number, panel) });
    });
  }

  async function findFlat() {
    try {
      flat = await flatCharts([...drawn.values()]);
    } catch (problem) {
      return context.fail(problem);
    }
    if (host.isConnected) build();
  }

  async function read() {
    try {
      data = await readCharts(context);
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    flat = null;
    drawn = new Map(data.charts.map((chart) => [chart.key, drawnChart(chart, data)]));
    if (!bar) {
      bar = axisBar(data.axes, [filter]);
      const legend = el("div", { class: "legend" }, context.chosen.length > 1 ? context.chosen.map(colourSwatch) : "");
      host.append(el("div", { class: "bar" }, bar.nodes, switches.nodes, count), legend, families, body, apart);
    }
    apart.replaceChildren(data.comparison ? (notComparablePanel(data.comparison) ?? "") : "");
    build();
  }

  const rebuild = debounce(150, build);
  read();
  return {
    update(news, changed) {
      if (data && news.names !== undefined && news.names !== data.names) read();
      else store.refresh(false, changed);
    },
    changed(names) {
      if (!data) return;
      bar.sync();
      switches.sync();
      if (names.includes("filter")) rebuild();
      else if (names.some((name) => ["pins", "panels", "closed", "flat"].includes(name))) build();
      else if (names.some((name) => ["from", "to", "x"].includes(name))) store.refresh(true);
      else for (const card of store.cards) card.draw();
    },
    destroy: () => store.setCards([]),
  };
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

// A section whose title opens and closes it.
function familySection({ key, title, intro, count }, cards, isOpen, width) {
  const rows = Math.ceil(cards.length / Math.max(1, Math.floor((width + 12) / 342)));
  // The height that the section will have: without it the scroll bar jumps while sections come into view.
  const style = { "contain-intrinsic-size": `auto ${60 + 248 * rows}px` };
  const toggle = el("button", {
    class: "section-fold",
    "aria-expanded": isOpen,
    text: isOpen ? title : `${title} (${count})`,
    onclick: () => toggleSection(key),
  });
  return el(
    "section",
    { class: "family", style, "data-section": key },
    el("h2", {}, toggle),
    intro && isOpen ? el("p", { class: "quiet", text: intro }) : null,
    el(
      "div",
      { class: "charts-grid" },
      cards.map((card) => card.node),
    ),
  );
}

function toggleSection(key) {
  const closed = getList("closed");
  setState({ closed: packList(closed.includes(key) ? closed.filter((one) => one !== key) : [...closed, key]) });
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

// A link to a section; it opens one that is closed.
function sectionLink({ key, title, node }) {
  const onclick = (event) => {
    event.preventDefault();
    if (getList("closed").includes(key)) toggleSection(key);
    (node.isConnected ? node : document.querySelector(`[data-section="${CSS.escape(key)}"]`))?.scrollIntoView();
  };
  return el("a", { href: "#", text: title, onclick });
}

function noCharts(data) {
  return data.charts.length ? emptyState(t("nothing_found")) : emptyState(t("no_metrics"), t("no_metrics_do"));
}
