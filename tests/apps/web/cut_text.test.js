// Which end of a text stays when its middle is cut.
import assert from "node:assert/strict";
import { test } from "node:test";
import { tailLength } from "../../../src/barograph/apps/page/web/ui/cut_text.js";

test("the end that stays begins with a word, where one begins near", () => {
  for (const [text, end] of [
    ["Score: standard deviation, by domain · far", "by domain · far"],
    ["cpu/reference/compute_log_probs/start/rss", "probs/start/rss"],
    ["lr0.0009-turns16-s3", "turns16-s3"],
    ["verl-gsm8k-qwen2-7b-base", "qwen2-7b-base"],
    ["得分（不计中止的序列）：均值（按领域）", "）：均值（按领域）"],
    ["abcdefghijklmnopqrstuvwxyz-z", "opqrstuvwxyz-z"], // a word of one letter is not enough
  ])
    assert.equal(text.slice(-tailLength(text)), end);
});
