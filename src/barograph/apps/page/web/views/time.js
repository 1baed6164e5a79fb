// The Time view: phases and the load of inference engines over steps, the timeline of one step, and the slowest ranks
// and nodes.
import { ChartCard } from "../charts/card.js";
import { clamp } from "../charts/curve_math.js";
import { metricChart } from "../charts/metric_chart.js";
import { drawPhases } from "../charts/phase_bars.js";
import { phaseColours, timelineColours } from "../charts/phase_colours.js";
import { StackedBars } from "../charts/stacked_bars.js";
import { SeriesStore } from "../charts/store.js";
import { timelinePicture } from "../charts/timeline.js";
import { fetchJson, runPath } from "../data/api.js";
import { report } from "../data/report.js";
import { getState, setState } from "../data/url_state.js";
import { formatPercent, formatSeconds, formatShort } from "../text/format.js";
import { localized, t } from "../text/language.js";
import { cssVariable } from "../ui/colours.js";
import { breakable } from "../ui/cut_text.js";
import { el, pictureWidth } from "../ui/dom.js";
import { throttle } from "../ui/scheduling.js";
import { emptyState, isEditingStep, panel, stepField, swatch, table } from "../ui/widgets.js";
import { phasesOfRuns } from "./phases_of_runs.js";

const MAX_RANKS = 64;
const DEAD = ["crashed", "killed", "stalled"];

export function timeView(host, context) {
  const area = el("div", { class: "stack-host" });
  const legend = el("div", { class: "legend" });
  const lower = el("div");
  const timelineHost = el("div");
  const engineHost = el("div", { class: "family" });
  const selected = el("div");
  const store = new SeriesStore();
  let bars = null;
  let data = null;
  let timeline = null;
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
    draw();
    await readStep();
  }

  function draw() {
    const switcher = el(
      "span",
      { class: "facts" },
      report ? null : el("span", { text: t("click_step") }),
      statButton("seconds"),
      statButton("share"),
    );
    bars ??= new StackedBars(area, report ? null : (step) => setState({ step }));
    host.replaceChildren(panel(t("where_step"), switcher, area, legend), timelineHost, engineHost, lower);
    drawPhases(bars, data, getState("stat") === "share", legend);
    drawLower();
  }

  function drawLower() {
    lower.replaceChildren(selected, summaries(data, timeline), ranks(data, phaseColours(data.phases)) ?? "");
  }

  // The phases of all selected runs, per step.
  async function readSelected() {
    if (context.chosen.length < 2) return;
    try {
      const found = await fetchJson("/api/compare", { run: context.chosen });
      selected.replaceChildren(found.phases.length ? phasesOfRuns(found) : "");
    } catch (problem) {
      context.fail(problem);
    }
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
    timeline = null;
    try {
      timeline = await fetchJson(runPath(context.run, "timeline"), { step: getState("step") });
    } catch (problem) {
      timelineHost.replaceChildren(
        panel(t("one_step", { n: getState("step") }), "", el("p", { class: "quiet", text: problem.message })),
      );
    }
    if (!host.isConnected) return;
    if (timeline && !timeline.groups.length) timeline = null;
    if (timeline) timelineHost.replaceChildren(timelinePanel(timeline, data, pictureWidth(host)));
    else if (!timelineHost.childElementCount) {
      timelineHost.replaceChildren(el("p", { class: "quiet pad", text: t("no_spans") }));
    }
    bars.choose(timeline?.step ?? null);
    drawLower();
  }

  readSelected();
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

