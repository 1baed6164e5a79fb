// Series of the API: the binary format, JSON, and following by cursors.
import assert from "node:assert/strict";
import { test } from "node:test";

// The words of a table are in the language of the address.
globalThis.location = { protocol: "http:", search: "?lang=en", hash: "", pathname: "/" };
globalThis.addEventListener = () => {};
const { chartMarkdown, meansCsv, pointsCsv } = await import("../../../src/barograph/apps/page/web/charts/table.js");

import {
  appendSeries,
  decodeSeries,
  hasNothingNew,
  seriesFromJson,
} from "../../../src/barograph/apps/page/web/data/series.js";

// A body as docs/api.md describes it.
function encoded(series, arrays) {
  const header = { series, arrays: arrays.map(([type, values]) => [type, values.length]) };
  const text = JSON.stringify(header);
  const bytes = new TextEncoder().encode(text.padEnd(Math.ceil(text.length / 8) * 8));
  const parts = arrays.map(
    ([type, values]) => new Uint8Array((type === "f8" ? Float64Array : Uint32Array).from(values).buffer),
  );
  const size = parts.reduce((sum, part) => sum + Math.ceil(part.length / 8) * 8, 8 + bytes.length);
  const body = new Uint8Array(size);
  body.set(new TextEncoder().encode("WSS1"));
  new DataView(body.buffer).setUint32(4, bytes.length, true);
  body.set(bytes, 8);
  let at = 8 + bytes.length;
  for (const part of parts) {
    body.set(part, at);
    at += Math.ceil(part.length / 8) * 8;
  }
  return body.buffer;
}

test("binary series share arrays and keep an odd number of u32 aligned", () => {
  const columns = { x: 0, x_end: 0, min: 1, max: 1, last: 1, count: 2, nonfinite: 2 };
  const series = [
    { name: "a", found: true, ...columns },
    { name: "none", found: false },
  ];
  const arrays = [
    ["u4", [1, 2, 3]],
    ["f8", [0.5, NaN, 2]],
    ["u4", [1, 1, 1]],
  ];
  const [a, none] = decodeSeries(encoded(series, arrays));
  assert.deepEqual([...a.x], [1, 2, 3]);
  assert.deepEqual([...a.last], [0.5, NaN, 2]);
  assert.deepEqual([...a.count], [1, 1, 1]);
  assert.deepEqual(none, { name: "none", found: false });
});

test("an exact series gets the columns of buckets of one point", () => {
  const series = seriesFromJson({ found: true, exact: true, x: [0, 1, 2], last: [1, "NaN", "-Infinity"] });
  assert.deepEqual([...series.last], [1, NaN, -Infinity]);
  assert.deepEqual([...series.max], [1, NaN, NaN]);
  assert.deepEqual([...series.nonfinite], [0, 1, 1]);
  assert.deepEqual([...series.count], [1, 1, 1]);
  assert.equal(series.x_end, series.x);
});

test("a response is appended after the buckets to keep; keep 0 and an unknown series replace", () => {
  const series = (x, keep) => seriesFromJson({ found: true, exact: true, keep, x, last: x });
  const joined = appendSeries(series([0, 1, 2], 0), series([20, 30], 2));
  assert.deepEqual([...joined.x], [0, 1, 20, 30]);
  assert.deepEqual([...joined.nonfinite], [0, 0, 0, 0]);
  const fresh = series([7], 0);
  assert.equal(appendSeries(joined, fresh), fresh);
  assert.equal(appendSeries(undefined, fresh), fresh);
});

test("a CSV has a row per point of each series, with quoted names", () => {
  const one = seriesFromJson({ found: true, name: 'a,"b"', x: [1, 2], last: [0.5, "NaN"] });
  const rows = pointsCsv(
    [
      { label: "run", ...one },
      { label: "other", name: "none", found: false },
    ],
    "step",
  ).split("\n");
  assert.deepEqual(rows, ["run,name,step,value", 'run,"a,""b""",1,0.5', 'run,"a,""b""",2,NaN', ""]);
});

test("a CSV of buckets says what each row stands for, and one of groups has their intervals", () => {
  const columns = {
    x: [0, 4],
    x_end: [3, 7],
    min: [1, 2],
    max: [9, 8],
    last: [5, 6],
    count: [4, 4],
    nonfinite: [0, 0],
  };
  const bucket = seriesFromJson({ found: true, exact: false, name: "a", ...columns });
  const exact = seriesFromJson({ found: true, exact: true, name: "b", x: [2], last: [7] });
  assert.deepEqual(
    pointsCsv(
      [bucket, exact].map((one) => ({ label: "run", ...one })),
      "step",
    ).split("\n"),
    [
      "run,name,step,value,first_step,points,lowest,highest",
      "run,a,3,5,0,4,1,9",
      "run,a,7,6,4,4,2,8",
      "run,b,2,7,2,1,7,7",
      "",
    ],
  );
  const curve = (last) => seriesFromJson({ found: true, exact: true, x: [1], last });
  const group = { label: "g", main: curve([2]), min: curve([1]), max: curve([3]) };
  assert.equal(meansCsv([group], "step"), "group,step,mean,low,high\ng,1,2,1,3\n");
});

test("a chart as Markdown has a row for each run, and a link", () => {
  const main = seriesFromJson({ found: true, x: [0, 1, 2], last: [0.5, 9, "NaN"] });
  const text = chartMarkdown({ title: "Loss", unit: "nats", names: ["loss"] }, [{ label: "a|b", main }], "http://x/?a");
  assert.deepEqual(text.split("\n"), [
    "**Loss** (nats): `loss`",
    "",
    "| run | first | last | lowest | highest |",
    "| --- | --- | --- | --- | --- |",
    "| a\\|b | 0.500 | NaN | 0.500 | 9 |",
    "",
    "<http://x/?a>",
    "",
  ]);
});

test("a response that repeats the end of a known series has nothing new", () => {
  const of = (x, last, keep = 0) => seriesFromJson({ found: true, exact: true, keep, x, last });
  const known = of([0, 1, 2], [5, "NaN", 7]);
  assert.ok(hasNothingNew(known, of([2], [7], 2)));
  assert.ok(hasNothingNew(known, of([1, 2], ["NaN", 7], 1)));
  assert.ok(!hasNothingNew(known, of([2], [8], 2)));
  assert.ok(!hasNothingNew(known, of([2, 3], [7, 7], 2)));
  assert.ok(!hasNothingNew(known, of([0, 1, 2], [5, "NaN", 7])), "complete, after a change of older points");
  assert.ok(!hasNothingNew(undefined, of([2], [7], 2)));
});
