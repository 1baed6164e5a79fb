// Where the findings of runs begin and end, for the charts.
import { fetchJson, runPath } from "./api.js";
import { getState, setState } from "./url_state.js";

const known = new Map(); // the marks of a response, by run

// Take the marks of a response, and draw them where they are new.
export function takeMarks(run, marks) {
  const before = JSON.stringify(known.get(run) ?? []);
  known.set(run, marks);
  if (before !== JSON.stringify(marks)) dispatchEvent(new CustomEvent("marks"));
}

// Fetch the marks of a run, for a view whose own response has none.
export async function fetchMarks(run) {
  takeMarks(run, (await fetchJson(runPath(run, "findings"))).marks);
}

export function hasMarks(run) {
  return known.has(run);
}

// The marks of the run in view above info; none where they are switched off.
export function shownMarks() {
  return areMarksShown() ? (known.get(getState("run")) ?? []).filter((mark) => mark.severity !== "info") : [];
}

// The mark of a finding.
export function markOf(run, finding) {
  return known.get(run)?.find((mark) => findingKey(mark) === findingKey(finding));
}

export function areMarksShown() {
  return getState("marks") !== "0";
}

export function toggleMarks() {
  setState({ marks: areMarksShown() ? "0" : "" });
}

// The name of a finding in the URL: a rule can find the same again later.
export function findingKey({ rule, onset }) {
  return `${rule}@${onset}`;
}
