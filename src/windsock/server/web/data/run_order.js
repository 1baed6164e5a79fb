// Which runs the list shows, and in which order.
import { toNumber } from "../text/format.js";

export const SORTS = {
  began: (a, b) => b.began - a.began,
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
  reward: (a, b) => lastReward(b) - lastReward(a),
  status: (a, b) => a.status.localeCompare(b.status) || b.began - a.began,
  heard: (a, b) => (b.last_heard ?? 0) - (a.last_heard ?? 0),
};

// A run without a reward, or with NaN, sorts last.
function lastReward(run) {
  const last = toNumber(run.reward?.last);
  return Number.isNaN(last) ? -Infinity : last;
}

// The runs that contain every word of the query, pinned ones first.
export function orderRuns(all, { query = "", sort = "began", showHidden = false }) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const compare = SORTS[sort] ?? SORTS.began;
  return all
    .filter((run) => (showHidden || !run.hidden) && words.every((word) => searchText(run).includes(word)))
    .sort((a, b) => Number(b.pinned ?? 0) - Number(a.pinned ?? 0) || compare(a, b));
}

function searchText({ name, project, status, vocabulary, tags, note }) {
  return `${name} ${project} ${status} ${vocabulary} ${tags.join(" ")} ${note}`.toLowerCase();
}
