// The data of a report file, in the form of the server's responses.
import { findSample, searchSamples } from "./sample_search.js";

const embedded = document.getElementById("report-data");

export const report = embedded ? JSON.parse(embedded.textContent) : null;

export function reportResponse(path, parameters) {
  const view = path.split("/")[4] ?? path.split("/")[2];
  if (view === "runs") return { cursor: "", gone: [], total: 1, hidden: 0, ...reportList() };
  if (view === "samples") return searchSamples(report.samples, parameters);
  if (view === "sample") return findSample(report.samples, parameters.place);
  if (view === "events") return { events: [], cursor: 0, total: 0 };
  if (view === "histograms") return report.histograms.find((one) => one.name === parameters.name);
  const found = report[view];
  // A report contains the series by step only, and a single step of the timeline and of the memory.
  if (view === "names") return { ...found, axes: ["step"] };
  if (view === "timeline" || view === "memory") return found && { ...found, steps: [found.step, found.step] };
  return found;
}

function reportList() {
  const run = reportRun();
  return { newest: run.key, keys: [run.key], runs: [run] };
}

function reportRun() {
  const info = report.details.info;
  return {
    key: "report",
    name: info.name,
    project: info.project,
    status: report.status.word,
    tags: info.tags ?? [],
    note: "",
    last_step: report.overview.steps?.[1] ?? null,
    began: report.overview.span?.[0] ?? 0,
    reward: null,
    number: 0,
  };
}
