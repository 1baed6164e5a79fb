// The Evaluation view: mean@k, best@k, worst@k and pass@k over steps and over k, and coverage.

import { Plot } from "../charts/plot.js";
import { valueTexts } from "../charts/values.js";
import { fetchJson, runPath } from "../data/api.js";
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
    let data;
    try {
      data = await fetchJson(runPath(context.run, "evaluation"));
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    destroy();
    plots = [];
    if (!data.sets.length && !data.validation.length)
      return host.replaceChildren(emptyState(t("no_eval"), t("no_eval_do")));
    const sets = data.sets.map((set) => taskSet(set, plots));
    const validation = data.validation.map((one) => validationPanel(one, plots));
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

function taskSet(set, plots) {
  const shown = set.statistics.filter(
    (one) => one.curve?.found && MAIN.includes(one.statistic) && [null, "mean"].includes(one.part),
  );
  const curveOf = (one, part) => {
    const same = (other) => other.statistic === one.statistic && other.part === part && other.k === one.k;
    const curve = set.statistics.find(same)?.curve;
    return curve?.found ? seriesFromJson(curve) : null;
  };
  const lines = shown.map((one, i) => ({
    label: label(one),
    colour: i,
    main: seriesFromJson(one.curve),
    max: curveOf(one, "high"),
    min: curveOf(one, "low"),
  }));
  const area = el("div", { class: "mid-plot" });
  const legend = el("div", { class: "legend" });
  const showLast = () =>
    legend.replaceChildren(
      ...lines.map((line, i) => swatch(seriesColour(i), `${line.label} ${formatNumber(line.main.last.at(-1))}`)),
    );
  const showCursor = ({ x, values }) => {
    const texts = valueTexts(values);
    legend.replaceChildren(
      el("span", { text: `${t("step")} ${Math.round(x)}` }),
      ...texts.map(({ line, text }) => swatch(seriesColour(line.colour), `${line.label} ${text}`)),
    );
  };
  const plot = new Plot(area, { oncursor: (cursor) => (cursor ? showCursor(cursor) : showLast()) });
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
  const title = `${set.taskset} · ${set.metric}`;
  const all = el(
    "details",
    {},
    el("summary", { text: `${t("all_numbers")} (${rows.length})` }),
    table([t("statistic"), t("first"), t("last"), t("step"), t("as_logged")], rows),
  );
  const byK = overK(set.by_k, plots);
  return el(
    "div",
    { class: "pair" },
    panel(title, set.suite, area, legend),
    byK ? panel(title, t("over_k"), ...byK, all) : panel(title, "", all),
  );
}

// Statistics over k: the last evaluation strong, the first one faint.
function overK(byK, plots) {
  const known = Object.entries(byK).filter(([name, one]) => one.k.length > 1 && MAIN.includes(name));
  if (!known.length) return null;
  const area = el("div", { class: "mid-plot" });
  const lines = known.flatMap(([name, one], i) => [
    { label: `${name} ${t("first")}`, colour: i, faint: true, main: seriesOverK(name, one.k, one.first) },
    { label: name, colour: i, main: seriesOverK(name, one.k, one.last) },
  ]);
  const plot = new Plot(area, { x: "k" });
  plot.lines = lines;
  plots.push(plot);
  return [
    area,
    el(
      "div",
      { class: "legend" },
      known.map(([name], i) => swatch(seriesColour(i), `${name}@k`)),
      el("span", { text: "x: k" }),
    ),
  ];
}

function seriesOverK(name, x, last) {
  return seriesFromJson({ name, found: true, exact: true, points: x.length, x, last });
}

function validationPanel(one, plots) {
  const area = el("div", { class: "mini-plot" });
  const plot = new Plot(area);
  const { mean, max, min, line } = Object.fromEntries(
    Object.entries(one.curves).map(([statistic, curve]) => [statistic, seriesFromJson(curve)]),
  );
  plot.lines = [
    { label: one.name, colour: plots.length, main: mean ?? line ?? max ?? min, max: mean && max, min: mean && min },
  ];
  plots.push(plot);
  return panel(one.name, formatNumber(one.last), area);
}

function coveragePanel(all) {
  const names = [...new Set(all.flatMap((one) => Object.keys(one.counts)))];
  const rows = all.map((one) => [
    `${one.suite} ${one.taskset}`,
    ...names.map((name) => (one.counts[name] ? formatNumber(one.counts[name].last) : "–")),
  ]);
  return panel(t("coverage"), t("last"), table(["", ...names.map((name) => t(name))], rows, "right"));
}
