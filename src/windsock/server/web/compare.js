// Several runs side by side, also across vocabularies: what belongs together, what is refused and why, what differs.
import { ask } from "./api.js";
import { axisBar, ChartCard, ordered, Store } from "./charts.js";
import { el, hue, once, percent, plain, seconds } from "./dom.js";
import { empty, expression, filterBox, panel, swatch, table } from "./parts.js";
import { colourOf, runs } from "./runs.js";
import { say, t } from "./words.js";

export function compareView(host, context) {
  if (context.chosen.length < 2) {
    host.append(empty(t("choose_two")));
    return {};
  }
  const store = new Store();
  const filter = filterBox(t("filter"));
  const bar = axisBar(["step", "time", "relative", "tokens", "samples"], [filter]);
  const grid = el("div", { class: "charts-grid" });
  const told = el("span", { class: "quiet" });
  let data = null;

  function build() {
    const fits = expression(filter);
    const shared = data.charts.filter((chart) => new Set(chart.lines.map((line) => line.run)).size > 1);
    const shown = ordered(
      shared.filter((chart) => fits(chart.key) || fits(say(chart.title))),
      "family",
    );
    const cards = shown.map((chart) => new ChartCard(store, factsOfChart(chart, data)));
    grid.replaceChildren(...cards.map((card) => card.node));
    if (!cards.length) grid.append(empty(t("nothing_found")));
    told.textContent = t("shown", { n: shown.length, m: shared.length });
    store.show(cards);
  }

  async function read() {
    try {
      data = await ask("/api/compare", { run: context.chosen });
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    const names = data.runs.map((one) => clipped(runs.get(one.key)?.name ?? one.name));
    const legend = el(
      "div",
      { class: "legend" },
      data.runs.map((one, i) => swatch(hue(colourOf(one.key)), `${names[i]}${one.source ? ` (${one.source})` : ""}`)),
    );
    host.replaceChildren(
      legend,
      differences(data, names),
      el("div", { class: "bar" }, bar.nodes, told),
      grid,
      refusals(data) ?? "",
    );
    build();
  }

  const rebuild = once(150, build);
  read();
  return {
    update: () => store.refresh(),
    changed(changed) {
      bar.sync();
      if (!data) return;
      if (changed.includes("filter")) rebuild();
      else store.refresh(true);
    },
    destroy: () => store.show([]),
  };
}

function factsOfChart(chart, data) {
  const metric = data.metrics[chart.metric];
  const notes = chart.lines.map((line) => line.note).filter(Boolean);
  const lines = chart.lines.map((line) => ({ run: line.run, mean: line.name, factor: line.factor ?? 1 }));
  const names = [...new Set(chart.lines.map((line) => line.name))];
  return {
    key: chart.key,
    title: metric ? say(metric.title) : chart.key,
    unit: metric?.sign ?? "",
    metric,
    note: notes[0] ?? null,
    names,
    lines,
  };
}

function differences(data, names) {
  const text = (value) => (value?.absent ? t("absent") : plain(value));
  const config = data.config.map((one) => [
    one.key,
    ...one.values.map((value) => el("span", { class: value?.absent ? "quiet" : "", text: text(value) })),
  ]);
  const phases = data.phases.map((one) => [
    one.name,
    ...one.seconds.map((took, i) => `${seconds(took)}${one.share[i] ? ` · ${percent(one.share[i])}` : ""}`),
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

function clipped(name) {
  return name.length > 24 ? `${name.slice(0, 23)}…` : name;
}

function refusals(data) {
  if (!data.refused.length) return null;
  const rows = data.refused.map((one) => [runs.get(one.run)?.name ?? one.run, one.name, say(one.reason)]);
  return panel(
    t("refused"),
    String(rows.length),
    el("p", { class: "quiet", text: t("refused_intro") }),
    table([t("run"), t("name"), t("why_not")], rows),
  );
}
