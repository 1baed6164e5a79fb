// Text that is cut in the middle where it does not fit: names often differ at their ends.
import { el } from "./dom.js";

const LONG = 22; // characters; shorter texts are cut at the end
const TAIL = 14;

export function cutMiddle(text) {
  if (text.length < LONG) return el("span", { class: "cut-head", text });
  return el(
    "span",
    { class: "cut" },
    el("span", { class: "cut-head", text: text.slice(0, -TAIL) }),
    el("span", { class: "cut-tail", text: text.slice(-TAIL) }),
  );
}
