// What is shown of samples: differences, beginnings, tokens.
import assert from "node:assert/strict";
import { test } from "node:test";
import { wordDiff } from "../../src/windsock/server/web/samples/diff.js";
import { FORMULAS } from "../../src/windsock/server/web/samples/formulas.js";
import { inputTurns, outputText, sharedBeginning } from "../../src/windsock/server/web/samples/outputs.js";
import {
  allValues,
  decodeArray,
  extremes,
  overview,
  scaleOf,
  strength,
  tokenRows,
} from "../../src/windsock/server/web/samples/token_math.js";

const sides = (pieces) =>
  ["gone", "new"].map((kind) =>
    pieces
      .filter(([k]) => k !== kind)
      .map(([, text]) => text)
      .join(""),
  );

test("a difference has both texts, and says which words are in one of them only", () => {
  assert.deepEqual(wordDiff("so the answer is 4.", "so the result is 4."), [
    ["same", "so the "],
    ["gone", "answer"],
    ["new", "result"],
    ["same", " is 4."],
  ]);
  assert.deepEqual(wordDiff("答案是四", "答案是五"), [
    ["same", "答案是"],
    ["gone", "四"],
    ["new", "五"],
  ]);
  assert.deepEqual(wordDiff("", ""), []);
  const random = (n) => Array.from({ length: n }, (_, i) => `w${(i * 7919) % 13}`).join(" ");
  const pairs = [
    ["", "a b"],
    ["a b", ""],
    [random(50), random(70).slice(9)],
    [random(3000), `x ${random(3000)} y`.replaceAll("w3", "v")],
  ];
  for (const [before, after] of pairs) assert.deepEqual(sides(wordDiff(before, after)), [after, before]);
});

test("rows begin where samples differ", () => {
  const same = "Let me think about this step by step: ";
  assert.equal(sharedBeginning([`${same}four`, `${same}five`]), same.length);
  assert.equal(sharedBeginning([`${same}four`, `${same}fox`]), same.length); // not within a word
  assert.equal(sharedBeginning(["the cat", "the dog"]), 0); // too little to leave out
  assert.equal(sharedBeginning([same, same]), 0);
  assert.equal(sharedBeginning([]), 0);
});

test("what the model wrote begins with its first turn", () => {
  const turn = (role, text) => ({ role, parts: [{ kind: "text", text, name: "" }] });
  const chat = { turns: [turn("system", "s"), turn("user", "u"), turn("assistant", "a"), turn("tool", "r")] };
  assert.equal(outputText(chat), "a\nr");
  assert.deepEqual(
    inputTurns(chat).map((one) => one.role),
    ["system", "user"],
  );
  assert.equal(outputText({ turns: [turn("system", "s"), turn("user", "u")] }), "u");
  assert.equal(outputText({ turns: [] }), "");
});

test("values that follow from others are computed", () => {
  const log_prob = Float32Array.from([-1, -2]);
  const found = allValues({
    log_prob,
    old: Float32Array.from([-1, -3]),
    advantage: Float32Array.from([2, -1]),
    rollout: Float32Array.from([-1.5, -2]),
  });
  assert.deepEqual(Object.keys(found), [
    "push",
    "mismatch",
    "surprise",
    "ratio",
    "log_prob",
    "old",
    "advantage",
    "rollout",
  ]);
  assert.deepEqual([...found.mismatch], [0.5, 0]);
  assert.deepEqual([...found.surprise], [1, 2]);
  assert.ok(Math.abs(found.push[1] + Math.E) < 1e-6);
  assert.deepEqual(Object.keys(allValues({ entropy: log_prob })), ["entropy"]);
  assert.deepEqual([...decodeArray(btoa("\0\0\x80?"))], [1]);
});

test("a scale has two colours for values of both signs", () => {
  const signed = scaleOf(Float32Array.from([-2, 0, 1, Number.NaN]));
  assert.deepEqual(
    [-2, 0, 1, 9, Number.NaN].map((value) => strength(value, signed)),
    [-1, 0, 0.5, 1, 0],
  );
  const negative = scaleOf(Float32Array.from([-4, -2]));
  assert.deepEqual(
    [-4, -3, -2].map((value) => strength(value, negative)),
    [-1, -0.5, 0],
  );
  assert.equal(strength(1, scaleOf(Float32Array.from([1, 1]))), 0);
  assert.deepEqual([...overview(Float32Array.from([0, 4, 1, 0]), { low: 0, high: 4 }, 2)], [1, 0.25]);
  assert.deepEqual([...overview(Float32Array.from([0, 4]), { low: 0, high: 4 }, 4)], [0, 0, 1, 1]);
});

test("the most extreme tokens are those far from the median that count", () => {
  const values = Float32Array.from([1, 1, 9, 1, -3, Number.NaN]);
  assert.deepEqual(extremes(values, null, 2), [2, 4]);
  assert.deepEqual(extremes(values, Float32Array.from([1, 1, 0, 1, 1, 1]), 1), [4]);
  assert.deepEqual(extremes(new Float32Array(), null), []);
});

test("rows have every character once, and fit", () => {
  const tokens = ["Hello", " world", ",\n\n", "x".repeat(25), "字字字", "😀", "", "end"];
  const rows = tokenRows(tokens, 10);
  for (const row of rows)
    assert.ok(
      row
        .map(([, text]) => text)
        .join("")
        .replaceAll("⏎", "").length <= 10,
    );
  const joined = tokens.map((_, place) =>
    rows.flatMap((row) => row.filter(([one]) => one === place).map(([, text]) => text)).join(""),
  );
  assert.deepEqual(joined, ["Hello", " world", ",⏎⏎", "x".repeat(25), "字字字", "😀", "", "end"]);
  assert.deepEqual(tokenRows([], 10), []);
});

test("formulas are told from sums of money", () => {
  const [inline, block] = FORMULAS.map(
    ({ tokenizer }) =>
      (text) =>
        tokenizer(text)?.latex,
  );
  assert.equal(inline("$x^2$ and $y$"), "x^2");
  assert.equal(inline("$a \\$ b$"), "a \\$ b");
  assert.equal(inline("\\(x\\) y"), "x");
  assert.equal(inline("$$x$$"), "x");
  for (const text of ["$5 and $6", "$ x$", "$x", "$$", "\\(x"]) assert.equal(inline(text), undefined, text);
  assert.equal(block("$$\nx\n\ny\n$$\nz"), "x\n\ny");
  assert.equal(block("\\begin{align*}a\\end{align*}"), "\\begin{align*}a\\end{align*}");
  assert.equal(block("\\begin{align}a\\end{align*}"), undefined);
});
