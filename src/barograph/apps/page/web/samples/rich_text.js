// Texts with their markdown, formulas and code rendered. Elements are made one by one, never from HTML: a tag, an address
// or a script in a text stays text.
import { el } from "../ui/dom.js";
import { loadLibrary } from "../ui/libraries.js";
import { FORMULAS } from "./formulas.js";
import { highlighted } from "./texts.js";

const MAX_LENGTH = 20_000; // characters: of a longer text the markdown's parser may need seconds
const MAX_SIZE = [20, 200]; // em and points that a formula may ask for

let parser = null;
let formulas = null;

// Load the parsers, which are not part of the page.
export async function loadParsers() {
  const [marked, temml] = await Promise.all([
    loadLibrary("marked-18.2.0.min.js", "marked"),
    loadLibrary("temml-0.13.5.min.js", "temml"),
  ]);
  parser ??= new marked.Marked({ gfm: true, extensions: FORMULAS });
  formulas = temml;
}

// The rendered text; null where it is too long, or nested so deeply that it cannot be parsed.
export function richBlock(text, pattern) {
  if (!parser || text.length > MAX_LENGTH) return null;
  try {
    return el("div", { class: "rich", dir: "auto" }, blocks(parser.lexer(text), pattern));
  } catch {
    return null;
  }
}

function blocks(tokens, pattern) {
  return tokens.flatMap((token) => (BLOCKS[token.type] ?? asText)(token, pattern));
}

function inline(tokens, pattern) {
  return tokens.flatMap((token) => (INLINES[token.type] ?? asText)(token, pattern));
}

function asText(token, pattern) {
  return token.tokens ? inline(token.tokens, pattern) : highlighted(token.text ?? token.raw, pattern);
}

const BLOCKS = {
  space: () => [],
  hr: () => el("hr"),
  def: (token, pattern) => el("p", {}, highlighted(token.raw, pattern)),
  html: (token, pattern) => el("p", { class: "literal" }, highlighted(token.raw.trimEnd(), pattern)),
  paragraph: (token, pattern) => el("p", { dir: "auto" }, inline(token.tokens, pattern)),
  heading: (token, pattern) => el("p", { dir: "auto", class: `title d${token.depth}` }, inline(token.tokens, pattern)),
  blockquote: (token, pattern) => el("blockquote", {}, blocks(token.tokens, pattern)),
  code: (token, pattern) =>
    el(
      "figure",
      { class: "code" },
      token.lang ? el("figcaption", {}, highlighted(token.lang, null)) : null,
      el("pre", {}, highlighted(token.text, pattern)),
    ),
  list: (token, pattern) =>
    el(
      token.ordered ? "ol" : "ul",
      { start: token.ordered && token.start !== 1 ? token.start : null },
      token.items.map((item) => el("li", { dir: "auto" }, blocks(item.tokens, pattern))),
    ),
  checkbox: (token) => (token.checked ? "☑ " : "☐ "),
  table: (token, pattern) => el("div", { class: "scroll" }, tableNode(token, pattern)),
  formula: formulaNode,
};

const INLINES = {
  br: () => el("br"),
  strong: (token, pattern) => el("strong", {}, inline(token.tokens, pattern)),
  em: (token, pattern) => el("em", {}, inline(token.tokens, pattern)),
  del: (token, pattern) => el("s", {}, inline(token.tokens, pattern)),
  codespan: (token, pattern) => el("code", {}, highlighted(token.text, pattern)),
  html: (token, pattern) => el("span", { class: "literal" }, highlighted(token.raw, pattern)),
  link: (token, pattern) => el("span", { class: "link", title: token.href }, inline(token.tokens, pattern)),
  image: (token, pattern) => el("span", { class: "medium", title: token.href }, highlighted(token.text, pattern)),
  checkbox: BLOCKS.checkbox,
  formula: formulaNode,
};

function tableNode({ header, rows, align }, pattern) {
  const cells = (tag, row) =>
    row.map((cell, i) => el(tag, { style: { "text-align": align[i] ?? "start" } }, inline(cell.tokens, pattern)));
  return el(
    "table",
    {},
    el("thead", {}, el("tr", {}, cells("th", header))),
    el(
      "tbody",
      {},
      rows.map((row) => el("tr", {}, cells("td", row))),
    ),
  );
}

// A formula as MathML, which the browser draws itself; one that is not understood stays as it was written.
function formulaNode({ latex, raw, isBlock }, pattern) {
  const node = el("span", { class: isBlock ? "formula block" : "formula", title: latex });
  try {
    formulas.render(latex, node, { displayMode: isBlock, throwOnError: true, trust: false, maxSize: MAX_SIZE });
    return node;
  } catch {
    return el("code", { class: "literal" }, highlighted(raw.trim(), pattern));
  }
}
