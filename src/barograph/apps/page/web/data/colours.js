// The colours of runs, as numbers of the palette: different ones for the selected runs, as long as there are enough.
import { PALETTE_SIZE } from "../ui/colours.js";
import { patchRun } from "./api.js";
import { runs, selectedRuns } from "./runs.js";

let assigned = new Map(); // the colours of the selected runs, which stay while a run is selected

// The colour of a run: of a selected one among the selection, else the chosen one or that of its number.
export function colourOf(key) {
  const selection = selectedRuns();
  if (!selection.includes(key)) return runs.get(key)?.colour ?? colourByNumber(runs.get(key));
  assigned = assignColours(
    selection.map((one) => runs.get(one)),
    assigned,
  );
  return assigned.get(key);
}

function colourByNumber(run) {
  return (run?.number ?? 0) % PALETTE_SIZE;
}

// Assign colours to selected runs, {key, number, colour}: chosen ones first, then those of before, then those of
// their numbers where they are free. Where runs outnumber the palette, a number beyond it stands for the same colour again.
export function assignColours(selection, before = new Map()) {
  const colours = new Map();
  const used = new Set();
  const take = (run, colour) => {
    if (colours.has(run.key) || colour === null || colour === undefined || used.has(colour)) return;
    used.add(colour);
    colours.set(run.key, colour);
  };
  for (const run of selection) take(run, run.colour);
  for (const run of selection) take(run, before.get(run.key));
  for (const run of selection) take(run, colourByNumber(run));
  let free = 0;
  for (const run of selection) {
    while (used.has(free)) free++;
    take(run, free);
  }
  return new Map(selection.map((run) => [run.key, colours.get(run.key)]));
}

// Choose the colour of a run, and keep it with the run; null: the page assigns one. Return the function that undoes it.
export async function chooseColour(key, colour) {
  const { run, undo } = await patchRun(key, { colour });
  show(key, run);
  return async () => show(key, await undo());
}

function show(key, run) {
  if (run.colour === null) assigned.delete(key);
  runs.set(key, { ...runs.get(key), ...run });
  dispatchEvent(new CustomEvent("colours"));
}
