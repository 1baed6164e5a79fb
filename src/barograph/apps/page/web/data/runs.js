// The runs that the page shows, which are few of the directory's, and which of them are selected.
import { fetchJson } from "./api.js";
import { getList, getState, packList, setState } from "./url_state.js";

export const PAGE_SIZE = 100;
export const SORTS = ["began", "name", "reward", "status", "heard"];
export const runs = new Map(); // those of the list's page, and the selected ones
const list = { offset: 0, showHidden: false, keys: [], total: 0, hidden: 0, newest: null };
let cursor = null;
let asked = "";
let turn = 0;
let refreshing = null;

// The page of the list that is shown: keys in order, and how many there are in all.
export function shownList() {
  return list;
}

// Show another page of the list, or hidden runs too.
export async function changeList(changes) {
  Object.assign(list, changes);
  await refreshRuns();
  dispatchEvent(new CustomEvent("runs"));
}

// Fetch what changed; where another call overtakes this one, wait for that.
export async function refreshRuns() {
  refreshing = refresh(++turn);
  for (let awaited = null; awaited !== refreshing; ) {
    awaited = refreshing;
    await awaited;
  }
}

async function refresh(mine) {
  await ask(mine);
  // Runs were removed, or the query is another, and the page is beyond the end.
  if (mine === turn && list.total && list.offset >= list.total) {
    list.offset = Math.floor((list.total - 1) / PAGE_SIZE) * PAGE_SIZE;
    await ask(mine);
  }
  // Rows that moved here from another page have not changed: they are not in the response.
  if (mine === turn && [...list.keys, list.newest].some((key) => key && !runs.has(key))) {
    cursor = null;
    await ask(mine);
  }
}

async function ask(mine) {
  const sort = SORTS.includes(getState("sort")) ? getState("sort") : "began";
  const page = { q: getState("q"), sort, hidden: Number(list.showHidden), offset: list.offset, limit: PAGE_SIZE };
  const question = JSON.stringify([page, wantedKeys()]);
  const since = question === asked ? cursor : null;
  const response = await fetchJson("/api/runs", { ...page, key: wantedKeys(), since });
  if (mine !== turn) return; // a later request has the answer
  asked = question;
  take(response);
}

function take(response) {
  for (const run of response.runs) runs.set(run.key, run);
  cursor = response.cursor;
  for (const name of ["keys", "total", "hidden", "newest"]) list[name] = response[name];
  const kept = new Set([...list.keys, ...wantedKeys()]);
  for (const key of [...runs.keys()]) if (!kept.has(key) || response.gone.includes(key)) runs.delete(key);
}

// The runs that are needed besides those of the list's page: the one in view, the overlaid ones, and the newest.
function wantedKeys() {
  return [getState("run"), ...getList("with"), list.newest].filter(Boolean);
}

// The keys of the run in view and of those overlaid on it.
export function selectedRuns() {
  return [getState("run"), ...getList("with")].filter((key, i, all) => runs.has(key) && all.indexOf(key) === i);
}

export function selectRun(key) {
  const overlaid = getList("with").filter((one) => one !== key);
  setState({ run: key, from: "", to: "", step: "", sample: "", finding: "", with: packList(overlaid) });
}

export function toggleOverlay(key) {
  if (key === getState("run")) return;
  const others = getList("with");
  setState({ with: packList(others.includes(key) ? others.filter((one) => one !== key) : [...others, key]) });
}
