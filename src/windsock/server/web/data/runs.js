// The runs of the directory, and which of them are selected.
import { fetchJson } from "./api.js";
import { getList, getState, packList, setState } from "./url_state.js";

export const runs = new Map();
const colours = new Map(); // colour index by run, in order of appearance, so that a run keeps its colour
let cursor = null;

export async function refreshRuns() {
  const response = await fetchJson("/api/runs", { since: cursor });
  if (response.reset) runs.clear();
  for (const key of response.gone) runs.delete(key);
  for (const run of response.runs) runs.set(run.key, run);
  cursor = response.cursor;
  const added = [...runs.values()].filter((run) => !colours.has(run.key)).sort((a, b) => a.began - b.began);
  for (const run of added) colours.set(run.key, colours.size);
}

export function colourOf(key) {
  return colours.get(key) ?? 0;
}

// The keys of the run in view and of those overlaid on it.
export function selectedRuns() {
  return [getState("run"), ...getList("with")].filter((key, i, all) => runs.has(key) && all.indexOf(key) === i);
}

export function selectRun(key) {
  const overlaid = getList("with").filter((one) => one !== key);
  setState({ run: key, from: "", to: "", step: "", sample: "", with: packList(overlaid) });
}

export function toggleOverlay(key) {
  if (key === getState("run")) return;
  const others = getList("with");
  setState({ with: packList(others.includes(key) ? others.filter((one) => one !== key) : [...others, key]) });
}
