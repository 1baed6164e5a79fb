// The colours of runs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

// The modules read the address of the page when they are loaded.
globalThis.document = { getElementById: () => null };
globalThis.location = { protocol: "http:", search: "?run=a", hash: "", pathname: "/" };
globalThis.addEventListener = () => {};
const { assignColours } = await import("../../../src/barograph/apps/page/web/data/colours.js");
const { PALETTE_SIZE } = await import("../../../src/barograph/apps/page/web/ui/colours.js");

const run = (key, number, colour = null) => ({ key, number, colour });

test("any twelve runs have different colours, their own where it is free", () => {
  const same = Array.from({ length: 12 }, (_, i) => run(`r${i}`, 8 * i));
  assert.equal(new Set(assignColours(same).values()).size, 12);
  assert.deepEqual([...assignColours([run("a", 0), run("b", 8), run("c", 12), run("d", 1)]).values()], [0, 8, 2, 1]);
});

test("a chosen colour comes first, and a run keeps its colour while it is selected", () => {
  const first = assignColours([run("a", 3), run("b", 3)]);
  assert.deepEqual([...first.values()], [3, 0]);
  assert.deepEqual([...assignColours([run("b", 3), run("c", 0)], first).values()], [0, 1]);
  assert.deepEqual([...assignColours([run("a", 3), run("b", 3, 3)], first).values()], [0, 3]);
  assert.deepEqual([...assignColours([run("a", 3, 5), run("b", 3, 5)]).values()], [5, 3]);
});

test("more runs than colours use the palette again", () => {
  const many = Array.from({ length: 15 }, (_, i) => run(`r${i}`, i));
  assert.deepEqual([...assignColours(many).values()].slice(12), [12, 13, 14]);
});

test("the colours of both themes differ from each other and from the card", () => {
  const css = readFileSync("src/barograph/apps/page/web/styles/base.css", "utf8");
  for (const theme of css.split("{").slice(1, 3)) {
    const value = (name) => theme.match(new RegExp(`${name}: (#\\w+);`))[1];
    const palette = Array.from({ length: PALETTE_SIZE }, (_, i) => value(`--s${i}`));
    for (const [i, one] of palette.entries()) {
      assert.ok(contrast(one, value("--card")) >= 2.7, `${one} on the card`);
      for (const other of palette.slice(0, i)) assert.ok(distance(one, other) > 0.09, `${one} and ${other}`);
    }
  }
});

function linear(hex) {
  const digits = hex.length === 4 ? [...hex.slice(1)].map((c) => c + c) : hex.slice(1).match(/../g);
  return digits
    .map((two) => Number.parseInt(two, 16) / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
}

// As in WCAG 2.
function contrast(one, other) {
  const [light, dark] = [one, other]
    .map(linear)
    .map(([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b)
    .sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

// The distance in Oklab, https://bottosson.github.io/posts/oklab/
function distance(one, other) {
  const [a, b] = [one, other].map(linear).map(oklab);
  return Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

function oklab([r, g, b]) {
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}
