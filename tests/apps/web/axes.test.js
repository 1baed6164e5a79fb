// Ranges and ticks of axes, and arithmetic on curves.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  finiteRanges,
  indexAt,
  nearestIndex,
  smoothed,
} from "../../../src/barograph/apps/page/web/charts/curve_math.js";
import { xRange, yRange } from "../../../src/barograph/apps/page/web/charts/ranges.js";
import { logLabels, logTicks, tickLabels } from "../../../src/barograph/apps/page/web/charts/ticks.js";

const points = (x, values) => ({ x, x_end: x, min: values, max: values, last: values });

test("the x range spans all series, and a single point has space around it", () => {
  assert.deepEqual(xRange([points([3, 9], [0, 0]), points([1, 5], [0, 0])]), [1, 9]);
  assert.deepEqual(xRange([points([4], [0])]), [3.5, 4.5]);
  assert.deepEqual(xRange([]), [0, 1]);
});

test("the y range has space around the values between the ends of x", () => {
  const series = points([0, 1, 2], [10, 20, 900]);
  assert.deepEqual(yRange([series], [0, 1]), { range: [9.6, 20.4], labels: [10, 20] });
});

test("the y range includes zero where the values are close to it, or where it must", () => {
  assert.deepEqual(yRange([points([0, 1], [1, 10])], [0, 1]).range, [0, 10.4]);
  assert.equal(yRange([points([0, 1], [8, 10])], [0, 1], { zero: true }).range[0], 0);
});

test("a constant, and no finite value at all, have a range too", () => {
  assert.deepEqual(yRange([points([0, 1], [5, 5])], [0, 1]), { range: [4.5, 5.5], labels: [5] });
  assert.deepEqual(yRange([points([0], [0])], [0, 1]).range, [-1, 1]);
  assert.deepEqual(yRange([points([0], [NaN])], [0, 1]), { range: [0, 1], labels: [] });
  assert.deepEqual(yRange([points([0], [-1])], [0, 1], { log: true }), { range: [0.1, 1], labels: [] });
  assert.deepEqual(yRange([points([0], [2])], [0, 1], { log: true }), { range: [1, 4], labels: [] });
});

test("a log axis ignores values of zero and below", () => {
  assert.deepEqual(yRange([points([0, 1, 2], [-5, 1, 100])], [0, 2], { log: true }).labels, [1, 100]);
});

test("log ticks are 1, 2 and 5 on a short axis, powers on a long one, every n-th power on a very long one", () => {
  assert.deepEqual(logTicks([1, 100]), [1, 2, 5, 10, 20, 50, 100]);
  assert.deepEqual(logTicks([1e-3, 1e2]), [1e-3, 1e-2, 1e-1, 1, 10, 100]);
  assert.deepEqual(logTicks([1e-12, 1]), [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1]);
  assert.deepEqual(logTicks([3, 4]), [3, 4]);
});

test("tick labels are short, without the noise of sums, and never equal to each other", () => {
  assert.deepEqual(tickLabels([0, 0.1, 0.2, 0.30000000000000004]), ["0", "0.1", "0.2", "0.3"]);
  assert.deepEqual(tickLabels([100.0001, 100.0002, null]), ["100.0001", "100.0002", ""]);
});

test("the labels of one axis have one form", () => {
  const rate = [0, 2e-7, 4e-7, 6e-7, 8e-7, 1e-6];
  assert.deepEqual(tickLabels(rate), ["0", "0.2e-6", "0.4e-6", "0.6e-6", "0.8e-6", "1.0e-6"]);
  assert.deepEqual(tickLabels([0.005, 0.01, 0.015]), ["0.005", "0.010", "0.015"]);
  assert.deepEqual(tickLabels([0, 5000, 10000]), ["0", "5k", "10k"]);
  assert.deepEqual(tickLabels([-2e6, 0, 2e6]), ["−2M", "0", "2M"]);
  assert.deepEqual(tickLabels([0.0123, 0.981]), ["0.01", "0.98"]);
  assert.deepEqual(logLabels([1e-2, 0.1, 1]), ["0.01", "0.1", "1"]);
  assert.deepEqual(logLabels([1e-6, 2e-4, 1]), ["1e-6", "2e-4", "1e0"]);
});

test("nearestIndex finds the bucket that contains x, else the nearest one, and none beyond the ends", () => {
  const steps = { x: [0, 1, 2, 3], x_end: [0, 1, 2, 3] };
  assert.deepEqual(
    [-0.6, -0.4, 0.4, 0.6, 2.51, 3.4, 3.6].map((x) => nearestIndex(steps, x)),
    [-1, 0, 0, 1, 3, 3, -1],
  );
  const buckets = { x: [0, 10], x_end: [7, 17] };
  assert.deepEqual(
    [6, 8, 9, 12].map((x) => nearestIndex(buckets, x)),
    [0, 0, 1, 1],
  );
  assert.equal(nearestIndex({ x: [5], x_end: [5] }, 99), 0);
  assert.equal(nearestIndex({ x: [], x_end: [] }, 0), -1);
});

test("indexAt finds the bucket that contains x, else the last one before it", () => {
  const xs = [0, 10, 20];
  assert.deepEqual(
    [-1, 0, 9, 10, 19, 99].map((x) => indexAt(xs, x)),
    [0, 0, 0, 1, 1, 2],
  );
  assert.equal(indexAt([], 5), -1);
});

test("finiteRanges leaves out the indices at which a column is not finite", () => {
  assert.deepEqual(finiteRanges([1, NaN, 1, 1], [0, 0, 0, 0], 4), [
    [0, 0],
    [2, 3],
  ]);
  assert.deepEqual(finiteRanges([1, 1], [NaN, NaN], 2), []);
});

test("smoothing starts at the first value and skips what is not finite", () => {
  assert.deepEqual([...smoothed([4, NaN, 4], 0.9)], [4, NaN, 4]);
  const [, second] = smoothed([0, 1], 0.5);
  assert.ok(Math.abs(second - 2 / 3) < 1e-12); // (0.5·0.5·0 + 0.5·1) / (0.5·0.5 + 0.5)
});
