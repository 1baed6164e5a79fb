// Where the findings of runs begin and end, and what else happened at a step, for the charts.
import { fetchJson, runPath } from "./api.js";
import { getState, setState } from "./url_state.js";

const MAX_CHECKPOINTS = 12; // of more, the lines would hide the curves
const known = new Map(); // the marks and moments of a response, by run

// Take the marks and moments of a response, and draw them where they are new.
export function takeMarks(run, data) {
  const marks = [...data.marks, ...shownMoments(data.moments ?? [])];
  const before = JSON.stringify(known.get(run) ?? []);
  known.set(run, marks);
  if (before !== JSON.stringify(marks)) dispatchEvent(new CustomEvent("marks"));
}

// Annotations, restarts and changes of the config, and checkpoints where they are few.
export function shownMoments(moments) {
  const checkpoints = moments.filter(({ kind }) => kind === "checkpoint");
  return checkpoints.length > MAX_CHECKPOINTS ? moments.filter(({ kind }) => kind !== "checkpoint") : moments;
}

// Fetch the marks of a run, for a view whose own response has none.
export async function fetchMarks(run) {
  takeMarks(run, await fetchJson(runPath(run, "findings")));
}

export function hasMarks(run) {
  return known.has(run);
}

// The moments of the run in view and its marks above info; none where they are switched off, or in a written report.
export function shownMarks() {
  return areMarksShown() && getState("tab") !== "report"
    ? (known.get(getState("run")) ?? []).filter(({ kind, severity }) => kind || severity !== "info")
    : [];
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
