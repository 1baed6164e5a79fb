// The dialogs in which a chart or a table of a report is made or changed.

import { choice, formPair, numberField, openPanelForm } from "../charts/panel_editor.js";
import { fetchJson } from "../data/api.js";
import { runs } from "../data/runs.js";
import { comparedTitle } from "../text/labels.js";
import { t } from "../text/language.js";
import { labelled, openForm } from "../ui/ask.js";
import { listField } from "../ui/list_field.js";
import { chartSource, runsSource } from "./source.js";

const HEADLINES = ["reward", "validation", "kl", "entropy", "length", "grad_norm", "throughput"];

// Edit the chart of a block, or a new one of these runs; `done` gets its source.
export async function editChart(block, legend, keys, done) {
  const { metrics = [], runs: ofChart, by, against } = block?.wanted ?? {};
  const panel = { ...block?.panel, metrics, against };
  const compared = await fetchJson("/api/compare", { run: block?.runs.length ? block.runs : keys });
  const choices = [
    ...HEADLINES.map((key) => ({ key, title: key })),
    ...compared.charts.map((chart) => ({ key: chart.key, title: comparedTitle(chart) })),
  ];
  const members = runsField(t("runs_of_block"), ofChart ?? [], legend);
  const grouping = byField(by, compared.config, [["", t("by_report")]]);
  const [from, to] = [panel.from, panel.to].map((end) => numberField(end, { step: 1 }));
  openPanelForm(panel, choices, {
    title: t("block_chart"),
    free: true,
    scale: t("linear"),
    more: [
      ...members.nodes,
      formPair(labelled(t("group_how"), grouping), labelled(t("steps_from"), from), labelled(t("steps_to"), to)),
    ],
    done: (made) =>
      done(chartSource({ ...made, runs: members.values(), by: grouping.value, from: from.value, to: to.value })),
  });
}

// Edit a table of runs, or a new one; the charts after it are of its runs.
export async function editRuns(block, legend, keys, done) {
  const { runs: given = [], by, columns = [] } = block?.wanted ?? {};
  const compared = await fetchJson("/api/compare", { run: block?.runs.length ? block.runs : keys });
  const members = runsField(t("runs_of_report"), given, legend);
  const grouping = byField(by, compared.config, []);
  const choices = [...compared.config.map(({ key }) => key), ...HEADLINES, ...compared.charts.map(({ key }) => key)];
  const shown = listField(
    t("table_columns"),
    columns,
    choices.map((key) => ({ key, title: key })),
    { free: true },
  );
  openForm(
    { title: t("block_runs"), className: "panel-editor" },
    [...members.nodes, labelled(t("group_how"), grouping), ...shown.nodes],
    () => done(runsSource({ runs: members.values(), by: grouping.value, columns: shown.values() })),
  );
}

// Runs by their keys, with the names that are known.
function runsField(label, chosen, legend) {
  const names = new Map([...runs.values()].map(({ key, name }) => [key, name]));
  for (const [key, name] of legend.names) names.set(key, name);
  const choices = [...names].map(([key, title]) => ({ key, title }));
  return listField(label, chosen, choices, { free: true });
}

function byField(by, config, first) {
  const options = [
    ...first,
    ["seeds", t("group_seeds")],
    ["none", t("group_none")],
    ...config.map(({ key }) => [key, key]),
  ];
  if (by && !options.some(([value]) => value === by)) options.push([by, by]);
  return choice(options, by ?? options[0][0]);
}
