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
import { shownSteps, stepCounts } from "./step_counts.js";
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

// What is known of the prompt of a sample over training, with the answers of a few steps; null of a single answer.
export async function readTraining(search, sample) {
  const found = await search({ task: sample.task, sort: "step", limit: 1 });
  if (found.matched < 2) return null;
  const counts = found.over_training ?? stepCounts(found.samples); // a report has all of its samples
  const steps = shownSteps(counts.steps, sample.step, SHOWN_STEPS);
  const answers = await Promise.all(steps.map((step) => search({ task: sample.task, step, limit: 1 })));
  return { counts, answers: answers.flatMap(({ samples }) => samples.slice(0, 1)) };
}

// One answer per step, with the mean reward and the share solved over the steps; its difference is to the step before.
export function trainingPanel({ counts, answers }, sample, context) {
  const area = el("div", { class: "mini-plot" });
  const lines = [
    { run: context.run, label: t("mean_reward"), colour: context.colour, main: curve(counts, counts.reward) },
    {
      run: `${context.run} solved`,
      label: t("solved_share"),
      colour: context.colour + 2,
      main: curve(counts, counts.solved),
    },
  ].filter((line) => line.main.last.some(Number.isFinite));
  const facts = el(
    "span",
    { class: "facts" },
    el("span", { text: visibleText(sample.task) }),
    lines.map((line) => swatch(seriesColour(line.colour), line.label)),
    el("span", { text: counts.share === null ? "" : t("solved", { n: Math.round(100 * counts.share) }) }),
    diffButton(),
  );
  const columns = answers.map((one, i) => column(one, answers[i - 1] ?? null));
  const node = panel(t("over_training"), facts, area, el("div", { class: "side-by-side" }, columns));
  const plot = new Plot(area, { title: t("over_training"), zero: true });
  plot.setLines(lines);
  return { node, plot };
}

function curve({ steps, samples }, values) {
  const points = samples.reduce((sum, one) => sum + one, 0);
  return seriesFromJson({ name: "", found: true, points, exact: true, x: steps, last: values });
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
