// Requests that were made before the page's code needed them.
import assert from "node:assert/strict";
import { test } from "node:test";

let asked = 0;
Object.assign(globalThis, {
  document: { getElementById: () => null },
  dispatchEvent() {},
  fetch: async (address) => new Response(JSON.stringify({ address, number: ++asked })),
});
const { fetchJson, prefetch } = await import("../../../src/barograph/apps/page/web/data/api.js");

test("a prefetched answer is used once, also by two requests at the same time", async () => {
  prefetch("/api/table?choices=1");
  const answers = await Promise.all([1, 2, 3].map(() => fetchJson("/api/table", { choices: 1 })));
  assert.deepEqual(
    answers.map((answer) => answer.number),
    [1, 2, 3],
  );
  assert.ok(answers.every((answer) => answer.address === "./api/table?choices=1"));
});
