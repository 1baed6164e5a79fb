// A transcript: the turns of a sample with reasoning, calls of tools, their results and images told apart.
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { isRich, textBlock } from "./text_block.js";
import { firstMatch, highlighted, visibleText } from "./texts.js";

const PLAIN = ["prompt", "completion"]; // roles that the title of the panel names
const MAX_JSON = 6000; // characters
const LONG_SYSTEM = 400; // characters from which on a system prompt is folded

export function transcript(turns, pattern) {
  if (!turns.length) return el("p", { class: "quiet", text: t("empty_sample") });
  return el(
    "div",
    { class: "transcript" },
    turns.map((turn) => turnNode(turn, pattern, turns.length > 1 || !PLAIN.includes(turn.role))),
  );
}

function turnNode(turn, pattern, isNamed) {
  const parts = turn.parts.map((part) => partNode(part, turn, pattern));
  const role = isNamed ? el("span", { class: "role", text: roleText(turn.role) }) : null;
  return el("div", { class: `turn ${roleClass(turn.role)}` }, role, el("div", { class: "parts" }, parts));
}

function roleText(role) {
  if (role === "prompt") return t("prompt");
  return role === "completion" ? t("completion") : visibleText(role);
}

function roleClass(role) {
  return ["system", "user", "tool", "prompt"].includes(role) ? role : "model";
}

function partNode(part, turn, pattern) {
  const title = partTitle(part);
  if (part.kind === "media") return el("span", { class: "medium", text: title, title: part.text || null });
  const block = isData(part) ? dataBlock(part, pattern) : textBlock(part.text, pattern, { class: part.kind });
  const isLong = turn.role === "system" && part.text.length > LONG_SYSTEM;
  if (part.kind === "reasoning" || isLong) {
    const label = isLong ? characters(part) : title;
    return el("details", { open: firstMatch(part.text, pattern) >= 0 }, el("summary", { text: label }), block);
  }
  return title ? el("div", { class: "call" }, el("span", { class: "quiet", text: title }), block) : block;
}

// Whether a part is rendered, and is what a program reads or writes.
function isData(part) {
  return isRich() && ["tool_call", "tool_result", "other"].includes(part.kind) && asJson(part.text) !== null;
}

// JSON on lines of its own.
function dataBlock(part, pattern) {
  return el("pre", { class: part.kind }, highlighted(JSON.stringify(asJson(part.text), null, 2), pattern));
}

// The list or mapping that a text has; null if it is none, or long.
function asJson(text) {
  if (text.length > MAX_JSON || !/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function partTitle(part) {
  const name = visibleText(part.name);
  if (part.kind === "reasoning") return `${t("reasoning")} · ${characters(part)}`;
  if (part.kind === "tool_call") return `${t("call")} ${name}`;
  if (part.kind === "tool_result") return `${t("result")} ${name}`;
  return part.kind === "media" ? name : "";
}

function characters(part) {
  return t("characters", { n: (part.length ?? part.text.length).toLocaleString() });
}
