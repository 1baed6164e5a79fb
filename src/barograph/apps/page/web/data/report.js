// The data of a report file, in the form of the server's responses.
import { findSample, searchSamples } from "./sample_search.js";

const embedded = globalThis.document?.getElementById("report-data");

export const report = embedded ? JSON.parse(embedded.textContent) : null;

export function reportResponse(path, parameters) {
  const view = path.split("/")[4] ?? path.split("/")[2];
  if (view === "runs") return { cursor: "", gone: [], hidden: 0, ...reportList() };
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

// The curves of a series in a written report: those of the wanted steps, else of all.
export function curvesInReport({ run, name, factor = 1 }, { from, to }) {
  const found = report.series.filter((one) => one.run === run && one.name === name && one.factor === factor);
  const isOf = (first, last) => (one) => one.ends[0] === first && one.ends[1] === last;
  const wanted = found.filter(isOf(from ?? null, to ?? null));
  return wanted.length ? wanted : found.filter(isOf(null, null));
}

// The mean of a group of series in a written report.
export function bandInReport(members) {
  const isSame = (one, i) => ["run", "name", "factor"].every((field) => one[field] === members[i][field]);
  return report.bands.find((band) => band.members.length === members.length && band.members.every(isSame));
}

function reportList() {
  const all = report.blocks ? report.runs.map(writtenRun) : [reportRun()];
  return { newest: all[0]?.key, keys: all.map((run) => run.key), runs: all, total: all.length };
}

function writtenRun(run, number) {
  return { ...run, project: "", tags: [], note: "", began: 0, reward: null, number };
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
