// The style sheets: sizes of text and corners come from scales, and every class is one that the page uses.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const WEB = new URL("../../../src/barograph/apps/page/web/", import.meta.url);
const OF_PLOTS = /^u-|^uplot$/; // classes of uPlot
const FROM_DATA = /^d[12]$|^(tool|verdict)-/; // the end of the class is a variable

function sources(end, folder = WEB) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (entry.isDirectory() && !["vendor", "bundle"].includes(entry.name)) {
      return sources(end, new URL(`${entry.name}/`, folder));
    }
    return entry.name.endsWith(end) ? [readFileSync(new URL(entry.name, folder), "utf8")] : [];
  });
}

const css = sources(".css")
  .join("\n")
  .replace(/\/\*.*?\*\//gs, "");

test("sizes of text are those of the scale", () => {
  for (const [, value] of css.matchAll(/[^-]font(?:-size)?: ([^;]+);/g)) {
    assert.match(value, /^(var\(--text-\w+\)|inherit$|0$)/);
  }
  assert.ok(css.match(/--text-\w+:/g).length <= 6);
});

test("radii of corners are those of the scale", () => {
  for (const [, value] of css.matchAll(/border-radius: ([^;]+);/g)) {
    assert.match(value, /^(0|0 0 )?(var\(--(round(-\w+)?|pill)\) ?)*$/);
  }
  assert.ok(css.match(/--round[\w-]*:/g).length <= 3);
});

test("every class and every view's style sheet is used", () => {
  const words = new Set([...sources(".js"), ...sources(".html")].join("\n").match(/[\w-]+/g));
  const classes = new Set([...css.matchAll(/[.#]([a-z][\w-]*)(?=[^{}]*\{)/g)].map((match) => match[1]));
  assert.ok(classes.size > 200);
  for (const name of classes) {
    if (!OF_PLOTS.test(name) && !FROM_DATA.test(name)) assert.ok(words.has(name), name);
  }
  const imported = readFileSync(new URL("styles/page.css", WEB), "utf8").match(/\w+\.css(?=";)/g);
  const files = readdirSync(new URL("styles/", WEB)).filter((name) => name !== "page.css");
  assert.deepEqual(imported.filter((name) => files.includes(name)).sort(), files.sort());
});
