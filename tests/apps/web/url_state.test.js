// The state of the page in its URL.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

const entries = [];
const listeners = {};
globalThis.location = { protocol: "http:", search: "?run=a&with=b%252Cc,d&lang=zh", pathname: "/" };
globalThis.history = {
  pushState: (_state, _title, url) => entries.push(["push", url]),
  replaceState: (_state, _title, url) => entries.push(["replace", url]),
};
globalThis.addEventListener = (name, listener) => {
  listeners[name] = listener;
};

const { getList, getState, packList, setState, watchState } = await import(
  "../../../src/barograph/apps/page/web/data/url_state.js"
);
const { language, localized, t } = await import("../../../src/barograph/apps/page/web/text/language.js");
const changes = [];
watchState((names) => changes.push(names));

beforeEach(() => {
  entries.length = changes.length = 0;
});

test("states come from the URL, else have a default", () => {
  assert.deepEqual(
    [getState("run"), getState("tab"), getState("x"), getState("nothing")],
    ["a", "overview", "step", ""],
  );
});

test("a list survives commas in its values", () => {
  assert.deepEqual(getList("with"), ["b,c", "d"]);
  assert.equal(packList(["b,c", "d"]), "b%2Cc,d");
  assert.deepEqual(getList("pins"), []);
});

test("a change adds a history entry and calls the watchers with the names that changed", () => {
  setState({ tab: "charts", run: "a" });
  assert.deepEqual(changes, [["tab"]]);
  assert.equal(entries[0][0], "push");
  assert.equal(new URLSearchParams(entries[0][1]).get("tab"), "charts");
});

test("a default leaves the URL, and no change adds no entry", () => {
  setState({ tab: "overview" }, true);
  assert.deepEqual(entries, [["replace", "?run=a&with=b%252Cc%2Cd&lang=zh"]]);
  setState({ tab: "", filter: null });
  assert.equal(entries.length, 1);
});

test("Back restores what the URL has", () => {
  location.search = "?run=b&lang=en";
  listeners.popstate();
  assert.deepEqual([getState("run"), getList("with")], ["b", []]);
  assert.deepEqual(changes, [["run", "lang", "with"]]);
});

test("texts follow the language of the URL", () => {
  setState({ lang: "zh" });
  assert.equal(language(), "zh");
  assert.equal(t("shown", { n: 1, m: 2 }), "1 / 2 个图表");
  assert.equal(localized({ en: "reward", zh: "奖励" }), "奖励");
  setState({ lang: "fr" });
  assert.equal(t("shown", { n: 1, m: 2 }), "1 of 2 charts");
  assert.equal(t("an_unknown_state"), "an unknown state");
  assert.equal(localized({ en: "reward" }), "reward");
  assert.equal(localized(null), "");
});
