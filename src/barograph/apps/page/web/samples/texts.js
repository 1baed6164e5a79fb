// Texts of samples: control characters made visible, matches highlighted.
import { el } from "../ui/dom.js";

const MAX_MATCHES = 500;
const MAX_SEARCHED = 200_000; // characters that a person's expression, which may be slow, is searched in
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/;
const DIRECTIONS = /[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/g; // they would reorder what is around them

// A text in which no character is invisible or moves others.
export function visibleText(text) {
  if (!HIDDEN.test(text)) return text; // most texts, and quicker than replacing nothing
  return text
    .replaceAll("\r\n", "\n")
    .replace(CONTROLS, (char) => (char === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + char.charCodeAt(0))))
    .replace(DIRECTIONS, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// The search as an expression, and how far it is searched; null if there is none, or if the browser cannot read it.
export function searchPattern(text, isRegex) {
  if (!text) return null;
  try {
    if (isRegex) return { expression: new RegExp(text, "gu"), limit: MAX_SEARCHED };
    return { expression: new RegExp(escaped(text), "giu"), limit: Number.POSITIVE_INFINITY };
  } catch {
    return null;
  }
}

function escaped(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

// The first match of a pattern in a text, or -1.
export function firstMatch(text, pattern) {
  if (!pattern) return -1;
  pattern.expression.lastIndex = 0;
  return pattern.expression.exec(text.slice(0, pattern.limit))?.index ?? -1;
}

// Text nodes and marks of a text.
export function highlighted(text, pattern) {
  if (!pattern) return [visibleText(text)];
  const nodes = [];
  let at = 0;
  for (const match of matchesIn(text, pattern)) {
    nodes.push(visibleText(text.slice(at, match.index)), el("mark", { text: visibleText(match[0]) }));
    at = match.index + match[0].length;
  }
  return [...nodes, visibleText(text.slice(at))];
}

function* matchesIn(text, pattern) {
  let count = 0;
  pattern.expression.lastIndex = 0;
  for (const match of text.slice(0, pattern.limit).matchAll(pattern.expression)) {
    if (!match[0]) continue;
    if (count++ >= MAX_MATCHES) return;
    yield match;
  }
}
