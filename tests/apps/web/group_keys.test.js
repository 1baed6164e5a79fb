// The choice of config keys by which runs are grouped, and the caption of bars.
import assert from "node:assert/strict";
import { test } from "node:test";

Object.assign(globalThis, {
  location: { protocol: "http:", search: "?lang=en&pool=lr", pathname: "/" },
  addEventListener() {},
  innerWidth: 1440,
});
const { keyOptions } = await import("../../../src/barograph/apps/page/web/table/group_keys.js");
const { StackedBars } = await import("../../../src/barograph/apps/page/web/charts/stacked_bars.js");

test("after one key, others can be added to it", () => {
  assert.deepEqual(keyOptions(["lr", "clip"]), [
    ["lr", "lr"],
    ["clip", "clip"],
    ["lr,clip", "lr, clip"],
  ]);
  assert.deepEqual(
    keyOptions(["group"], (key) => `config:${key}`).map(([, label]) => label),
    ["lr", "group", "lr, group"],
  );
});

test("the caption of a bar names the largest values, and sums the others", () => {
  const layers = Array.from({ length: 12 }, (_, i) => ({ name: `p${i}`, values: [i + 1] }));
  const bars = { steps: [3], ends: [3], layers, format: String };
  const text = StackedBars.prototype.textOf.call(bars, 0);
  assert.equal(text.split(" · ").length, 9);
  assert.ok(text.startsWith("step 3: p11 12 · p10 11 · "));
  assert.ok(text.endsWith(" · 4 others 10"));
  assert.ok(StackedBars.prototype.textOf.call({ ...bars, layers: layers.slice(0, 9) }, 0).endsWith(" · p0 1"));
});
