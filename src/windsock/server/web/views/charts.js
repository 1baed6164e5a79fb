// The Charts view: all metrics, grouped by family.
import { axisBar } from "../charts/axis_bar.js";
import { ChartCard } from "../charts/card.js";
import { sortByFamily } from "../charts/families.js";
import { histogramSection } from "../charts/histograms.js";
import { joinCharts, joinFamilies } from "../charts/joined.js";
import { joinedChart, metricChart } from "../charts/metric_chart.js";
import { SeriesStore } from "../charts/store.js";
import { colourSwatch } from "../colour_menu.js";
import { fetchJson, runPath } from "../data/api.js";
import { selectedRuns } from "../data/runs.js";
import { getList, getState } from "../data/url_state.js";
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
  let bar = null;
  let data = null;

  function build() {
    const matches = filterPredicate(filter);
    const pins = getList("pins");
    const shown = data.charts.filter((chart) => textsOf(chart, data.metrics[chart.metric]).some(matches));
    const pinned = pins.map((key) => data.charts.find((chart) => chart.key === key)).filter(Boolean);
    const groups = sortByFamily(data.families).map(({ key, title, intro }) => ({
      title: localized(title),
      intro: localized(intro),
      charts: shown.filter((chart) => chart.family === key && !pins.includes(chart.key)),
    }));
    const cards = [];
    const sections = [{ title: t("pinned"), intro: "", charts: pinned }, ...groups]
      .filter((group) => group.charts.length)
      .map((group) => {
        const added = group.charts.map((chart) => new ChartCard(store, pinnable(chart, data)));
        cards.push(...added);
        return { title: group.title, node: familySection(group, added, host.clientWidth) };
      });
    const histograms = data.histograms.filter(matches);
    if (histograms.length) sections.push({ title: t("histograms"), node: histogramSection(histograms, context) });
    families.replaceChildren(...sections.map(sectionLink));
    body.replaceChildren(...(sections.length ? sections.map(({ node }) => node) : [noCharts(data)]));
    count.textContent = t("shown", { n: shown.length, m: data.charts.length });
    store.setCards(cards);
  }

  async function read() {
    try {
      data = await readCharts(context);
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    if (!bar) {
      bar = axisBar(data.axes, [filter]);
      const legend =
        context.chosen.length > 1 ? el("div", { class: "legend" }, context.chosen.map(colourSwatch)) : null;
      host.append(el("div", { class: "bar" }, bar.nodes, count), legend ?? "", families, body, apart);
    }
    apart.replaceChildren(data.comparison ? (notComparablePanel(data.comparison) ?? "") : "");
    build();
  }

  const rebuild = debounce(150, build);
  read();
  return {
    update(news) {
      if (data && news.names !== undefined && news.names !== data.names) read();
      else store.refresh();
    },
    changed(names) {
      if (!data) return;
      bar.sync();
      if (filter.value !== getState("filter")) filter.value = getState("filter");
      if (names.includes("filter")) rebuild();
      else if (names.includes("pins")) build();
      else if (names.some((name) => ["from", "to", "x"].includes(name))) store.refresh(true);
      else for (const card of store.cards) card.draw();
    },
    destroy: () => store.setCards([]),
  };
}

function familySection({ title, intro }, cards, width) {
  const rows = Math.ceil(cards.length / Math.max(1, Math.floor((width + 12) / 342)));
  // The height that the section will have: without it the scroll bar jumps while sections come into view.
  const style = { "contain-intrinsic-size": `auto ${60 + 248 * rows}px` };
  const nodes = cards.map((card) => card.node);
  return el(
    "section",
    { class: "family", style },
    el("h2", { text: title }),
    intro ? el("p", { class: "quiet", text: intro }) : null,
    el("div", { class: "charts-grid" }, nodes),
  );
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

// What a filter looks at: the names in the runs, the id of the metric, and its title in both languages.
function textsOf(chart, metric) {
  const names = Array.isArray(chart.lines) ? chart.lines.map((line) => line.mean) : Object.values(chart.lines);
  return [chart.key, ...names, ...(metric ? [metric.id, ...Object.values(metric.title)] : [])];
}

function pinnable(chart, data) {
  return { ...(data.comparison ? joinedChart : metricChart)(chart, data.metrics, selectedRuns()), pinnable: true };
}

function sectionLink({ title, node }) {
  const onclick = (event) => {
    event.preventDefault();
    node.scrollIntoView();
  };
  return el("a", { href: "#", text: title, onclick });
}

function noCharts(data) {
  return data.charts.length ? emptyState(t("nothing_found")) : emptyState(t("no_metrics"), t("no_metrics_do"));
}
