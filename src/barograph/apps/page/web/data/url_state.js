// The state of the page in its URL: a link restores it, and Back undoes a change. A report file uses the hash.
import { report } from "./report.js";

const DEFAULTS = {
  tab: report?.blocks ? "report" : "overview",
  x: "step",
  smooth: "0",
  log: "0",
  sort: "began",
  stat: "seconds",
};
const inHash = location.protocol === "file:";
const watchers = new Set();
const state = readUrl();

function readUrl() {
  return Object.fromEntries(new URLSearchParams(inHash ? location.hash.slice(1) : location.search));
}

export function getState(name) {
  return state[name] ?? DEFAULTS[name] ?? "";
}

// All states that are not their defaults.
export function allStates() {
  return { ...state };
}

// Whether a state has another value than the default.
export function hasState(name) {
  return name in state;
}

export function getList(name) {
  return getState(name) ? getState(name).split(",").map(decodeURIComponent) : [];
}

// The values of a list as one state: `getList` reads them back, also values that contain commas.
export function packList(values) {
  return values.map(encodeURIComponent).join(",");
}

// Change states and add a history entry; `replace` is for typing and sliding, which change one entry many times.
export function setState(changes, replace = false) {
  const before = { ...state };
  apply(state, changes);
  const changed = Object.keys(changes).filter((name) => (before[name] ?? "") !== (state[name] ?? ""));
  if (!changed.length) return;
  history[replace ? "replaceState" : "pushState"](null, "", addressOf(state));
  for (const watcher of watchers) watcher(changed);
}

// Change a state by typing. A text that is cleared at once, as by the cross of a field, is there again after Back.
export function typeState(name, text) {
  const isCleared = !text && getState(name).length > 1;
  setState({ [name]: text }, !isCleared);
}

// Switch a state on or off.
export function toggleState(name) {
  setState({ [name]: getState(name) === "1" ? "" : "1" });
}

// The address of the page with changed states, for a link.
export function addressWith(changes) {
  return addressOf(apply({ ...state }, changes));
}

function apply(states, changes) {
  for (const [name, value] of Object.entries(changes)) {
    const text = value === null || value === undefined ? "" : String(value);
    if (text === "" || text === DEFAULTS[name]) delete states[name];
    else states[name] = text;
  }
  return states;
}

function addressOf(states) {
  const query = new URLSearchParams(states).toString();
  return inHash ? `#${query}` : query ? `?${query}` : location.pathname;
}

// Call a function with the names of changed states.
export function watchState(watcher) {
  watchers.add(watcher);
}

function restoreFromUrl() {
  const now = readUrl();
  const names = new Set([...Object.keys(now), ...Object.keys(state)]);
  const changed = [...names].filter((name) => now[name] !== state[name]);
  for (const name of names) delete state[name];
  Object.assign(state, now);
  if (changed.length) for (const watcher of watchers) watcher(changed);
}

addEventListener("popstate", restoreFromUrl);
if (inHash) addEventListener("hashchange", restoreFromUrl);
