// A block of text, as it is or rendered. A long one is folded at both ends.
import { getState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { richBlock } from "./rich_text.js";
import { firstMatch, highlighted } from "./texts.js";

const FOLD = 6000; // characters from which on a text is folded
const HEAD = 2500;
const TAIL = 1500;
const AROUND = 400; // characters on each side of the first match
const LINE = 500; // characters: a cut is moved to the end of a line that is that near

export function isRich() {
  return getState("rich") === "1";
}

// `props` are those of the block. A long text has a button for each part that is left out.
export function textBlock(text, pattern, props = {}) {
  const block = isRich() ? el("div", props) : el("pre", { dir: "auto", ...props });
  const show = (parts) => block.replaceChildren(...parts.flat());
  const whole = () => show([pieceNodes(text, pattern)]);
  if (text.length <= FOLD) {
    whole();
    return block;
  }
  const cuts = cutsOf(text, firstMatch(text, pattern));
  const parts = cuts.map(([from, to], i) => {
    const gap = i ? from - cuts[i - 1][1] : 0;
    const label = t("folded", { n: gap.toLocaleString() });
    const button = gap > 0 ? [el("button", { class: "fold", text: label, onclick: whole })] : [];
    return [...button, ...pieceNodes(text.slice(from, to), pattern)];
  });
  show(parts);
  return block;
}

function pieceNodes(text, pattern) {
  if (!isRich()) return highlighted(text, pattern);
  return [richBlock(text, pattern) ?? el("pre", { dir: "auto" }, highlighted(text, pattern))];
}

// The parts of a long text that are shown: both ends, and what is around a match between them.
function cutsOf(text, match) {
  const head = lineEnd(text, HEAD);
  const tail = lineEnd(text, text.length - TAIL);
  const isInside = match >= head && match < tail;
  const middle = isInside ? [[Math.max(head, match - AROUND), Math.min(match + AROUND, tail)]] : [];
  return [[0, head], ...middle, [tail, text.length]];
}

// Where a line ends shortly before a place; else the place itself.
function lineEnd(text, place) {
  const end = text.lastIndexOf("\n", place) + 1;
  return end > place - LINE ? end : place;
}
