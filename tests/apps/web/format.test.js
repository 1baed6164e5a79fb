// Formatting of numbers, durations, sizes and config values.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  formatBytes,
  formatConfigValue,
  formatNumber,
  formatPercent,
  formatSeconds,
  formatShort,
  toNumber,
  truncateStart,
} from "../../../src/barograph/apps/page/web/text/format.js";

const cases = (work, pairs) =>
  test(`${work.name} of every size and of nothing`, () => {
    for (const [value, text] of pairs) assert.equal(work(value), text, String(value));
  });

cases(formatNumber, [
  [null, "–"],
  [undefined, "–"],
  ["NaN", "NaN"],
  ["Infinity", "+∞"],
  [-Infinity, "−∞"],
  [0, "0"],
  [-0, "0"],
  [12, "12"],
  [0.123456, "0.123"],
  [-0.5, "−0.500"],
  [12.345, "12.3"],
  [123.45, "123.5"],
  [1234.5, "1235"],
  [1e-6, "1.0e-6"],
  [-1e-6, "−1.0e-6"],
  [1234567, "1.23M"],
  [-2.5e9, "−2.50G"],
  [7e12, "7.00T"],
  [1e15, "1.00e+15"],
]);

cases(formatShort, [
  [0, "0"],
  [0.25, "0.25"],
  [-0.25, "−0.25"],
  [0.001, "1.0e-3"],
  [-0.001, "−1.0e-3"],
  [9999, "10000"],
  [12345, "12.3k"],
  [-12345, "−12.3k"],
  [2e6, "2.00M"],
  [Number.NaN, "NaN"],
]);

cases(formatSeconds, [
  [null, "–"],
  ["NaN", "–"],
  [0, "0 s"],
  [0.00002, "20 µs"],
  [0.0123, "12.3 ms"],
  [1.5, "1.50 s"],
  [60, "1 min"],
  [61.5, "1 min 1 s"],
  [3600, "1 h"],
  [3660, "1 h 1 min"],
  [90000, "1 d 1 h"],
]);

cases(formatPercent, [
  [null, "–"],
  [0, "0.0%"],
  [0.0004, "<0.1%"],
  [0.0991, "9.9%"],
  [0.0995, "10%"],
  [1, "100%"],
]);

cases(formatBytes, [
  [0, "–"],
  [512, "512 B"],
  [1536, "1.50 KiB"],
  [3 * 1024 ** 3, "3.00 GiB"],
  [5000 * 1024 ** 4, "5.00e+3 TiB"],
]);

cases(formatConfigValue, [
  ["text", "text"],
  ["", '""'],
  [1e-6, "1e-6"],
  [0, "0"],
  [0.5, "0.5"],
  [true, "true"],
  [null, "null"],
  [[1, "a"], '[1,"a"]'],
]);

test("toNumber reads the JSON of non-finite values, and takes a missing value for NaN", () => {
  assert.deepEqual(["NaN", "-Infinity", 2, null, undefined].map(toNumber), [NaN, -Infinity, 2, NaN, NaN]);
});

test("truncateStart shows the end of a name that is too long", () => {
  assert.equal(truncateStart("actor_train/train_step", 70), "…rain_step");
  assert.equal(truncateStart("short", 70), "short");
});
