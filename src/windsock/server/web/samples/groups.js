// The answers to one prompt: side by side at a step, and over training.
import { Plot } from "../charts/plot.js";
import { seriesFromJson } from "../data/series.js";
import { getState, setState, toggleState } from "../data/url_state.js";
import { formatNumber, toNumber } from "../text/format.js";
import { t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { panel, swatch } from "../ui/widgets.js";
import { wordDiff } from "./diff.js";
import { sampleFacts } from "./facts.js";
import { answerText } from "./outputs.js";
import { textBlock } from "./text_block.js";
import { searchPattern, visibleText } from "./texts.js";

const SHOWN_STEPS = 6;
const COLUMN_FACTS = ["task", "group", "weight_version"]; // left out: they are the same in all columns

// All answers to the prompt of a sample at its step.
export function groupPanel(samples, sample) {
  const facts = el("span", { class: "facts" }, el("span", { text: visibleText(sample.group) }), diffButton());
  const columns = samples.map((one) => column(one, one.place === sample.place ? null : sample));
  const title = t("group_of", { n: sample.step });
  return panel(title, facts, colourStrip(samples, sample), el("div", { class: "side-by-side" }, columns));
}

// One answer per step, with the mean reward and the share solved over the steps; its difference is to the step before.
export function trainingPanel(samples, sample, context) {
  const steps = [...new Set(samples.map((one) => one.step))];
  const shown = evenlySpaced(steps, SHOWN_STEPS).map((step) => samples.find((one) => one.step === step));
  const area = el("div", { class: "mini-plot" });
  const main = meanByStep(samples, steps, (one) => one.reward);
  const share = meanByStep(samples, steps, isSolved);
  const lines = [
    { run: context.run, label: t("mean_reward"), colour: context.colour, main },
    { run: `${context.run} solved`, label: t("solved_share"), colour: context.colour + 2, main: share },
  ].filter((line) => line.main.last.some(Number.isFinite));
  const facts = el(
    "span",
    { class: "facts" },
    el("span", { text: visibleText(sample.task) }),
    lines.map((line) => swatch(seriesColour(line.colour), line.label)),
    el("span", { text: solvedText(samples) }),
    diffButton(),
  );
  const columns = shown.map((one, i) => column(one, shown[i - 1] ?? null));
  const node = panel(t("over_training"), facts, area, el("div", { class: "side-by-side" }, columns));
  const plot = new Plot(area, { zero: true });
  plot.setLines(lines);
  return { node, plot };
}

function diffButton() {
  const on = getState("diff") === "1";
  return el("button", { text: t("differences"), "aria-pressed": on, onclick: () => toggleState("diff") });
}

function column(sample, other) {
  const text = answerText(sample);
  const isDiff = other && getState("diff") === "1";
  const block = isDiff
    ? el("pre", { dir: "auto" }, diffNodes(answerText(other), text))
    : textBlock(text, searchPattern(getState("grep"), getState("rx") === "1"));
  return el("div", {}, sampleFacts(sample, COLUMN_FACTS), block);
}

function diffNodes(before, after) {
  const tags = { same: "span", gone: "del", new: "ins" };
  return wordDiff(before, after).map(([kind, text]) => el(tags[kind], { text: visibleText(text) }));
}

// A cell for each answer, tinted by its advantage or, without any, by its reward; a click opens it.
function colourStrip(samples, open) {
  const hasAdvantage = samples.some((one) => Number.isFinite(toNumber(one.advantage)));
  const values = samples.map((one) => toNumber(hasAdvantage ? one.advantage : one.reward));
  const largest = Math.max(...values.map(Math.abs).filter(Number.isFinite), 1e-9);
  const cells = samples.map((one, i) => {
    const share = Number.isFinite(values[i]) ? Math.round((70 * Math.abs(values[i])) / largest) : 0;
    const colour = values[i] < 0 ? "var(--s1)" : "var(--s0)";
    return el("button", {
      class: "cell",
      title: `${t("reward")} ${formatNumber(one.reward)} · ${t("advantage")} ${formatNumber(one.advantage)}`,
      "aria-current": one.place === open.place ? "true" : null,
      text: formatNumber(hasAdvantage ? one.advantage : one.reward),
      style: { background: `color-mix(in srgb, ${colour} ${share}%, var(--card))` },
      onclick: () => setState({ sample: one.place, tok: "" }),
    });
  });
  return el("div", { class: "strip" }, cells);
}

// 1 for a sample that is right, by its answer or, without one, by a reward above 0; 0 for others; null if that is unknown.
function isSolved({ columns, answer, reference, reward }) {
  const hasAnswers = answer !== null && reference !== null;
  const value = columns?.correct ?? (hasAnswers ? answer === reference : reward);
  return value === null ? null : Number(value > 0);
}

function solvedText(samples) {
  const known = samples.map(isSolved).filter((value) => value !== null);
  const share = known.reduce((sum, value) => sum + value, 0) / known.length;
  return known.length ? t("solved", { n: Math.round(100 * share) }) : "";
}

// At most `count` of the values, with the first and the last.
function evenlySpaced(values, count) {
  if (values.length <= count) return values;
  return Array.from({ length: count }, (_, i) => values[Math.round((i / (count - 1)) * (values.length - 1))]);
}

function meanByStep(samples, steps, value) {
  const groups = steps.map((step) =>
    samples
      .filter((one) => one.step === step)
      .map((one) => toNumber(value(one)))
      .filter(Number.isFinite),
  );
  const mean = groups.map((all) => all.reduce((sum, v) => sum + v, 0) / all.length);
  return seriesFromJson({ name: "", found: true, points: samples.length, exact: true, x: steps, last: mean });
}
