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
  if (context.chosen.length < 2) {
    host.append(emptyState(t("choose_two")));
    return {};
  }
  const filter = filterField(t("filter"));
  const bar = axisBar(["step", "time", "relative", "tokens", "samples"], [filter]);
  const grid = el("div", { class: "charts-grid" });
  const count = el("span", { class: "quiet" });
  const top = el("div");
  const panels = el("div");
  let store = new SeriesStore();
  let data = null;
  let grouped = null; // the answer of /api/groups, where a group has several runs

  function build() {
    const matches = filterPredicate(filter);
    const shared = data.charts.filter((chart) => new Set(chart.lines.map((line) => line.run)).size > 1);
    const shown = sortByFamily(
      shared.filter((chart) => [comparedTitle(chart), ...chartTexts(chart, data.metrics[chart.metric])].some(matches)),
      "family",
    );
    const cards = shown.map((chart) => new ChartCard(store, comparedChart(chart, data.metrics, grouped?.groups)));
    grid.replaceChildren(...cards.map((card) => card.node));
    if (!cards.length) grid.append(emptyState(t("nothing_found")));
    count.textContent = t("shown", { n: shown.length, m: shared.length });
    store.setCards(cards);
  }

  async function read() {
    try {
      [data, grouped] = await Promise.all([fetchJson("/api/compare", { run: context.chosen }), readGroups()]);
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    store.setCards([]);
    store = grouped ? new BandStore() : new SeriesStore();
    const names = data.runs.map((one) => truncateEnd(runs.get(one.key)?.name ?? one.name));
    host.replaceChildren(
      top,
      panels,
      grouped ? "" : differences(data, names),
      el("div", { class: "bar" }, bar.nodes, count),
      grid,
      notComparablePanel(data) ?? "",
      grouped ? differences(data, names) : "",
    );
    drawTop(names);
    build();
  }

  // The selected runs in groups, where at least one group has several: by seeds if nothing else is chosen.
  async function readGroups() {
    if (getState("pool") === "none") return null;
    const first = (keys) => [...keys, ...context.chosen.filter((key) => !keys.includes(key))];
    const ask = (run) =>
      fetchJson("/api/groups", {
        run,
        by: getList("pool").length ? getList("pool") : "seeds",
        metric: getState("metric"),
      });
    const found = named(await ask(context.chosen));
    if (!found.groups.some((group) => group.keys.length > 1)) return null;
    const base = found.groups.find((group) => group.label === getState("against"));
    return base && base !== found.groups[0] ? named(await ask(first(base.keys))) : found;
  }

  function drawTop(names) {
    const legend = grouped
      ? grouped.groups.map((group) => swatch(group.swatch, `${group.label} · ${groupSize(group)}`, group.about))
      : data.runs.map((one, i) =>
          swatch(seriesColour(colourOf(one.key)), `${names[i]}${one.source ? ` (${one.source})` : ""}`),
        );
    const options = [
      ["", t("group_seeds")],
      ["none", t("group_none")],
      ["group", t("group_group")],
      ["tag", t("group_tag")],
      ...keyOptions(data.config.map(({ key }) => key)),
    ];
    const current = getState("pool") === "seeds" ? "" : getState("pool");
    const by = selectField(t("group_by"), options, current, (group) => setState({ pool: group, against: "" }));
    top.replaceChildren(el("div", { class: "legend compare-legend" }, by, legend.slice(0, MAX_RUNS_IN_LEGEND)));
    const choose = { metric: (metric) => setState({ metric }), base: (against) => setState({ against }) };
    const isComparable = grouped && grouped.groups.length > 1 && grouped.chart;
    panels.replaceChildren(isComparable ? verdictPanel(grouped, chartsOfGroups(data, grouped), choose) : "");
  }

  const rebuild = debounce(150, build);
  read();
  return {
    update: () => store.refresh(),
    changed(changed) {
      bar.sync();
      if (!data) return;
      if (changed.some((name) => ["pool", "metric", "against"].includes(name))) read();
      else if (changed.includes("filter")) rebuild();
      else store.refresh(true);
    },
    destroy: () => store.setCards([]),
  };
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
