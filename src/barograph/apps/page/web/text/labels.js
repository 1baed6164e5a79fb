// What groups of runs and charts of a comparison are called.
import { formatConfigValue } from "./format.js";
import { localized } from "./language.js";

const MAX_SETTINGS = 3; // that a name of a group has
const MIN_BEGINNING = 3; // characters

// What a group is called: its keys and values, shortened to the last part of each key.
export function labelText(group, none = "–") {
  if (!group.label.length) return "";
  const value = (one) => (one === null ? none : formatConfigValue(one));
  return group.label.map(([key, one]) => `${key.split(".").at(-1)}=${value(one)}`).join(" ");
}

// What groups are called: by their settings where these are few, else by the names of their runs, which differ less and
// are shorter. `nameOf(key)` is the name of a run. Groups that would be called the same have their settings.
export function groupLabels(groups, nameOf, none) {
  const full = groups.map((group) => labelText(group, none) || nameOf(group.keys[0]) || group.keys[0]);
  const short = groups.map((group, i) => (group.label.length > MAX_SETTINGS ? namesText(group, nameOf) : full[i]));
  return short.map((label, i) => (short.indexOf(label) === short.lastIndexOf(label) ? label : full[i]));
}

// The name of the only run, or what all names begin with.
function namesText({ keys }, nameOf) {
  const [first, ...others] = keys.map((key) => nameOf(key) ?? key);
  if (!others.length) return first;
  let length = first.length;
  while (!others.every((name) => name.startsWith(first.slice(0, length)))) length--;
  return length >= MIN_BEGINNING ? `${first.slice(0, length)}*` : `${first} +${others.length}`;
}

// The title of the metric, with what the names fill in, such as the domain.
export function comparedTitle({ key, title, here }) {
  return title ? [localized(title), ...Object.values(here)].join(" · ") : key;
}
