// Views of the page that were saved under a name. They are kept beside the runs.
import { fetchJson, postJson } from "./api.js";
import { allStates, setState } from "./url_state.js";

// What a view leaves as it is: which runs and what of them is shown, and how the page looks.
const NOT_SAVED = [
  "run",
  "with",
  "from",
  "to",
  "step",
  "sample",
  "finding",
  "chart",
  "lang",
  "theme",
  "view",
  "q",
  "report",
];

export async function fetchViews() {
  return (await fetchJson("/api/views")).views;
}

// The states of the page that a view keeps.
export function stateNow() {
  return new URLSearchParams(savedStates(allStates())).toString();
}

// Save states under a name, which is the current view then; null removes the view.
export async function saveView(name, state) {
  await postJson("/api/views", { name, state });
  setState({ view: state === null ? "" : name });
}

// Show the page as it was saved: states that the view does not have get their defaults.
export function showView({ name, state }) {
  const cleared = Object.fromEntries(Object.keys(savedStates(allStates())).map((one) => [one, ""]));
  setState({ ...cleared, ...Object.fromEntries(new URLSearchParams(state)), view: name });
}

export function savedStates(states) {
  return Object.fromEntries(Object.entries(states).filter(([name]) => !NOT_SAVED.includes(name)));
}
