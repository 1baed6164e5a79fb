// Ticks of linear axes and of durations.
import assert from "node:assert/strict";
import { test } from "node:test";
import { linearTicks, roundStep, secondTicks } from "../../../src/barograph/apps/page/web/charts/ticks.js";

const MOST = [4, 9]; // as bars and timelines ask for
const MICROSECONDS_TO_SECONDS = [1, 3, 7].flatMap((digit) => [-6, -5, -4, -3, -2, -1, 0].map((n) => digit * 10 ** n));
const MINUTES_TO_DAYS = [45, 59, 60, 100, 900, 1799, 3600, 5000, 40000, 86400, 2 * 86400, 5 * 86400, 30 * 86400];
const ROUND_TIMES = new Set([...[1, 2, 5, 10, 15, 30], ...[1, 2, 5, 10, 15, 30].map((minutes) => 60 * minutes)]);
for (const hours of [1, 2, 4, 6, 12, 24, 2 * 24, 5 * 24, 10 * 24]) ROUND_TIMES.add(3600 * hours);

const isRound = (step) => /^[125]e/.test(step.toExponential());

// Check what holds for the ticks of any axis, and return the distance between them.
function checkTicks(ticks, [low, high], most) {
  const about = `${low} to ${high}: ${ticks.join(", ")}`;
  assert.ok(ticks.length >= 2 && ticks.length <= most + 1, about);
  const step = Number((ticks[1] - ticks[0]).toPrecision(9));
  const space = step * 1e-6;
  for (const tick of ticks) {
    assert.ok(tick >= low - space && tick <= high + space, about);
    assert.ok(Math.abs(tick / step - Math.round(tick / step)) < 1e-6, about);
  }
  for (let i = 1; i < ticks.length; i++) assert.ok(Math.abs(ticks[i] - ticks[i - 1] - step) < space, about);
  assert.ok(ticks[0] - low < step && high - ticks.at(-1) < step, about); // none is left out at the ends
  return step;
}

test("a round step is the smallest 1, 2 or 5 of a power of ten that is not below a number", () => {
  const wanted = [0.9e-6, 1e-6, 0.00011, 0.3, 1, 1.5, 2.1, 5, 5.1, 99, 12345];
  const steps = [1e-6, 1e-6, 0.0002, 0.5, 1, 2, 5, 5, 10, 100, 20000];
  assert.deepEqual(wanted.map(roundStep), steps);
  assert.deepEqual([0, -1, NaN].map(roundStep), [1, 1, 1]);
});

test("linear ticks are multiples of a round step, and at most one more than asked for", () => {
  const ranges = [
    [0, 1],
    [0, 0.3],
    [-1, 1],
    [-25, 24],
    [0.37, 0.43],
    [1e-7, 9e-7],
    [12345, 88765],
    [12345, 98765],
    [-3e6, -1e6],
  ];
  for (const range of ranges) {
    for (const most of MOST) assert.ok(isRound(checkTicks(linearTicks(range, most), range, most)), `${range}`);
  }
  assert.deepEqual(linearTicks([0, 0.3], 3), [0, 0.1, 0.2, 0.3]);
});

test("ticks of microseconds to seconds are 1, 2 or 5 of a power of ten", () => {
  for (const duration of MICROSECONDS_TO_SECONDS) {
    for (const most of MOST) {
      const step = checkTicks(secondTicks(duration, most), [0, duration], most);
      assert.ok(isRound(step), `${duration} s: every ${step} s`);
    }
  }
});

test("ticks of minutes, hours and days are round on a clock", () => {
  for (const duration of MINUTES_TO_DAYS) {
    for (const most of MOST) {
      const step = checkTicks(secondTicks(duration, most), [0, duration], most);
      assert.ok(ROUND_TIMES.has(step), `${duration} s: every ${step} s`);
    }
  }
  assert.deepEqual(secondTicks(55, 4), [0, 15, 30, 45]);
  assert.deepEqual(secondTicks(7200, 4), [0, 1800, 3600, 5400, 7200]);
});

test("ticks of a duration start at 0, also where it is 0", () => {
  assert.equal(secondTicks(0.0042, 4)[0], 0);
  assert.deepEqual(secondTicks(0, 4), [0]);
});
