// What is shown of samples: differences, beginnings, tokens.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { toggledCondition } from "../../../src/barograph/apps/page/web/samples/conditions.js";
import { wordDiff } from "../../../src/barograph/apps/page/web/samples/diff.js";
import { FORMULAS } from "../../../src/barograph/apps/page/web/samples/formulas.js";
import { inputTurns, outputText, sharedBeginning } from "../../../src/barograph/apps/page/web/samples/outputs.js";
import { shownSteps, stepCounts } from "../../../src/barograph/apps/page/web/samples/step_counts.js";
import {
  allValues,
  decodeArray,
  extremes,
  isSpecial,
  nonfiniteCounts,
  overview,
  scaleOf,
  shownValue,
  strength,
  tokenRows,
} from "../../../src/barograph/apps/page/web/samples/token_math.js";

const ORDER = ["push", "gradient", "mismatch", "kl", "surprise", "ratio"];

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

const CASES = JSON.parse(readFileSync(new URL("../../journal/samples/token_values.json", import.meta.url), "utf8"));

for (const { case: name, given, follows } of CASES)
  test(`values that follow from others, as in Python: ${name}`, () => {
    const arrays = Object.fromEntries(Object.entries(given).map(([key, values]) => [key, Float32Array.from(values)]));
    const found = allValues(arrays);
    assert.deepEqual(Object.keys(found), [...new Set([...ORDER.filter((key) => key in found), ...Object.keys(given)])]);
    assert.deepEqual(new Set(Object.keys(found)), new Set([...Object.keys(follows), ...Object.keys(given)]));
    for (const [key, values] of Object.entries({ ...given, ...follows }))
      assert.ok(
        values.every((value, i) => Math.abs(found[key][i] - value) < 1e-6),
        `${key} ${found[key]}`,
      );
  });

test("arrays come as base64, and values of other names have nothing that follows", () => {
  assert.deepEqual(Object.keys(allValues({ entropy: Float32Array.from([1]) })), ["entropy"]);
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
  const few = Float32Array.from({ length: 500 }, (_, i) => Number(i === 7)); // one clipped token of many
  assert.deepEqual([strength(1, scaleOf(few)), strength(0, scaleOf(few))], [1, 0]);
  assert.deepEqual([...overview(Float32Array.from([0, 4, 1, 0]), null, { low: 0, high: 4 }, 2)], [1, 0.25]);
  assert.deepEqual([...overview(Float32Array.from([0, 4]), null, { low: 0, high: 4 }, 4)], [0, 0, 1, 1]);
});

test("tokens that the mask leaves out change no colour of others", () => {
  const mask = Float32Array.from([0, 1, 1, 0, 1]);
  const values = Float32Array.from([-1e9, -3, -1, 0, -2]);
  assert.deepEqual(scaleOf(values, mask), { low: -3, high: -1, neutral: 0 });
  assert.deepEqual(scaleOf(values, new Float32Array(5)), { low: Number.NaN, high: Number.NaN, neutral: 0 });
  assert.deepEqual([...overview(values, mask, { low: -3, high: -1 }, 5)], [0, -1, 0, 0, -0.5]);
});

test("a condition is added to others and taken away", () => {
  const toggled = (where) => toggledCondition(where, "tokens > 0");
  assert.equal(toggled(""), "tokens > 0");
  assert.equal(toggled("tokens > 0"), "");
  assert.equal(toggled("reward < 1"), "reward < 1 and tokens > 0");
  assert.equal(toggled("tokens > 0 and reward < 1"), "reward < 1");
  assert.equal(toggled('a = 1 or b = "x and y"'), '(a = 1 or b = "x and y") and tokens > 0');
  assert.equal(toggled('(a = 1 or b = "x and y") and tokens > 0'), '(a = 1 or b = "x and y")');
});

test("the value that is shown first tells tokens apart", () => {
  const values = (numbers) => Float32Array.from(numbers);
  const [same, other] = [values([1, 1.01, 1]), values([0, 1, 0.5])];
  assert.equal(shownValue({ push: same, entropy: other }), "entropy");
  assert.equal(shownValue({ push: values([9, 1, 1]), entropy: other, mask: values([0, 1, 1]) }), "entropy");
  assert.equal(shownValue({ push: values([1, Number.NaN, 1]), ratio: same }), "push");
  assert.equal(shownValue({ push: values([]) }), "push");
  assert.equal(shownValue({}), undefined);
});

