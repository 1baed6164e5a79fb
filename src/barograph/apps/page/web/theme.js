// The light and the dark theme.
import { readPreference, savePreference } from "./data/preferences.js";
import { getState, setState } from "./data/url_state.js";
import { forgetColours } from "./ui/colours.js";

function theme() {
  return getState("theme") || readPreference("theme") || "";
}

export function applyTheme(theme = isDark() ? "dark" : "light") {
  forgetColours();
  document.documentElement.dataset.theme = theme;
}

export function isDark() {
  return theme() ? theme() === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function toggleTheme() {
  const next = isDark() ? "light" : "dark";
  savePreference("theme", next);
  setState({ theme: next }, true);
}
