// The runs that are selected beside the one in view, with what a view shows of each.
import { fetchJson, runPath } from "./api.js";
import { colourOf } from "./colours.js";
import { runs } from "./runs.js";

const MAX_OTHERS = 11; // more are not told apart by their colours

// Fetch a view of the other selected runs: {run, name, colour, data} of each. One that cannot be read is left out.
export async function fetchOthers({ run, chosen }, view) {
  const keys = chosen.filter((key) => key !== run).slice(0, MAX_OTHERS);
  const answers = await Promise.allSettled(keys.map((key) => fetchJson(runPath(key, view))));
  const found = keys.map((key, i) => ({ key, answer: answers[i] }));
  return found
    .filter(({ answer }) => answer.status === "fulfilled")
    .map(({ key, answer }) => ({
      run: key,
      name: runs.get(key)?.name ?? key,
      colour: colourOf(key),
      data: answer.value,
    }));
}