test("ratios have no colour at 1", () => {
  const ratios = Float32Array.from([0.5, 1, 1.25, 2]);
  const scale = scaleOf(ratios, null, "ratio");
  assert.deepEqual(scale, { low: 0.5, high: 2, neutral: 1 });
  assert.deepEqual(
    [...ratios].map((value) => strength(value, scale)),
    [-0.5, 0, 0.25, 1],
  );
  const above = scaleOf(Float32Array.from([1, 3]), null, "ratio");
  assert.deepEqual([strength(1, above), strength(2, above)], [0, 0.5]);
  const below = scaleOf(Float32Array.from([0.5, 0.75, 1]), null, "ratio");
  assert.deepEqual([strength(0.5, below), strength(0.75, below), strength(1, below)], [-1, -0.5, 0]);
});

test("the most extreme tokens that count are far from the neutral number, else from the median", () => {
  const values = Float32Array.from([1, 1, 9, 1, -3, Number.NaN]);
  assert.deepEqual(extremes(values, null, "mine", 2), [2, 4]);
  assert.deepEqual(extremes(values, Float32Array.from([1, 1, 0, 1, 1, 0]), "mine", 1), [4]);
  assert.deepEqual(extremes(new Float32Array(), null), []);
  assert.deepEqual(extremes(Float32Array.from([2, 2, 3]), Float32Array.from([1, 1, 0])), []);
  const mismatch = Float32Array.from([-3, -3, -3, 0, -2]); // most have a large one
  assert.deepEqual(extremes(mismatch, null, "mismatch"), [0, 1, 2, 4]);
  assert.deepEqual(extremes(Float32Array.from([1, 0.2, 1.5]), null, "ratio"), [1, 2]);
});

test("values that are not finite come first; without a mask NaN is not known", () => {
  const values = Float32Array.from([Number.NaN, 5, Number.NEGATIVE_INFINITY, Number.NaN, 7, 5]);
  const mask = Float32Array.from([0, 1, 1, 1, 1, 1]);
  assert.deepEqual(extremes(values, mask, "mine"), [2, 3, 4]);
  assert.deepEqual(extremes(values, null, "mine"), [2, 4]);
  assert.deepEqual(extremes(values.subarray(2, 4), null, "kl"), [0]);
  assert.deepEqual(nonfiniteCounts({ kl: values, entropy: Float32Array.from([0, 1, 1, 1, 1, 1]), mask }), [["kl", 2]]);
  assert.deepEqual(nonfiniteCounts({ kl: values }), [["kl", 1]]);
  const scale = scaleOf(values, mask, "mine");
  assert.deepEqual([scale.low, scale.high], [5, 7]);
  assert.deepEqual([...overview(values, mask, scale, 3)], [0, Number.NaN, 1]);
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

test("tokens of chat templates are told from others", () => {
  const special = ["<|im_end|>", "<｜Assistant｜>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "<s>"];
  for (const token of [...special, "</s>", " <eos>", "<pad>", "<<SYS>>", "[TOOL_CALLS]"])
    assert.ok(isSpecial(token), token);
  for (const token of ["<b>", "</p>", "s", "[1]", "[A]", "[x]", "<", "|>", "INST", "a<s>", ""])
    assert.ok(!isSpecial(token), token);
});

test("samples of a prompt are counted by step; what is unknown is not zero", () => {
  const counts = stepCounts([
    { step: 2, reward: 0.5, columns: { correct: false } },
    { step: 0, reward: 1 },
    { step: 0, reward: -1, answer: null, reference: "4" },
    { step: 2, reward: 0, answer: "4", reference: "4" },
    { step: 2, reward: 1, answer: "4", reference: "5" },
    { step: 2, reward: null, rewards: { format: 3 } },
    { step: 7, reward: null },
    { step: 7, reward: "NaN" },
  ]);
  assert.deepEqual(counts, {
    steps: [0, 2, 7],
    samples: [2, 4, 2],
    reward: [0, 1.125, null],
    solved: [0.5, 0.5, null],
    share: 0.5,
  });
  assert.equal(stepCounts([]).share, null);
});

test("the steps that are shown are spread over all, with the one in view", () => {
  const steps = Array.from({ length: 101 }, (_, i) => i);
  assert.deepEqual(shownSteps(steps, 40, 6), [0, 20, 40, 60, 80, 100]);
  assert.deepEqual(shownSteps(steps, 3, 6), [0, 3, 40, 60, 80, 100]);
  assert.deepEqual(shownSteps(steps, 99, 6), [0, 20, 40, 60, 99, 100]);
  assert.deepEqual(shownSteps(steps, 500, 6), [0, 20, 40, 60, 80, 100]);
  assert.deepEqual(shownSteps([1, 5], 5, 6), [1, 5]);
});