function timelinePanel(timeline, data, width) {
  const [first, last] = timeline.steps;
  const turn = (text, label, by) =>
    el("button", {
      text,
      "aria-label": label,
      onclick: () => setState({ step: clamp(timeline.step + by, first, last) }),
    });
  const controls = el(
    "span",
    { class: "facts" },
    report ? null : turn("‹", "−1", -1),
    stepField(timeline.steps, timeline.step),
    report ? null : turn("›", "+1", 1),
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
  const colours = timelineColours(
    phaseColours(data.phases),
    timeline.groups,
    data.summaries.map((one) => one.name),
  );
  return panel(
    `${t("one_step", { n: timeline.step })} · ${formatSeconds(stepSeconds(timeline, data))}`,
    controls,
    el("div", { class: "scroll", tabindex: 0 }, timelinePicture(timeline, colours, width)),
    facts,
  );
}

// How long a step took: as its bar says, where it has one for itself. Other roles may begin their step earlier.
function stepSeconds({ step, start, end }, { steps, steps_end, step_seconds }) {
  const place = steps.indexOf(step);
  return (steps_end[place] === step ? step_seconds[place] : null) ?? end - start;
}

// The phases in numbers: those of the chosen step, then of all steps.
function summaries(data, timeline) {
  if (!data.summaries.length) {
    const rows = data.phases.map((one) => [breakable(one.name), formatSeconds(one.mean), formatPercent(one.share)]);
    return panel(t("phases_title"), "", table([t("phase"), t("mean_per_step"), t("share")], rows, "right"));
  }
  const inStep = timeline ? secondsByName(timeline) : null;
  const rows = data.summaries.map((one) => [
    breakable(one.name),
    ...(inStep ? [inStep.has(one.name) ? formatSeconds(inStep.get(one.name)) : "–"] : []),
    formatSeconds(one.per_step),
    formatPercent(one.share),
    formatSeconds(one.mean),
    formatSeconds(one.p95),
    formatSeconds(one.max),
    one.count,
    one.slowest,
    one.tokens_per_second ? formatShort(one.tokens_per_second) : "–",
  ]);
  const heads = [
    t("phase"),
    ...(inStep ? [t("at_step", { n: timeline.step })] : []),
    t("mean_per_step"),
    t("share"),
    t("mean_per_call"),
    t("p95_per_call"),
    t("max_per_call"),
    t("calls"),
    t("slowest"),
    t("tokens_per_second"),
  ];
  return panel(t("phases_title"), "", table(heads, rows, "right"));
}

// The seconds of each phase in a step, of the writer that spent most on it.
function secondsByName({ groups }) {
  const found = new Map();
  for (const { rows } of groups) {
    for (const { name, seconds } of rows) found.set(name, Math.max(seconds, found.get(name) ?? 0));
  }
  return found;
}

// The time per step of each rank, by node where there are several. Dead ranks are marked.
function ranks(data, colours) {
  if (!data.ranks.length) return null;
  const slowest = Math.max(...data.ranks.map((one) => one.seconds ?? 0));
  const bar = (name, seconds) => {
    const background = colours.get(name) ?? cssVariable("--hair-strong");
    const text = `${name} ${formatSeconds(seconds)}`;
    return el("i", { title: text, style: { width: `${(100 * seconds) / slowest}%`, background } });
  };
  const row = (one) => [
    el(
      "span",
      { text: one.writer },
      DEAD.includes(one.status) ? el("b", { class: "dead", text: t(one.status) }) : null,
    ),
    el(
      "span",
      { class: "track" },
      Object.entries(one.phases).map(([name, seconds]) => bar(name, seconds)),
    ),
    el("span", { text: one.seconds === null ? "–" : formatSeconds(one.seconds) }),
  ];
  if (!data.nodes.length) {
    const rows = data.ranks.slice(0, MAX_RANKS).flatMap(row);
    return panel(t("slow_ranks"), t("per_step"), el("div", { class: "bars" }, rows));
  }
  const most = Math.max(1, Math.floor(MAX_RANKS / data.nodes.length));
  const rows = data.nodes.flatMap((node, place) => {
    const own = data.ranks.filter((one) => one.host === node.host);
    const alive = own.filter((one) => !DEAD.includes(one.status)).slice(0, most);
    const dead = own.filter((one) => DEAD.includes(one.status)).slice(0, most);
    return [nodeRow(node, place === 0 && node.seconds !== null), ...[...alive, ...dead].flatMap(row)];
  });
  return panel(t("slow_nodes"), t("per_step"), el("div", { class: "bars" }, rows));
}

function nodeRow(node, isSlowest) {
  const facts = [
    node.host ?? t("unknown_node"),
    t("ranks_count", { n: node.ranks }),
    ...(node.dead ? [t("dead_count", { n: node.dead })] : []),
    ...(isSlowest ? [t("slowest_node")] : []),
  ];
  return el(
    "div",
    { class: "node" },
    el("span", { text: facts.join(" · ") }),
    el("span", { text: node.seconds === null ? "–" : formatSeconds(node.seconds) }),
  );
}
