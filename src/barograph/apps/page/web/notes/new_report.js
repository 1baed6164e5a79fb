// Begin a report, and add a chart to one.
import { zoomRange } from "../charts/zoom.js";
import { fetchReports, fetchWritten, saveReport } from "../data/reports.js";
import { getList, setState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { labelled, openForm } from "../ui/ask.js";
import { el } from "../ui/dom.js";
import { menuItem, openMenuAt } from "../ui/menu.js";
import { offerUndo, showMessage } from "../ui/toast.js";
import { chartSource, joinSources, runsSource } from "./source.js";

// Ask for the name of a report, and call `done` with one that is not taken.
export function askName(title, suggested, done) {
  const field = el("input", { type: "text", value: suggested, maxlength: 100, required: true });
  openForm({ title }, [labelled(t("name"), field)], () => attempt(() => useName(field.value.trim(), done)));
  field.select();
}

async function useName(name, done) {
  const taken = (await fetchReports()).some((one) => one.name === name);
  if (taken) showMessage(t("report_exists", { n: name }));
  else await done(name);
}

// Begin a report of some runs, and open it.
export function beginReport(keys) {
  askName(t("report_new"), dated(), async (name) => {
    const { text } = await fetchWritten({ name, draft: true }, keys);
    await saveReport(name, text);
    setState({ tab: "report", report: name });
  });
}

function dated() {
  return `${t("report_new_of")} ${new Date().toISOString().slice(0, 10)}`;
}

// The menu with the reports to which the chart of a card can be added, and a new one.
export async function openAddMenu(button, card) {
  const source = sourceOf(card);
  const known = (await fetchReports()).map(({ name }) =>
    item(name, async () => {
      const { text } = await fetchWritten({ name }, []);
      await keep(name, joinSources([text, source]), text);
    }),
  );
  const fresh = item(t("report_new"), () =>
    askName(t("report_new"), dated(), (name) =>
      keep(name, joinSources([`# ${name}`, runsSource(noRuns), source]), null),
    ),
  );
  const noRuns = { runs: runsOf(card), by: "", columns: [] };
  const close = openMenuAt(button, known, fresh);

  function item(label, work) {
    return menuItem(label, () => {
      close();
      attempt(async () => work());
    });
  }
}

async function keep(name, text, before) {
  await saveReport(name, text);
  offerUndo(t("report_added", { n: name }), () => saveReport(name, before), [
    t("report_open"),
    () => setState({ tab: "report", report: name, chart: "" }),
  ]);
}

// The runs that a card draws.
function runsOf(card) {
  return [...new Set(card.requests().map((one) => one.run))];
}

// A card as it looks now: its metrics and runs, the groups, the smoothing, the scale and the zoom.
export function sourceOf(card) {
  const { lines, panel = {}, settings = {} } = card.chart;
  const metrics = [...new Map(lines.map((line) => [line.of ?? "", line.mean])).values()];
  const isGrouped = lines.some((line) => line.isGroup);
  const range = card.axis() === "step" ? zoomRange() : null;
  const smooth = Number(card.smoothing());
  return chartSource({
    ...settings,
    ...panel,
    metrics,
    against: panel.kind && panel.kind !== "lines" ? lines.find((line) => line.against)?.against : undefined,
    runs: runsOf(card),
    by: isGrouped ? getList("pool").join(", ") || "seeds" : "none",
    smooth: smooth || undefined,
    log: card.isLog() || undefined,
    from: range ? Math.ceil(range[0]) : undefined,
    to: range ? Math.floor(range[1]) : undefined,
  });
}

export async function attempt(work) {
  try {
    await work();
  } catch (problem) {
    showMessage(problem.message);
  }
}
