// The Compare view: charts of several runs, also across vocabularies, and the differences of the runs.
import { axisBar } from "../charts/axis_bar.js";
import { ChartCard } from "../charts/card.js";
import { sortByFamily } from "../charts/families.js";
import { SeriesStore } from "../charts/store.js";
import { fetchJson } from "../data/api.js";
import { colourOf } from "../data/colours.js";
import { runs } from "../data/runs.js";
import { formatConfigValue, formatPercent, formatSeconds } from "../text/format.js";
import { localized, t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { debounce } from "../ui/scheduling.js";
import { emptyState, filterField, filterPredicate, panel, swatch, table } from "../ui/widgets.js";
import { notComparablePanel } from "./not_comparable.js";

export function compareView(host, context) {
  if (context.chosen.length < 2) {
    host.append(emptyState(t("choose_two")));
    return {};
  }
  const store = new SeriesStore();
  const filter = filterField(t("filter"));
  const bar = axisBar(["step", "time", "relative", "tokens", "samples"], [filter]);
  const grid = el("div", { class: "charts-grid" });
  const count = el("span", { class: "quiet" });
  let data = null;

  function build() {
    const matches = filterPredicate(filter);
    const shared = data.charts.filter((chart) => new Set(chart.lines.map((line) => line.run)).size > 1);
    const shown = sortByFamily(
      shared.filter((chart) => matches(chart.key) || matches(localized(chart.title))),
      "family",
    );
    const cards = shown.map((chart) => new ChartCard(store, chartOf(chart, data)));
    grid.replaceChildren(...cards.map((card) => card.node));
    if (!cards.length) grid.append(emptyState(t("nothing_found")));
    count.textContent = t("shown", { n: shown.length, m: shared.length });
    store.setCards(cards);
  }

  async function read() {
    try {
      data = await fetchJson("/api/compare", { run: context.chosen });
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    const names = data.runs.map((one) => truncateEnd(runs.get(one.key)?.name ?? one.name));
    const legend = el(
      "div",
      { class: "legend" },
      data.runs.map((one, i) =>
        swatch(seriesColour(colourOf(one.key)), `${names[i]}${one.source ? ` (${one.source})` : ""}`),
      ),
    );
    host.replaceChildren(
      legend,
      differences(data, names),
      el("div", { class: "bar" }, bar.nodes, count),
      grid,
      notComparablePanel(data) ?? "",
    );
    build();
  }

  const rebuild = debounce(150, build);
  read();
  return {
    update: () => store.refresh(),
    changed(changed) {
      bar.sync();
      if (!data) return;
      if (changed.includes("filter")) rebuild();
      else store.refresh(true);
    },
    destroy: () => store.setCards([]),
  };
}

function chartOf(chart, data) {
  const metric = data.metrics[chart.metric];
  const notes = chart.lines.map((line) => line.note).filter(Boolean);
  const lines = chart.lines.map((line) => ({ run: line.run, mean: line.name, factor: line.factor ?? 1 }));
  const names = [...new Set(chart.lines.map((line) => line.name))];
  return {
    key: chart.key,
    title: metric ? localized(metric.title) : chart.key,
    unit: metric?.sign ?? "",
    metric,
    band: chart.band,
    note: notes[0] ?? null,
    names,
    lines,
  };
}

function differences(data, names) {
  const text = (value) => (value?.absent ? t("absent") : formatConfigValue(value));
  const config = data.config.map((one) => [
    one.key,
    ...one.values.map((value) => el("span", { class: value?.absent ? "quiet" : "", text: text(value) })),
  ]);
  const phases = data.phases.map((one) => [
    one.name,
    ...one.seconds.map(
      (seconds, i) => `${formatSeconds(seconds)}${one.share[i] ? ` · ${formatPercent(one.share[i])}` : ""}`,
    ),
  ]);
  return el(
    "div",
    { class: "pair short-panel" },
    panel(
      t("config_diff"),
      String(config.length),
      config.length ? table([t("key"), ...names], config, "kv") : el("p", { class: "quiet", text: t("same_config") }),
    ),
    phases.length ? panel(t("phase_diff"), t("per_step"), table([t("phase"), ...names], phases, "right")) : "",
  );
}

function truncateEnd(name) {
  return name.length > 24 ? `${name.slice(0, 23)}…` : name;
}
