// What groups of runs and charts of a comparison are called.
import { formatConfigValue } from "./format.js";
import { localized } from "./language.js";

// What a group is called: its keys and values, shortened to the last part of each key.
export function labelText(group, none = "–") {
  if (!group.label.length) return "";
  const value = (one) => (one === null ? none : formatConfigValue(one));
  return group.label.map(([key, one]) => `${key.split(".").at(-1)}=${value(one)}`).join(" ");
}

// The title of the metric, with what the names fill in, such as the domain.
export function comparedTitle({ key, title, here }) {
  return title ? [localized(title), ...Object.values(here)].join(" · ") : key;
}
