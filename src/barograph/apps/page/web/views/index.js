// The views by the name of their tab. All but the first are loaded when they are opened.
import { report } from "../data/report.js";
import { overviewView } from "./overview.js";

const VIEWS = {
  overview: () => overviewView,
  charts: async () => (await import("./charts.js")).chartsView,
  time: async () => (await import("./time.js")).timeView,
  memory: async () => (await import("./memory.js")).memoryView,
  evaluation: async () => (await import("./evaluation.js")).evaluationView,
  samples: async () => (await import("./samples.js")).samplesView,
  findings: async () => (await import("./findings.js")).findingsView,
  compare: async () => (await import("./compare.js")).compareView,
  config: async () => (await import("./config.js")).configView,
  names: async () => (await import("./names.js")).namesView,
  table: async () => (await import("./table.js")).tableView,
  report: async () => (await import("./written.js")).writtenView,
};

const BESIDE = ["table", "report"]; // of all runs: they have their places beside the name of the page

// The views of a run or of the selected runs; a file with a written report has that alone.
export const TABS = report?.blocks
  ? []
  : Object.keys(VIEWS).filter((tab) => !BESIDE.includes(tab) && (!report || tab !== "compare"));

// The function that draws the view of a tab; of an unknown one, the overview.
export async function loadView(tab) {
  return (VIEWS[tab] ?? VIEWS.overview)();
}
