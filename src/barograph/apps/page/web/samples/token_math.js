// Tokens of a sample as numbers: their values, those that follow from them, colours, extremes, and rows of text.

const CLIPPED = 0.02; // share of the values at each end that have the full colour
const ABOUT_THE_SAME = 0.02; // of the largest: before the first update the ratio is 1 but for rounding
const LOG_PROB = ["log_prob", "log_probs", "logprob", "logprobs"];
const OLD = ["old", "old_log_prob", "old_log_probs"];
const ROLLOUT = ["rollout", "rollout_log_prob", "rollout_log_probs"];
const REFERENCE = ["reference", "ref", "ref_log_prob", "ref_log_probs", "reference_log_prob"];
const AROUND_0 = new Set(["push", "gradient", "mismatch", "kl", "surprise", "advantage", "entropy", "clipped"]);
for (const name of [...LOG_PROB, ...OLD, ...ROLLOUT, ...REFERENCE]) AROUND_0.add(name);
// Tokens of chat templates, which begin and end turns: <|im_end|>, <start_of_turn>, [INST], </s>, <eos>, <<SYS>>.
const SPECIAL =
  /^(<[|｜].*[|｜]>|<\/?s>|<(bos|eos|pad|unk|sep|cls|mask|(start|end)_of_\w+)>|\[\/?[A-Z_]{3,}\]|<<\/?SYS>>)$/;

// The array of a base64 text of float32.
export function decodeArray(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}

// A function that returns the alternatives [text, log-prob] of the token at a place, of what a sample has of them.
export function alternativesOf(packed) {
  if (!packed) return () => [];
  const [counts, ids, logProbs] = [packed.counts, packed.ids, packed.log_probs].map(decodeArray);
  const ends = new Uint32Array(counts.length);
  counts.reduce((sum, count, i) => {
    ends[i] = sum + count;
    return ends[i];
  }, 0);
  return (place) => {
    const numbers = Array.from({ length: counts[place] }, (_, i) => ends[place] - counts[place] + i);
    return numbers.map((i) => [packed.texts[ids[i]], logProbs[i]]);
  };
}

// All values by name: first those that follow from several of them, then those that were given. The gradient is the
// derivative of advantage x ratio by the logit of the token, 0 where the loss clips it. The mismatch is that
// of the policy that sampled: an update moves the newest log-probs away from the rollout engine's. KL (k3, to the
// reference) and surprise are of the newest policy that is known. token_sums.py computes the same.
export function allValues(given) {
  const [logProb, old, rollout, reference] = [LOG_PROB, OLD, ROLLOUT, REFERENCE].map((names) =>
    names.map((name) => given[name]).find(Boolean),
  );
  const newest = logProb ?? old;
  const ratio = given.ratio ?? combined(logProb, old, (now, then) => Math.exp(now - then));
  const push = combined(given.advantage, ratio, (advantage, by) => advantage * by);
  const gradient = combined(push, logProb, (by, now) => by * -Math.expm1(Math.min(now, 0)));
  const found = {
    push,
    gradient: given.clipped ? combined(gradient, given.clipped, (by, clipped) => (clipped > 0 ? 0 : by)) : gradient,
    mismatch: combined(old ?? logProb, rollout, (trainer, engine) => trainer - engine),
    kl: combined(reference, newest, (then, now) => Math.expm1(then - now) - (then - now)),
    surprise: (newest ?? rollout)?.map((value) => -value),
    ratio,
    ...given,
  };
  return Object.fromEntries(Object.entries(found).filter(([, values]) => values));
}

function combined(a, b, compute) {
  return a && b ? a.map((value, i) => compute(value, b[i])) : null;
}

export function isSpecial(token) {
  return SPECIAL.test(token.trim());
}

// The name of the value to show where none is asked for: the first that is not about the same for all tokens.
export function shownValue(values) {
  const names = Object.keys(values);
  const varies = (name) => {
    const sorted = countedOf(values[name], values.mask);
    const [low, high] = [sorted[0] ?? 0, sorted.at(-1) ?? 0];
    return high - low > ABOUT_THE_SAME * Math.max(Math.abs(low), Math.abs(high));
  };
  return names.find(varies) ?? names[0];
}

// Whether the value of a token that counts is not finite. Without a mask NaN is not known, as of a prompt's tokens.
export function isNonfinite(values, mask, place) {
  if (mask) return Boolean(mask[place]) && !Number.isFinite(values[place]);
  return Math.abs(values[place]) === Number.POSITIVE_INFINITY;
}

// Of how many tokens each value is not finite; values without such tokens are left out.
export function nonfiniteCounts(values) {
  const count = (name) => values[name].reduce((sum, _, i) => sum + isNonfinite(values[name], values.mask, i), 0);
  return Object.keys(values)
    .map((name) => [name, count(name)])
    .filter(([, counted]) => counted);
}

