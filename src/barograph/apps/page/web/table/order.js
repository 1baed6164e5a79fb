// The rows of the table in their order: runs, or groups with the runs of those that are unfolded.
import { labelText } from "../text/labels.js";
import { compareValues } from "./columns.js";

// Sort keys of runs by a column, pinned ones first; `numberOf(key)` is the value, `isPinned(key)` whether it is pinned.
export function sortRuns(keys, numberOf, sign, isPinned) {
  const rows = keys.map((key) => ({ key, value: numberOf(key), pinned: isPinned(key) }));
  rows.sort((a, b) => b.pinned - a.pinned || compareValues(a.value, b.value, sign));
  return rows.map((row) => row.key);
}

// Sort groups by their values of a column: what all runs have, or their mean.
export function sortGroups(groups, place, sign) {
  const numberOf = (group) => {
    const value = place < 0 ? labelText(group) : group.values[place];
    return value?.mean ? value.mean[0] : value?.same === undefined ? (place < 0 ? value : null) : value.same;
  };
  const rows = groups.map((group) => ({ group, value: numberOf(group) }));
  rows.sort((a, b) => compareValues(a.value, b.value, sign));
  return rows.map((row) => row.group);
}

// The rows to draw: {key} of a run, also of one that is alone, or {group}; those of an unfolded group follow it.
export function rowsOf(groups, keys, isOpen) {
  if (!groups.length) return keys.map((key) => ({ key }));
  const order = new Map(keys.map((key, i) => [key, i]));
  return groups.flatMap((group) => {
    if (group.keys.length === 1) return [{ key: group.keys[0] }];
    const members = isOpen(group) ? [...group.keys].sort((a, b) => order.get(a) - order.get(b)) : [];
    return [{ group }, ...members.map((key) => ({ key, inside: true }))];
  });
}
