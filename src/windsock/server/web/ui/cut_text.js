// Text that is cut in the middle where it does not fit: names often differ at their ends.
import { el } from "./dom.js";

const LONG = 12; // characters; shorter texts are cut at the end
const MAX_TAIL = 14;

export function cutMiddle(text) {
  if (text.length < LONG) return el("span", { class: "cut-head", text });
  const tail = Math.min(MAX_TAIL, Math.floor(text.length / 2));
  return el(
    "span",
    { class: "cut" },
    el("span", { class: "cut-head", text: text.slice(0, -tail) }),
    el("span", { class: "cut-tail", text: text.slice(-tail) }),
  );
}
