// What the model wrote in a sample, and where the samples of a list begin to differ.

const WRITTEN = ["assistant", "completion", "model", "gpt"];
const LEAST_SHARED = 24; // characters that are worth leaving out

// The turns from the first one of the model on; all but the system's if it has none.
export function outputTurns(sample) {
  const turns = sample.turns ?? [];
  const first = turns.findIndex((turn) => WRITTEN.includes(turn.role));
  return first >= 0 ? turns.slice(first) : turns.filter((turn) => turn.role !== "system");
}

// The turns before those of the model.
export function inputTurns(sample) {
  const turns = sample.turns ?? [];
  const first = turns.findIndex((turn) => WRITTEN.includes(turn.role));
  return first >= 0 ? turns.slice(0, first) : turns.filter((turn) => turn.role === "system");
}

export function outputText(sample) {
  return turnsText(outputTurns(sample));
}

// What it wrote without its reasoning, if it wrote anything else.
export function answerText(sample) {
  const turns = outputTurns(sample);
  const shown = turns.map((turn) => ({ ...turn, parts: turn.parts.filter((part) => part.kind !== "reasoning") }));
  return turnsText(shown) || turnsText(turns);
}

function turnsText(turns) {
  const texts = turns.flatMap((turn) => turn.parts.map(partText));
  return texts.filter(Boolean).join("\n");
}

function partText(part) {
  if (part.kind === "media") return `[${part.name}]`;
  return part.kind === "tool_call" && part.name ? `${part.name} ${part.text}` : part.text;
}

// How many characters the texts have in common at their beginning, up to a space; 0 if that is little.
export function sharedBeginning(texts) {
  const different = new Set(texts);
  if (different.size < 2) return 0;
  const [first, ...others] = different;
  let length = first.length;
  for (const text of others) {
    let same = 0;
    while (same < length && text[same] === first[same]) same++;
    length = same;
  }
  const word = first.slice(0, length).search(/\s\S*$/) + 1;
  return word >= LEAST_SHARED ? word : 0;
}
