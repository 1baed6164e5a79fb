// What is looked at lives in the address: a link restores it, and Back goes back. A report keeps it behind the #.

const DEFAULTS = { tab: "overview", x: "step", smooth: "0", log: "0", sort: "began", stat: "seconds" };
const watchers = new Set();
const inHash = location.protocol === "file:";

const state = read();

function read() {
  return Object.fromEntries(new URLSearchParams(inHash ? location.hash.slice(1) : location.search));
}

export function get(name) {
  return state[name] ?? DEFAULTS[name] ?? "";
}

export function list(name) {
  return get(name) ? get(name).split(",").map(decodeURIComponent) : [];
}

export function packed(values) {
  return values.map(encodeURIComponent).join(",");
}

// What a person did goes into the history; what follows from it (typing, sliding) replaces the newest entry.
export function set(changes, replace = false) {
  const before = { ...state };
  for (const [name, value] of Object.entries(changes)) {
    const given = value === null || value === undefined ? "" : String(value);
    if (given === "" || given === DEFAULTS[name]) delete state[name];
    else state[name] = given;
  }
  const changed = Object.keys(changes).filter((name) => (before[name] ?? "") !== (state[name] ?? ""));
  if (!changed.length) return;
  const query = new URLSearchParams(state).toString();
  const address = inHash ? `#${query}` : query ? `?${query}` : location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  for (const watcher of watchers) watcher(changed);
}

export function watch(watcher) {
  watchers.add(watcher);
}

function back() {
  const now = read();
  const names = new Set([...Object.keys(now), ...Object.keys(state)]);
  const changed = [...names].filter((name) => now[name] !== state[name]);
  for (const name of names) delete state[name];
  Object.assign(state, now);
  if (changed.length) for (const watcher of watchers) watcher(changed);
}

addEventListener("popstate", back);
if (inHash) addEventListener("hashchange", back);

export function kept(name) {
  try {
    return localStorage.getItem(`windsock.${name}`);
  } catch {
    return null;
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(`windsock.${name}`, value);
  } catch {
    // a browser that keeps nothing still shows everything
  }
}
