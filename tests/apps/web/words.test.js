// The page's texts in both languages.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { WORDS } from "../../../src/barograph/apps/page/web/text/words.js";

const WEB = new URL("../../../src/barograph/apps/page/web/", import.meta.url);
const SAME = ["p95", "prompt", "rank", "tracker"]; // the same word in both languages
const FROM_DATA =
  /^(by|x|health|moment|severity|k|s|tasks|runs|col|stat|group|verdict|block)_|^(running|finished|crashed|stalled|unreadable|unknown|killed|late|seconds|share)$/;

function sources(folder = WEB) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (entry.isDirectory()) {
      return ["vendor", "bundle"].includes(entry.name) ? [] : sources(new URL(`${entry.name}/`, folder));
    }
    return entry.name.endsWith(".js") ? [readFileSync(new URL(entry.name, folder), "utf8")] : [];
  });
}

test("every text is in English and in Chinese, with the same placeholders", () => {
  const placeholders = (text) => [...text.matchAll(/\{\w\}/g)].map(String).sort();
  for (const [key, texts] of Object.entries(WORDS)) {
    const [en, zh, ...singular] = texts;
    assert.ok(en && zh && singular.length < 2, key);
    for (const text of [zh, ...singular]) assert.deepEqual(placeholders(en), placeholders(text), key);
    assert.equal(en === zh, SAME.includes(key), key);
  }
});

test("every text that the page uses exists, and every text is used", () => {
  const code = sources().join("\n");
  const used = new Set([...code.matchAll(/\bt\(\s*"([^"]+)"/g)].map((match) => match[1]));
  assert.ok(used.size > 100);
  for (const key of used) assert.ok(key in WORDS, key);
  const views = [...code.matchAll(/(\w+): (?:async )?\(\) => .*View\b/g)].map((match) => match[1]);
  assert.equal(views.length, 12);
  for (const key of Object.keys(WORDS)) {
    assert.ok(used.has(key) || views.includes(key) || FROM_DATA.test(key), `${key} is not used`);
  }
});

test("one of a thing is in the singular", async () => {
  globalThis.location = { protocol: "http:", search: "?lang=en", hash: "", pathname: "/" };
  globalThis.addEventListener = () => {};
  const { t } = await import("../../../src/barograph/apps/page/web/text/language.js");
  assert.equal(t("points", { n: 1 }), "1 point");
  assert.equal(t("points", { n: "1" }), "1 point");
  assert.equal(t("points", { n: 12 }), "12 points");
  assert.equal(t("runs_count", { n: 1 }), "1 run");
});
