// Which runs are selected, in the URL: the run in view, and those with it.
import { getList, getState, packList, setState } from "./url_state.js";

export const MAX_SELECTED = 64; // that the server compares

// The keys in the URL, also of runs that are not fetched yet.
export function selection() {
  return [...new Set([getState("run"), ...getList("with")].filter(Boolean))];
}

// Select exactly these runs; the first is the one in view. Return how many were left out.
export function select(keys) {
  const [run = "", ...others] = [...new Set(keys)].slice(0, MAX_SELECTED);
  setState({ run, with: packList(others) });
  return Math.max(0, keys.length - MAX_SELECTED);
}

// Select all of some runs, or if they are selected, none of them.
export function toggleSelection(keys) {
  const now = selection();
  const others = now.filter((key) => !keys.includes(key));
  return select(keys.every((key) => now.includes(key)) ? others : [...now, ...keys]);
}
