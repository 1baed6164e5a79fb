// The difference between two texts, by words.

const MAX_CELLS = 4_000_000; // of the table of two middles; larger ones differ as a whole

// Pieces [kind, text]: "same", "gone" (only in the first) and "new" (only in the second).
export function wordDiff(before, after) {
  const a = words(before);
  const b = words(after);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const middle = middleDiff(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  const pieces = [["same", a.slice(0, head)], ...middle, ["same", a.slice(a.length - tail)]];
  return joined(pieces.map(([kind, some]) => [kind, some.join("")]).filter(([, text]) => text));
}

function words(text) {
  return text.match(/\p{Script=Han}|[^\s\p{Script=Han}]+|\s+/gu) ?? [];
}

// By the longest common subsequence.
function middleDiff(a, b) {
  if (!a.length || !b.length || a.length * b.length > MAX_CELLS)
    return [
      ["gone", a],
      ["new", b],
    ];
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const skip = Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 : skip;
    }
  }
  const pieces = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      pieces.push(["same", [a[i++]]]);
      j++;
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) pieces.push(["gone", [a[i++]]]);
    else pieces.push(["new", [b[j++]]]);
  }
  return [...pieces, ["gone", a.slice(i)], ["new", b.slice(j)]];
}

// Neighbours of the same kind as one piece.
function joined(pieces) {
  const all = [];
  for (const [kind, text] of pieces) {
    if (all.at(-1)?.[0] === kind) all.at(-1)[1] += text;
    else all.push([kind, text]);
  }
  return all;
}
