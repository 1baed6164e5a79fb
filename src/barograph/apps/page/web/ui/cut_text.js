// Text that is cut in the middle where it does not fit: names often differ at their ends.
import { el } from "./dom.js";

const LONG = 12; // characters; shorter texts are cut at the end
const MAX_TAIL = 14;
const MORE_TAIL = 4; // for an end that begins with a word
const LEAST_HEAD = 4;

// A name in a narrow cell: lines end after its parts, not within a word.
export function breakable(name) {
  const parts = name.split(/(?<=[/_.])/);
  return el(
    "span",
    {},
    parts.flatMap((part, i) => (i ? [el("wbr"), part] : [part])),
  );
}

// The length of the end that stays. It begins with a word where one begins within it or shortly before.
export function tailLength(text) {
  const length = Math.min(MAX_TAIL, Math.floor(text.length / 2));
  const longest = text.slice(Math.max(LEAST_HEAD, text.length - length - MORE_TAIL));
  const word = longest.search(/(?<=[\s/_.:-])[^\s/_.:-]/);
  return word >= 0 && longest.length - word >= length / 2 ? longest.length - word : length;
}

export function cutMiddle(text) {
  if (text.length < LONG) return el("span", { class: "cut-head", text });
  const tail = tailLength(text);
  return el(
    "span",
    { class: "cut" },
    el("span", { class: "cut-head", text: text.slice(0, -tail) }),
    el("span", { class: "cut-tail", text: text.slice(-tail) }),
  );
}
