// The Time view: phases and the load of inference engines over steps, the timeline of one step, and the slowest ranks.
import { ChartCard } from "../charts/card.js";
import { metricChart } from "../charts/metric_chart.js";
import { drawPhases } from "../charts/phase_bars.js";
import { StackedBars } from "../charts/stacked_bars.js";
import { SeriesStore } from "../charts/store.js";
import { timelinePicture } from "../charts/timeline.js";
import { fetchJson, runPath } from "../data/api.js";
import { getState, setState } from "../data/url_state.js";
import { formatNumber, formatPercent, formatSeconds } from "../text/format.js";
import { localized, t } from "../text/language.js";
import { cssVariable, seriesColour } from "../ui/colours.js";
import { el, pictureWidth } from "../ui/dom.js";
import { throttle } from "../ui/scheduling.js";
import { emptyState, isEditingStep, panel, stepField, swatch, table } from "../ui/widgets.js";

const MAX_RANKS = 64;

export function timeView(host, context) {
  const area = el("div", { class: "stack-host" });
  const legend = el("div", { class: "legend" });
  const lower = el("div");
  const timelineHost = el("div");
  const engineHost = el("div", { class: "family" });
  const store = new SeriesStore();
  let bars = null;
  let data = null;
  let colours = new Map();
  const statButton = (stat) =>
    el("button", { text: t(stat), "aria-pressed": getState("stat") === stat, onclick: () => setState({ stat }) });

  async function read() {
    try {
      data = await fetchJson(runPath(context.run, "phases"));
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    drawEngines();
    if (!data.phases.length) {
      return host.replaceChildren(store.cards.length ? engineHost : emptyState(t("no_phases"), t("no_phases_do")));
    }
    colours = new Map(data.phases.filter((one) => !one.part).map((one, i) => [one.name, i]));
    draw();
    await readStep();
  }

  function draw() {
    const switcher = el(
      "span",
      { class: "facts" },
      el("span", { text: t("click_step") }),
      statButton("seconds"),
      statButton("share"),
    );
    if (!bars) bars = new StackedBars(area, (step) => setState({ step }));
    host.replaceChildren(panel(t("where_step"), switcher, area, legend), timelineHost, engineHost, lower);
    drawPhases(bars, data, getState("stat") === "share", legend);
    lower.replaceChildren(summaries(data), ranks(data, colours) ?? "");
  }

  // The totals over engines; each engine and each phase is in Charts.
  function drawEngines() {
    const { title, charts, metrics } = data.engine;
    if (charts.length === store.cards.length) return store.refresh();
    const cards = charts.map((chart) => new ChartCard(store, metricChart(chart, metrics, [context.run])));
    const nodes = cards.map((card) => card.node);
    engineHost.replaceChildren(el("h2", { text: localized(title) }), el("div", { class: "charts-grid" }, nodes));
    store.setCards(cards);
  }

  async function readStep() {
    let timeline;
    try {
      timeline = await fetchJson(runPath(context.run, "timeline"), { step: getState("step") });
    } catch (problem) {
      return timelineHost.replaceChildren(
        panel(t("one_step", { n: getState("step") }), "", el("p", { class: "quiet", text: problem.message })),
      );
    }
    if (!host.isConnected) return;
    if (!timeline?.groups?.length)
      return timelineHost.replaceChildren(el("p", { class: "quiet pad", text: t("no_spans") }));
    const [first, last] = timeline.steps;
    const go = (by) => setState({ step: Math.max(first, Math.min(last, timeline.step + by)) });
    const stepControls = el(
      "span",
      { class: "facts" },
      el("button", { text: "‹", "aria-label": "−1", onclick: () => go(-1) }),
      stepField(timeline.steps, timeline.step),
      el("button", { text: "›", "aria-label": "+1", onclick: () => go(1) }),
    );
    const faintInk = `color-mix(in srgb, ${cssVariable("--ink")} 40%, transparent)`;
    const facts = el(
      "div",
      { class: "legend" },
      swatch(faintInk, t("onload")),
      swatch(cssVariable("--ink"), t("execute")),
      swatch(faintInk, t("offload")),
      el("span", { text: `${t("unaccounted")} ${formatPercent(timeline.unaccounted)}` }),
      timeline.overlap ? el("span", { text: `${t("overlap")} ${formatPercent(timeline.overlap)}` }) : null,
    );
    timelineHost.replaceChildren(
      panel(
        `${t("one_step", { n: timeline.step })} · ${formatSeconds(timeline.end - timeline.start)}`,
        stepControls,
        el("div", { class: "scroll" }, timelinePicture(timeline, colours, pictureWidth(host))),
        facts,
      ),
    );
  }

  read();
  return {
    update: throttle(3000, () => isEditingStep() || read()),
    changed(names) {
      if (!data) return;
      if (names.includes("stat")) draw();
      if (names.includes("step")) readStep();
      if (names.some((name) => ["from", "to", "x"].includes(name))) store.refresh(true);
    },
    destroy() {
      bars?.destroy();
      store.setCards([]);
    },
  };
}

function summaries(data) {
  if (!data.summaries.length) {
    const rows = data.phases.map((one) => [one.name, formatSeconds(mean(one.seconds)), formatPercent(one.share)]);
    return panel(t("phases_title"), t("per_step"), table([t("phase"), t("mean"), t("share")], rows, "right"));
  }
  const rows = data.summaries.map((one) => [
    one.name,
    formatSeconds(one.mean),
    formatSeconds(one.p95),
    formatSeconds(one.max),
    formatPercent(one.share),
    one.count,
    one.slowest,
    one.tokens_per_second ? formatNumber(one.tokens_per_second) : "–",
  ]);
  return panel(
    t("phases_title"),
    "",
    table(
      [t("phase"), t("mean"), t("p95"), t("max"), t("share"), t("count"), t("slowest"), t("tokens_per_second")],
      rows,
      "right",
    ),
  );
}

function mean(values) {
  const known = values.filter((v) => v !== null);
  return known.reduce((sum, v) => sum + v, 0) / (known.length || 1);
}

function ranks(data, colours) {
  if (!data.ranks.length) return null;
  const slowest = Math.max(...data.ranks.map((one) => one.seconds));
  const rows = data.ranks.slice(0, MAX_RANKS).flatMap((one) => [
    el("span", { text: one.writer }),
    el(
      "span",
      { class: "track" },
      Object.entries(one.phases).map(([name, seconds]) =>
        el("i", {
          title: `${name} ${formatSeconds(seconds)}`,
          style: { width: `${(100 * seconds) / slowest}%`, background: seriesColour(colours.get(name) ?? 7) },
        }),
      ),
    ),
    el("span", { text: formatSeconds(one.seconds) }),
  ]);
  return panel(t("slow_ranks"), t("per_step"), el("div", { class: "bars" }, rows));
}
