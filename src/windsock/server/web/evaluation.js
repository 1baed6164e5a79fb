// Task sets: mean@k, best@k, worst@k and pass@k over steps and over k, with their coverage.
import { ask, fromJSON, runPath } from "./api.js";
import { el, hue, paced, show } from "./dom.js";
import { empty, panel, swatch, table, valueText } from "./parts.js";
import { Plot } from "./plot.js";
import { t } from "./words.js";

const MAIN = ["mean", "best", "worst", "pass", "maj", "value"]; // with their interval as a band; the rest is in the table

export function evaluationView(host, context) {
  let plots = [];

  async function read() {
    let data;
    try {
      data = await ask(runPath(context.run, "evaluation"));
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    plots.forEach((plot) => plot.destroy());
    plots = [];
    if (!data.sets.length && !data.validation.length) return host.replaceChildren(empty(t("no_eval"), t("no_eval_do")));
    const sets = data.sets.map((set) => taskSet(set, plots));
    const validation = data.validation.map((one) => single(one, plots));
    host.replaceChildren(
      ...sets,
      el("div", { class: "pair" }, validation),
      data.coverage.length ? coverage(data.coverage) : "",
    );
  }

  read();
  return { update: paced(3000, read), destroy: () => plots.forEach((plot) => plot.destroy()) };
}

function label(one) {
  return `${one.statistic}${one.k === null ? "" : `@${one.k}`} ${one.part ?? ""}`;
}

function taskSet(set, plots) {
  const shown = set.statistics.filter(
    (one) => one.curve?.found && MAIN.includes(one.statistic) && [null, "mean"].includes(one.part),
  );
  const beside = (one, part) =>
    set.statistics.find((other) => other.statistic === one.statistic && other.part === part && other.k === one.k)
      ?.curve;
  const curve = (found) => (found?.found ? fromJSON(found) : null);
  const lines = shown.map((one, i) => ({
    label: label(one),
    colour: i,
    main: fromJSON(one.curve),
    max: curve(beside(one, "high")),
    min: curve(beside(one, "low")),
  }));
  const area = el("div", { class: "mid-plot" });
  const told = el("div", { class: "legend" });
  const rest = () =>
    told.replaceChildren(...lines.map((line, i) => swatch(hue(i), `${line.label} ${show(line.main.last.at(-1))}`)));
  const plot = new Plot(area, {
    onpoint: (at) =>
      at
        ? told.replaceChildren(
            el("span", { text: `${t("step")} ${Math.round(at.x)}` }),
            ...valueText(at.values).map((one) => swatch(hue(one.line.colour), `${one.line.label} ${one.text}`)),
          )
        : rest(),
  });
  plot.lines = lines;
  plots.push(plot);
  rest();
  const rows = set.statistics.map((one) => [label(one), show(one.first), show(one.last), one.step, one.name]);
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
    panel(title, set.suite, area, told),
    byK ? panel(title, t("over_k"), ...byK, all) : panel(title, "", all),
  );
}

// Strong: the last evaluation; faint: the first one.
function overK(byK, plots) {
  const known = Object.entries(byK).filter(([name, one]) => one.k.length > 1 && MAIN.includes(name));
  if (!known.length) return null;
  const area = el("div", { class: "mid-plot" });
  const lines = known.flatMap(([name, one], i) => [
    { label: `${name} ${t("first")}`, colour: i, faint: true, main: column(name, one.k, one.first) },
    { label: name, colour: i, main: column(name, one.k, one.last) },
  ]);
  const plot = new Plot(area, { x: "k" });
  plot.lines = lines;
  plots.push(plot);
  return [
    area,
    el(
      "div",
      { class: "legend" },
      known.map(([name], i) => swatch(hue(i), `${name}@k`)),
      el("span", { text: `x: k` }),
    ),
  ];
}

function column(name, x, last) {
  return fromJSON({ name, found: true, exact: true, points: x.length, x, last });
}

function single(one, plots) {
  const area = el("div", { class: "mini-plot" });
  const plot = new Plot(area);
  const { mean, max, min, line } = Object.fromEntries(
    Object.entries(one.curves).map(([what, curve]) => [what, fromJSON(curve)]),
  );
  plot.lines = [
    { label: one.name, colour: plots.length, main: mean ?? line ?? max ?? min, max: mean && max, min: mean && min },
  ];
  plots.push(plot);
  return panel(one.name, show(one.last), area);
}

function coverage(all) {
  const names = [...new Set(all.flatMap((one) => Object.keys(one.counts)))];
  const rows = all.map((one) => [
    `${one.suite} ${one.taskset}`,
    ...names.map((name) => (one.counts[name] ? show(one.counts[name].last) : "–")),
  ]);
  return panel(t("coverage"), t("last"), table(["", ...names.map((name) => t(name))], rows, "right"));
}
