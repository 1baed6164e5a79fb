// The Evaluation view: mean@k, best@k, worst@k and pass@k over steps and over k, and coverage.

import { dashSign } from "../charts/card.js";
import { Plot } from "../charts/plot.js";
import { valueTexts } from "../charts/values.js";
import { fetchJson, runPath } from "../data/api.js";
import { fetchOthers } from "../data/other_runs.js";
import { seriesFromJson } from "../data/series.js";
import { formatNumber } from "../text/format.js";
import { t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { throttle } from "../ui/scheduling.js";
import { emptyState, panel, swatch, table } from "../ui/widgets.js";

// Statistics with a line, and their interval as a band; the table has all of them.
const MAIN = ["mean", "best", "worst", "pass", "maj", "value"];

export function evaluationView(host, context) {
  let plots = [];

  function destroy() {
    for (const plot of plots) plot.destroy();
  }

  async function read() {
    const mine = fetchJson(runPath(context.run, "evaluation"));
    const found = await context.load(Promise.all([mine, fetchOthers(context, "evaluation")]));
    if (!found) return;
    const [data, others] = found;
    destroy();
    plots = [];
    if (!data.sets.length && !data.validation.length)
      return host.replaceChildren(emptyState(t("no_eval"), t("no_eval_do")));
    const chosen = others.length ? [{ ...context, data }, ...others] : [];
    const sets = data.sets.map((set) => taskSet(set, plots, chosen));
    const validation = data.validation.map((one) => validationPanel(one, plots, chosen));
    host.replaceChildren(
      ...sets,
      el("div", { class: "pair" }, validation),
      data.coverage.length ? coveragePanel(data.coverage) : "",
    );
  }

  read();
  return { update: throttle(3000, read), destroy };
}

function label(one) {
  return `${one.statistic}${one.k === null ? "" : `@${one.k}`} ${one.part ?? ""}`;
}

function mainStatistics(set) {
  return set.statistics.filter(
    (one) => one.curve?.found && MAIN.includes(one.statistic) && [null, "mean"].includes(one.part),
  );
}

// The first statistic of a task set as a line of each selected run that has it.
function linesOfRuns(set, chosen) {
  const [first] = mainStatistics(set);
  return chosen.flatMap(({ run, name, colour, data }) => {
    const same = data.sets.find((one) => ["suite", "taskset", "metric"].every((field) => one[field] === set[field]));
    const found = first && same && mainStatistics(same).find((one) => label(one) === label(first));
    return found ? [{ run, label: `${name} · ${label(found)}`, colour, main: seriesFromJson(found.curve) }] : [];
  });
}

// `chosen` are the selected runs with their data, where there are several.
function taskSet(set, plots, chosen) {
  const shown = mainStatistics(set);
  const curveOf = (one, part) => {
    const same = (other) => other.statistic === one.statistic && other.part === part && other.k === one.k;
    const curve = set.statistics.find(same)?.curve;
    return curve?.found ? seriesFromJson(curve) : null;
  };
  const ofOne = shown.map((one, i) => ({
    label: label(one),
    colour: i,
    main: seriesFromJson(one.curve),
    max: curveOf(one, "high"),
    min: curveOf(one, "low"),
  }));
  const lines = chosen.length ? linesOfRuns(set, chosen) : ofOne;
  const area = el("div", { class: "mid-plot" });
  const legend = el("div", { class: "legend" });
  const showLast = () =>
    legend.replaceChildren(
      ...lines.map((line) => swatch(seriesColour(line.colour), `${line.label} ${formatNumber(line.main.last.at(-1))}`)),
    );
  const showCursor = ({ x, values }) => {
    const texts = valueTexts(values);
    const steps = [...new Set(values.map((one) => one.x))]; // those of the shown values
    legend.replaceChildren(
      el("span", { text: t("at_step", { n: steps.length ? steps.join(", ") : Math.round(x) }) }),
      ...texts.map(({ line, text }) => swatch(seriesColour(line.colour), `${line.label} ${text}`)),
    );
  };
  const title = `${set.taskset} · ${set.metric}`;
  const plot = new Plot(area, { title, oncursor: (cursor) => (cursor ? showCursor(cursor) : showLast()) });
  plot.lines = lines;
  plots.push(plot);
  showLast();
  const rows = set.statistics.map((one) => [
    label(one),
    formatNumber(one.first),
    formatNumber(one.last),
    one.step,
    one.name,
  ]);
  const all = el(
    "details",
    {},
    el("summary", { text: `${t("all_numbers")} (${rows.length})` }),
    table([t("statistic"), t("first"), t("last"), t("step"), t("as_logged")], rows),
  );
  const byK = overK(title, set.by_k, plots);
  return el(
    "div",
    { class: "pair" },
    panel(title, set.suite, area, legend),
    byK ? panel(title, t("over_k"), ...byK, all) : panel(title, "", all),
  );
}

// Statistics over k: the last evaluation solid, the first one dashed.
function overK(title, byK, plots) {
  const known = Object.entries(byK).filter(([name, one]) => one.k.length > 1 && MAIN.includes(name));
  if (!known.length) return null;
  const area = el("div", { class: "mid-plot" });
  const lines = known.flatMap(([name, one], i) => [
    { label: `${name} ${t("first")}`, colour: i, dash: 1, main: seriesOverK(name, one.k, one.first) },
    { label: name, colour: i, main: seriesOverK(name, one.k, one.last) },
  ]);
  const plot = new Plot(area, { title: `${title}, ${t("over_k")}`, x: "k" });
  plot.lines = lines;
  plots.push(plot);
  return [
    area,
    el(
      "div",
      { class: "legend" },
      known.map(([name], i) => swatch(seriesColour(i), `${name}@k`)),
      el("span", { text: `${dashSign(1)}${t("first")}` }),
      el("span", { text: "x: k" }),
    ),
  ];
}

function seriesOverK(name, x, last) {
  return seriesFromJson({ name, found: true, exact: true, points: x.length, x, last });
}

function validationPanel(one, plots, chosen) {
  const area = el("div", { class: "mini-plot" });
  const plot = new Plot(area, { title: one.name });
  const lines = chosen.flatMap(({ run, name, colour, data }) => {
    const same = data.validation.find((other) => other.metric === one.metric && other.tag === one.tag);
    return same ? [{ run, ...validationLine(same, colour), label: name }] : [];
  });
  plot.lines = lines.length ? lines : [validationLine(one, plots.length)];
  plots.push(plot);
  const legend = lines.map((line) =>
    swatch(seriesColour(line.colour), `${line.label} ${formatNumber(line.main.last.at(-1))}`),
  );
  return panel(one.name, formatNumber(one.last), area, el("div", { class: "legend" }, legend));
}

function validationLine(one, colour) {
  const { mean, max, min, line } = Object.fromEntries(
    Object.entries(one.curves).map(([statistic, curve]) => [statistic, seriesFromJson(curve)]),
  );
  return { label: one.name, colour, main: mean ?? line ?? max ?? min, max: mean && max, min: mean && min };
}

function coveragePanel(all) {
  const names = [...new Set(all.flatMap((one) => Object.keys(one.counts)))];
  const rows = all.map((one) => [
    `${one.suite} ${one.taskset}`,
    ...names.map((name) => (one.counts[name] ? formatNumber(one.counts[name].last) : "–")),
  ]);
  return panel(t("coverage"), t("last"), table([t("task_set"), ...names.map((name) => t(name))], rows, "right"));
}
