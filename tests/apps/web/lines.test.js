// The lines of a chart, drawn as SVG.
import assert from "node:assert/strict";
import { test } from "node:test";
import { drawLines, makeScale } from "../../../src/barograph/apps/page/web/charts/lines.js";
import { SvgContext } from "../../../src/barograph/apps/page/web/charts/svg_context.js";

globalThis.document = { documentElement: {} };
globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => name });

const columns = (values) => ({ x: [0, 1, 2], x_end: [0, 1, 2], min: values, max: values, last: values });
const series = (values) => ({ ...columns(values), nonfinite: [0, 0, 0], exact: true });
const line = (run, colour) => ({
  run,
  colour,
  main: series([1, 2, 3]),
  max: series([4, 4, 4]),
  min: series([0, 0, 0]),
});

function drawn(lines, focused = null) {
  const ctx = new SvgContext();
  const scale = makeScale([0, 2], [0, 4], false, { left: 0, top: 0, width: 20, height: 40 });
  drawLines(ctx, lines, scale, { smooth: 0, focused, endDot: true, ratio: 1, floor: 40 });
  return ctx.parts;
}

const bands = (parts) => parts.filter((part) => part.includes("fill-opacity"));

test("one run has the band of its extremes; of several only the one at the pointer", () => {
  assert.equal(bands(drawn([line("a", 0)])).length, 1);
  assert.equal(bands(drawn([line("a", 0), line("b", 1)])).length, 0);
  const [band, ...others] = bands(drawn([line("a", 0), line("b", 1)], "b"));
  assert.match(band, /fill="--s1"/);
  assert.equal(others.length, 0);
});

test("a line is a path through its points with a dot at its end; colours that are used again are dashed", () => {
  const [path, dot] = drawn([{ ...line("a", 13), max: null, min: null }]);
  assert.match(path, /d="M0 30L10 20L20 10".*stroke="--s1".*stroke-dasharray="5 3"/);
  assert.match(dot, /^<path d="M17.4 10a2.6/);
});

test("a value that is not finite is a gap, and a cross on the axis", () => {
  const main = { ...series([1, NaN, 3]), nonfinite: [0, 1, 0] };
  const parts = drawn([{ run: "a", colour: 0, main }]);
  assert.match(parts[0], /d="M0 30L1.6 30M20 10L21.6 10"/);
  assert.match(parts.at(-1), /stroke="--bad"/);
});

test("of many lines all are thin but the one at the pointer", () => {
  const widths = (count, focused) => {
    const lines = Array.from({ length: count }, (_, i) => ({ ...line(`r${i}`, i % 8), max: null, min: null }));
    const paths = drawn(lines, focused).filter((part) => /stroke="--s/.test(part));
    return paths.map((part) => Number(part.match(/stroke-width="([\d.]+)"/)[1]));
  };
  assert.deepEqual(new Set(widths(8)), new Set([1.6]));
  assert.deepEqual(new Set(widths(9)), new Set([1]));
  assert.deepEqual(widths(9, "r3").indexOf(1.6), 3);
});
