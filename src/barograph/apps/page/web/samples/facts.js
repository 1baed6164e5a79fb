// The facts of a sample as chips; a click on one keeps only the samples that have it.
import { getState, setState } from "../data/url_state.js";
import { formatNumber, toNumber } from "../text/format.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { visibleText } from "./texts.js";

export function rewardChip(sample) {
  const reward = toNumber(sample.reward);
  return el("span", {
    class: "reward-chip",
    text: formatNumber(sample.reward),
    style: { "--r": String(Math.max(0, Math.min(1, reward || 0))) },
  });
}

// Label, value and column of each fact that a sample has.
export function factsOf(sample) {
  const fixed = [
    [t("step"), sample.step, "step"],
    [t("task"), sample.task, "task"],
    [t("group"), sample.group, "group"],
    [t("advantage"), sample.advantage, "advantage"],
    [t("length"), sample.length, "length"],
    [t("finish"), sample.finish_reason, "finish_reason"],
    [t("version"), sample.weight_version, "weight_version"],
  ];
  const rewards = Object.entries(sample.rewards ?? {}).map(([name, value]) => [name, value, `reward.${name}`]);
  const label = (name) => (name === "tool_calls" ? t("tool_calls") : name);
  const further = Object.entries(sample.columns ?? {}).map(([name, value]) => [label(name), value, name]);
  const all = [...fixed, ...rewards, ...further, [t("discarded"), sample.discarded, "discarded"]];
  return all.filter(([, value]) => value !== null && value !== undefined && value !== "");
}

export function sampleFacts(sample, leftOut = []) {
  const chips = factsOf(sample)
    .filter(([, , column]) => !leftOut.includes(column))
    .map(([label, value, column]) => factChip(label, value, column));
  return el("span", { class: "facts" }, sample.reward === null ? null : rewardChip(sample), chips);
}

function factChip(label, value, column) {
  const shown = typeof value === "number" ? formatNumber(value) : visibleText(String(value));
  return el("button", {
    class: column === "discarded" ? "fact discarded" : "fact",
    text: column === "step" ? t("at_step", { n: shown }) : `${visibleText(label)} ${shown}`,
    title: t("only_these"),
    onclick: () => addCondition(column, "=", value),
  });
}

// Add a condition to those of the search.
export function addCondition(column, order, value) {
  const name = /^[^\s=<>!~"',]+$/.test(column) ? column : quoted(column);
  const isPlain = typeof value !== "string" || /^[\w.:+-]+$/.test(value);
  const added = `${name} ${order} ${isPlain ? value : quoted(value)}`;
  const where = getState("where");
  if (!where.includes(added)) setState({ where: where ? `${where} and ${added}` : added });
}

function quoted(text) {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}
