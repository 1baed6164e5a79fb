// Formulas in markdown: between $ or $$, between \( and \), between \[ and \], and LaTeX's environments.

const INLINE = [
  /^\$\$((?:[^$\\]|\\[\s\S])+?)\$\$/,
  /^\$(?!\s)((?:[^$\\\n]|\\.)*?[^\s\\$]|\\.)\$(?!\d)/, // not the dollars of "$5 and $6"
  /^\\\(([\s\S]+?)\\\)/,
  /^\\\[([\s\S]+?)\\\]/,
];
const BLOCK = [
  /^ {0,3}\$\$([\s\S]+?)\$\$ *(?:\n|$)/,
  /^ {0,3}\\\[([\s\S]+?)\\\] *(?:\n|$)/,
  /^ {0,3}(\\begin\{(\w+\*?)\}[\s\S]+?\\end\{\2\}) *(?:\n|$)/,
];
const MAX_FORMULA = 5000; // characters

// The extensions of the markdown parser: their tokens have the LaTeX, and whether it stands on lines of its own.
export const FORMULAS = [
  {
    name: "formula",
    level: "inline",
    start: (text) => found(text.search(/\$|\\[([]/)),
    tokenizer: (text) => formula(text, INLINE, /^(\$\$|\\\[)/.test(text)),
  },
  {
    name: "formulas",
    level: "block",
    start: (text) => found(text.search(/^ {0,3}(\$\$|\\\[|\\begin\{)/m)),
    tokenizer: (text) => formula(text, BLOCK, true),
  },
];

function found(place) {
  return place < 0 ? undefined : place;
}

function formula(text, patterns, isBlock) {
  const start = text.slice(0, MAX_FORMULA);
  const match = patterns.map((pattern) => pattern.exec(start)).find(Boolean);
  return match ? { type: "formula", raw: match[0], latex: match[1].trim(), isBlock } : undefined;
}
