// The selected language, and texts in it.
import { readPreference } from "../data/preferences.js";
import { getState } from "../data/url_state.js";
import { WORDS } from "./words.js";

const LANGUAGES = ["en", "zh"];

export function language() {
  const selected = getState("lang") || readPreference("lang") || (navigator.language?.startsWith("zh") ? "zh" : "en");
  return LANGUAGES.includes(selected) ? selected : "en";
}

// A text of the page with its {placeholders} filled. An unknown key, such as a state of the relay, is shown as it is.
export function t(key, values = {}) {
  const [english, chinese, singular] = WORDS[key] ?? [];
  const counted = singular && String(values.n) === "1" ? singular : english;
  const text = (language() === "zh" ? chinese : counted) ?? key.replaceAll("_", " ");
  return text.replace(/\{(\w)\}/g, (_, name) => values[name] ?? "");
}

// A time of the server, in seconds, in the selected language; in English as the browser writes it.
export function dateText(seconds) {
  const isOther = navigator.language?.startsWith("zh");
  return new Date(seconds * 1000).toLocaleString(language() === "zh" ? "zh-CN" : isOther ? "en" : []);
}

// A text of the server, {en, zh}, in the selected language.
export function localized(text) {
  if (text === null || text === undefined) return "";
  return typeof text === "string" ? text : (text[language()] ?? text.en ?? "");
}
