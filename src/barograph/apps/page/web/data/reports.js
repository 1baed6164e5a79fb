// Reports that people write. They are kept beside the runs, as Markdown.
import { fetchJson, postForBlob, postJson } from "./api.js";
import { report } from "./report.js";

export async function fetchReports() {
  return (await fetchJson("/api/reports")).reports;
}

// A report as it is drawn. `of` is {name}, of a saved one, {text}, or {draft: true} for a first draft; `runs` are those
// of charts that name none.
export async function fetchWritten(of, runs) {
  return report ?? postJson("/api/report", { ...of, runs });
}

// Save the text of a report, or with null remove it; return the text that it had before.
export async function saveReport(name, text) {
  return (await postJson("/api/reports", { name, text })).before;
}

// The report as one HTML file.
export async function fetchFile(name, runs) {
  return postForBlob("/api/report_file", { name, runs });
}
