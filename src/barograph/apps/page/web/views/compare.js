// The Compare view: charts of several runs, also across vocabularies, and the differences of the runs.
import { axisBar } from "../charts/axis_bar.js";
import { BandStore } from "../charts/band_store.js";
import { ChartCard } from "../charts/card.js";
import { chartTexts } from "../charts/chart_texts.js";
import { comparedChart, groupSize, namedGroups } from "../charts/compared_chart.js";
import { sortByFamily } from "../charts/families.js";
import { SeriesStore } from "../charts/store.js";
import { fetchJson } from "../data/api.js";
import { colourOf } from "../data/colours.js";
import { runs } from "../data/runs.js";
import { getList, getState, setState } from "../data/url_state.js";
import { keyOptions } from "../table/group_keys.js";
import { formatConfigValue } from "../text/format.js";
import { comparedTitle } from "../text/labels.js";
import { t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { debounce } from "../ui/scheduling.js";
import { emptyState, filterField, filterPredicate, panel, selectField, swatch, table } from "../ui/widgets.js";
import { verdictPanel } from "./group_verdict.js";
import { notComparablePanel } from "./not_comparable.js";
import { phasesOfRuns } from "./phases_of_runs.js";

const MAX_RUNS_IN_LEGEND = 24;
const MAX_UNBROKEN = 16; // characters of a value: on a phone, "false" would have two lines

export function compareView(host, context) {
  if (context.chosen.length > 1) return new CompareView(host, context);
  host.append(emptyState(t("choose_two")));
  return {};
}

class CompareView {
  constructor(host, context) {
    this.host = host;
    this.context = context;
    this.filter = filterField(t("filter"));
    this.bar = axisBar(["step", "time", "relative", "tokens", "samples"], [this.filter]);
    this.grid = el("div", { class: "charts-grid" });
    this.count = el("span", { class: "quiet" });
    this.store = new SeriesStore();
    this.data = null;
    this.grouped = null; // the answer of /api/groups, where a group has several runs
    this.rebuild = debounce(150, () => this.build());
    this.read();
  }

  async read() {
    const { chosen } = this.context;
    const asked = Promise.all([fetchJson("/api/compare", { run: chosen }), readGroups(chosen)]);
    const found = await this.context.load(asked);
    if (!found) return;
    [this.data, this.grouped] = found;
    const { data, grouped } = this;
    this.store.setCards([]);
    this.store = grouped ? new BandStore() : new SeriesStore();
    const names = data.runs.map((one) => truncateEnd(runs.get(one.key)?.name ?? one.name));
    const isComparable = grouped && grouped.groups.length > 1 && grouped.chart;
    const choose = { metric: (metric) => setState({ metric }), base: (against) => setState({ against }) };
    this.host.replaceChildren(
      el("div", { class: "legend compare-legend" }, groupingField(data), legend(data, names, grouped)),
      isComparable ? verdictPanel(grouped, chartsOfGroups(data, grouped), choose) : "",
      grouped ? "" : differences(data, names),
      el("div", { class: "bar" }, this.bar.nodes, this.count),
      this.grid,
      notComparablePanel(data) ?? "",
      grouped ? differences(data, names) : "",
    );
    this.build();
  }

  build() {
    const { data, grouped, store } = this;
    const matches = filterPredicate(this.filter);
    const isFound = (chart) => [comparedTitle(chart), ...chartTexts(chart, data.metrics[chart.metric])].some(matches);
    const shared = data.charts.filter((chart) => new Set(chart.lines.map((line) => line.run)).size > 1);
    const shown = sortByFamily(shared.filter(isFound), "family");
    const cards = shown.map((chart) => new ChartCard(store, comparedChart(chart, data.metrics, grouped?.groups)));
    this.grid.replaceChildren(...cards.map((card) => card.node));
    if (!cards.length) this.grid.append(emptyState(t("nothing_found")));
    this.count.textContent = t("shown", { n: shown.length, m: shared.length });
    store.setCards(cards);
  }

  update() {
    this.store.refresh();
  }

  changed(names) {
    this.bar.sync();
    if (!this.data) return;
    if (names.some((name) => ["pool", "metric", "against"].includes(name))) this.read();
    else if (names.includes("filter")) this.rebuild();
    else this.store.refresh(true);
  }

  destroy() {
    this.store.setCards([]);
  }
}

// The selected runs in groups, where at least one group has several: by seeds if nothing else is chosen.
async function readGroups(chosen) {
  if (getState("pool") === "none") return null;
  const by = getList("pool").length ? getList("pool") : "seeds";
  const ask = async (run) => named(await fetchJson("/api/groups", { run, by, metric: getState("metric") }));
  const found = await ask(chosen);
  if (!found.groups.some((group) => group.keys.length > 1)) return null;
  const base = found.groups.find((group) => group.label === getState("against"));
  if (!base || base === found.groups[0]) return found;
  return ask([...base.keys, ...chosen.filter((key) => !base.keys.includes(key))]);
}

function groupingField({ config }) {
  const keys = keyOptions(config.map(({ key }) => key));
  const options = [
    ["", t("group_seeds")],
    ["none", t("group_none")],
    ["group", t("group_group")],
    ["tag", t("group_tag")],
    ...keys,
  ];
  const current = getState("pool") === "seeds" ? "" : getState("pool");
  return selectField(t("group_by"), options, current, (group) => setState({ pool: group, against: "" }));
}

function legend(data, names, grouped) {
  const ofRun = (one, i) =>
    swatch(seriesColour(colourOf(one.key)), `${names[i]}${one.source ? ` (${one.source})` : ""}`);
  const ofGroup = (group) => swatch(group.swatch, `${group.label} · ${groupSize(group)}`, group.about);
  return (grouped ? grouped.groups.map(ofGroup) : data.runs.map(ofRun)).slice(0, MAX_RUNS_IN_LEGEND);
}

// An answer of /api/groups whose groups have names and colours.
function named(found) {
  return { ...found, groups: namedGroups(found.groups) };
}

// The charts in which at least two groups have a line.
function chartsOfGroups({ charts }, { groups }) {
  const has = (chart, group) => chart.lines.some((line) => group.keys.includes(line.run));
  return charts.filter((chart) => groups.filter((group) => has(chart, group)).length > 1);
}

function differences(data, names) {
  const cell = (value) => {
    const text = value?.absent ? t("absent") : formatConfigValue(value);
    const style = text.length > MAX_UNBROKEN ? {} : { "white-space": "nowrap" };
    return el("span", { class: value?.absent ? "quiet" : "", text, style });
  };
  const config = data.config.map((one) => [one.key, ...one.values.map(cell)]);
  return el(
    "div",
    { class: "pair short-panel" },
    panel(
      t("config_diff"),
      String(config.length),
      config.length ? table([t("key"), ...names], config, "kv") : el("p", { class: "quiet", text: t("same_config") }),
    ),
    data.phases.length ? phasesOfRuns(data) : "",
  );
}

function truncateEnd(name) {
  return name.length > 24 ? `${name.slice(0, 23)}…` : name;
}