// The neutral value, by name: it has no colour. Other names have none. As in token_sums.py.
function neutralOf(name) {
  if (name === "ratio") return 1;
  return AROUND_0.has(name) ? 0 : null;
}

// The range of the finite values of tokens that count, without a few at each end unless these are all that differs;
// NaN without such values. The neutral value has no colour.
export function scaleOf(values, mask, name = "") {
  const sorted = countedOf(values, mask);
  const neutral = neutralOf(name) ?? 0;
  if (!sorted.length) return { low: Number.NaN, high: Number.NaN, neutral };
  const most = Math.floor(CLIPPED * sorted.length);
  const cut = sorted[most] < sorted.at(-1 - most) ? most : 0;
  return { low: sorted[cut], high: sorted.at(-1 - cut), neutral };
}

// The finite values of tokens that the mask does not leave out, in ascending order.
function countedOf(values, mask) {
  return values.filter((value, i) => Number.isFinite(value) && (!mask || mask[i])).sort();
}

// The strength of a value's colour, from -1 to 1; of values on one side of the neutral one it is the distance from the
// end near it.
export function strength(value, { low, high, neutral = 0 }) {
  if (Number.isNaN(value) || !(low < high)) return 0;
  if (low < neutral && high > neutral)
    return Math.max(-1, Math.min(1, (value - neutral) / Math.max(neutral - low, high - neutral)));
  const share = Math.max(0, Math.min(1, (value - low) / (high - low)));
  return high > neutral ? share : share - 1;
}

// The places of the most extreme values among the tokens that count: those that are not finite, then the farthest from
// the neutral value, else from their median; none of these if all are the same.
export function extremes(values, mask, name = "", count = 10) {
  const sorted = countedOf(values, mask);
  const middle = neutralOf(name) ?? sorted[Math.floor((sorted.length - 1) / 2)];
  const isSame = sorted[0] === sorted.at(-1);
  const distanceOf = (i) => {
    if (isNonfinite(values, mask, i)) return Number.POSITIVE_INFINITY;
    const isFar = Number.isFinite(values[i]) && !isSame && (!mask || mask[i]);
    return isFar ? Math.abs(values[i] - middle) : 0;
  };
  const found = []; // the farthest first; a few insertions are faster than sorting all
  for (let i = 0; i < values.length; i++) {
    const distance = distanceOf(i);
    if (!distance || (found.length === count && distance <= found.at(-1).distance)) continue;
    const place = found.findIndex((one) => one.distance < distance);
    found.splice(place < 0 ? found.length : place, 0, { i, distance });
    if (found.length > count) found.pop();
  }
  return found.map((one) => one.i);
}

// Rows of pieces [place, text] that are at most `width` characters wide; a newline ends a row.
export function tokenRows(tokens, width) {
  const rows = [];
  let row = [];
  let used = 0;
  const end = () => {
    rows.push(row);
    row = [];
    used = 0;
  };
  tokens.forEach((token, place) => {
    for (const [i, line] of (token.includes("\n") ? token.split("\n") : [token]).entries()) {
      if (i) {
        row.push([place, "⏎"]);
        end();
      }
      for (let text = line; text; ) {
        if (used && used + cells(text) > width) end();
        const piece = fitting(text, width);
        row.push([place, piece]);
        used += cells(piece);
        text = text.slice(piece.length);
      }
    }
  });
  if (row.length) end();
  return rows;
}

function fitting(text, width) {
  if (cells(text) <= width) return text;
  let used = 0;
  let length = 0;
  for (const char of text) {
    used += cells(char);
    if (used > width && length) break;
    length += char.length;
  }
  return text.slice(0, length);
}

const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\u{1f300}-\u{1faff}]/u;
// biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII
const ASCII = /^[\u0000-\u007f]*$/;

// The width of a text in columns of a fixed-width font.
function cells(text) {
  if (ASCII.test(text)) return text.length;
  let sum = 0;
  for (const char of text) sum += WIDE.test(char) ? 2 : 1;
  return sum;
}

// The mean strength in each of `count` stretches of the tokens, for an overview; the strongest has the full colour.
// A token that the mask leaves out has none; NaN is a stretch with a token whose value is not finite.
export function overview(values, mask, scale, count) {
  const means = Float32Array.from({ length: count }, (_, bar) => {
    const first = Math.floor((bar * values.length) / count);
    const end = Math.max(first + 1, Math.floor(((bar + 1) * values.length) / count));
    let sum = 0;
    for (let i = first; i < end; i++) {
      if (isNonfinite(values, mask, i)) return Number.NaN;
      if (!mask || mask[i]) sum += strength(values[i], scale);
    }
    return sum / (end - first);
  });
  const largest = means.reduce((most, one) => Math.max(most, Math.abs(one) || 0), 0) || 1;
  return means.map((mean) => mean / largest);
}
