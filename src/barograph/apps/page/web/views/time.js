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
import { elementOf, html, nothing } from "../ui/html.js";
import { throttle } from "../ui/scheduling.js";
import { emptyState, isEditingStep, panel, stepField, swatch, table } from "../ui/widgets.js";
import { phasesOfRuns } from "./phases_of_runs.js";

const MAX_RANKS = 64;
const DEAD = ["crashed", "killed", "stalled"];

export const timeView = (host, context) => new TimeView(host, context);

class TimeView {
  constructor(host, context) {
    this.host = host;
    this.context = context;
    this.area = el("div", { class: "stack-host" });
    this.legend = el("div", { class: "legend" });
    this.timelineHost = el("div");
    this.engineHost = el("div", { class: "family" });
    this.lower = el("div");
    this.selected = el("div");
    this.store = new SeriesStore();
    this.bars = null;
    this.data = null;
    this.timeline = null;
    this.update = throttle(3000, () => isEditingStep() || this.read());
    this.readSelected();
    this.read();
  }

  async read() {
    const data = await this.context.load(fetchJson(runPath(this.context.run, "phases")));
    if (!data) return;
    this.data = data;
    this.drawEngines();
    if (!data.phases.length) {
      const shown = this.store.cards.length ? this.engineHost : emptyState(t("no_phases"), t("no_phases_do"));
      return this.host.replaceChildren(shown);
    }
    this.draw();
    await this.readStep();
  }

  draw() {
    const { area, legend, timelineHost, engineHost, lower } = this;
    const hint = report ? null : el("span", { text: t("click_step") });
    const switcher = el("span", { class: "facts" }, hint, statButton("seconds"), statButton("share"));
    this.bars ??= new StackedBars(area, report ? null : (step) => setState({ step }));
    this.host.replaceChildren(panel(t("where_step"), switcher, area, legend), timelineHost, engineHost, lower);
    drawPhases(this.bars, this.data, getState("stat") === "share", legend);
    this.drawLower();
  }

  drawLower() {
    const { data, timeline } = this;
    const slowest = ranks(data, phaseColours(data.phases)) ?? "";
    this.lower.replaceChildren(this.selected, summaries(data, timeline), slowest);
  }

  // The phases of all selected runs, per step.
  async readSelected() {
    const { chosen } = this.context;
    const found = chosen.length > 1 && (await this.context.load(fetchJson("/api/compare", { run: chosen })));
    if (found) this.selected.replaceChildren(found.phases.length ? phasesOfRuns(found) : "");
  }

  // The totals over engines; each engine and each phase is in Charts.
  drawEngines() {
    const { title, charts, metrics } = this.data.engine;
    if (charts.length === this.store.cards.length) return this.store.refresh();
    const cards = charts.map((chart) => new ChartCard(this.store, metricChart(chart, metrics, [this.context.run])));
    const nodes = cards.map((card) => card.node);
    this.engineHost.replaceChildren(el("h2", { text: localized(title) }), el("div", { class: "charts-grid" }, nodes));
    this.store.setCards(cards);
  }

  async readStep() {
    const { data, host, timelineHost } = this;
    const step = getState("step");
    let timeline = null;
    try {
      timeline = await fetchJson(runPath(this.context.run, "timeline"), { step });
    } catch (problem) {
      const text = el("p", { class: "quiet", text: problem.message });
      timelineHost.replaceChildren(panel(t("one_step", { n: step }), "", text));
    }
    if (!host.isConnected) return;
    this.timeline = timeline?.groups.length ? timeline : null;
    if (this.timeline) timelineHost.replaceChildren(timelinePanel(timeline, data, pictureWidth(host)));
    else if (!timelineHost.childElementCount) {
      timelineHost.replaceChildren(el("p", { class: "quiet pad", text: t("no_spans") }));
    }
    this.bars.choose(this.timeline?.step ?? null);
    this.drawLower();
  }

  changed(names) {
    if (!this.data) return;
    if (names.includes("stat")) this.draw();
    if (names.includes("step")) this.readStep();
    if (names.some((name) => ["from", "to", "x"].includes(name))) this.store.refresh(true);
  }

  destroy() {
    this.bars?.destroy();
    this.store.setCards([]);
  }
}

function statButton(stat) {
  const isShown = getState("stat") === stat;
  return el("button", { text: t(stat), "aria-pressed": isShown, onclick: () => setState({ stat }) });
}

function timelinePanel(timeline, data, width) {
  const [first, last] = timeline.steps;
  const turn = (text, label, by) => {
    const go = () => setState({ step: clamp(timeline.step + by, first, last) });
    return report ? nothing : html`<button aria-label=${label} @click=${go}>${text}</button>`;
  };
  const controls = elementOf(html`<span class="facts">
    ${turn("‹", "−1", -1)}${stepField(timeline.steps, timeline.step)}${turn("›", "+1", 1)}
  </span>`);
  const faintInk = `color-mix(in srgb, ${cssVariable("--ink")} 40%, transparent)`;
  const share = (label, value) => html`<span>${label} ${formatPercent(value)}</span>`;
  const facts = html`<div class="legend">
    ${swatch(faintInk, t("onload"))}${swatch(cssVariable("--ink"), t("execute"))}${swatch(faintInk, t("offload"))}
    ${share(t("unaccounted"), timeline.unaccounted)}${timeline.overlap ? share(t("overlap"), timeline.overlap) : nothing}
  </div>`;
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
  const row = (one) => rankRow(one, slowest, colours);
  if (!data.nodes.length) {
    const rows = data.ranks.slice(0, MAX_RANKS).map(row);
    return panel(t("slow_ranks"), t("per_step"), html`<div class="bars">${rows}</div>`);
  }
  const most = Math.max(1, Math.floor(MAX_RANKS / data.nodes.length));
  const rows = data.nodes.map((node, place) => {
    const own = data.ranks.filter((one) => one.host === node.host);
    const alive = own.filter((one) => !DEAD.includes(one.status)).slice(0, most);
    const dead = own.filter((one) => DEAD.includes(one.status)).slice(0, most);
    return [nodeRow(node, place === 0 && node.seconds !== null), [...alive, ...dead].map(row)];
  });
  return panel(t("slow_nodes"), t("per_step"), html`<div class="bars">${rows}</div>`);
}

function rankRow({ writer, status, phases, seconds }, slowest, colours) {
  const bar = ([name, spent]) => {
    const colour = colours.get(name) ?? cssVariable("--hair-strong");
    const style = `width: ${(100 * spent) / slowest}%; background: ${colour}`;
    return html`<i title="${name} ${formatSeconds(spent)}" .style=${style}></i>`;
  };
  return html`<span>${writer}${DEAD.includes(status) ? html`<b class="dead">${t(status)}</b>` : nothing}</span>
    <span class="track">${Object.entries(phases).map(bar)}</span>
    <span>${seconds === null ? "–" : formatSeconds(seconds)}</span>`;
}

function nodeRow(node, isSlowest) {
  const facts = [
    node.host ?? t("unknown_node"),
    t("ranks_count", { n: node.ranks }),
    ...(node.dead ? [t("dead_count", { n: node.dead })] : []),
    ...(isSlowest ? [t("slowest_node")] : []),
  ];
  const seconds = node.seconds === null ? "–" : formatSeconds(node.seconds);
  return html`<div class="node"><span>${facts.join(" · ")}</span><span>${seconds}</span></div>`;
}
