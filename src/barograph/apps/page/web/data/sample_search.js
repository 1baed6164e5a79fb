// Search in the samples of a report, as the server searches in those of a run.

const FIXED = ["step", "reward", "advantage", "length", "weight_version", "time", "task", "group", "run"];
const FIELDS = [...FIXED, "finish_reason", "id", "answer", "reference", "discarded"];
const QUOTED = String.raw`"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.|'(?=\w))*'(?!\w)`;
const CONDITION = new RegExp(
  String.raw`\s*(${QUOTED}|[^\s=<>!~"]+)\s*(<=|>=|!=|==|=|<|>|!~|~)\s*(${QUOTED}|.*?)\s*(?:$|\band\b|&&|,(?=\s*[\w"']))`,
  "sy",
);
const TRUTHS = { true: 1, false: 0, yes: 1, no: 0 };

export function searchSamples(all, parameters) {
  const found = all ?? { samples: [], census: null };
  const sort = parameters.sort ?? "-step";
  const key = sort.replace("-", "");
  const sign = sort.startsWith("-") ? -1 : 1;
  const conditions = parseConditions(parameters.where ?? "");
  const samples = found.samples.filter((sample) => matches(sample, parameters, conditions));
  samples.sort((a, b) => byValue(columnValue(a, key), columnValue(b, key), sign));
  return { samples, matched: samples.length, offset: 0, more: false, census: found.census, unknown: [] };
}

export function findSample(all, place) {
  return all?.samples.find((sample) => sample.place === place);
}

function matches(sample, parameters, conditions) {
  const { grep, regex, step, group, task, finish_reason, min_reward, max_reward } = parameters;
  return (
    (!grep || allText(sample).toLowerCase().includes(grep.toLowerCase())) &&
    (!regex || new RegExp(regex).test(allText(sample))) &&
    ((step ?? "") === "" || sample.step === Number(step)) &&
    (!group || sample.group === group) &&
    (!task || sample.task === task) &&
    (!finish_reason || sample.finish_reason === finish_reason) &&
    (!min_reward || sample.reward >= Number(min_reward)) &&
    (!max_reward || sample.reward <= Number(max_reward)) &&
    conditions.every((condition) => fulfils(sample, condition))
  );
}

function allText(sample) {
  const parts = (sample.turns ?? []).flatMap((turn) => turn.parts.map((part) => part.text));
  return [...parts, sample.answer ?? "", sample.reference ?? ""].join("\0");
}

function parseConditions(text) {
  const found = [];
  CONDITION.lastIndex = 0;
  while (text.slice(CONDITION.lastIndex).trim()) {
    const rest = text.slice(CONDITION.lastIndex);
    const match = CONDITION.exec(text);
    if (!match?.[3]) throw new Error(`where: ${rest}`);
    found.push({ name: unquoted(match[1]), order: match[2], value: unquoted(match[3]) });
  }
  return found;
}

function unquoted(text) {
  return /^(["']).*\1$/s.test(text) ? text.slice(1, -1).replace(/\\(.)/g, "$1") : text;
}

function columnValue(sample, name) {
  if (FIELDS.includes(name)) return sample[name];
  if (name === "tokens") return sample.tokens?.length || null;
  return name.startsWith("reward.") ? sample.rewards?.[name.slice(7)] : sample.columns?.[name];
}

function fulfils(sample, { name, order, value }) {
  const own = columnValue(sample, name);
  const has = own !== null && own !== undefined;
  if (value === "none" && ["=", "!="].includes(order)) return has === (order === "!=");
  if (!has) return false;
  const number = TRUTHS[value.toLowerCase()] ?? Number(value);
  const same = String(own) === value || Number(own) === number;
  const orders = { "<": own < number, "<=": own <= number, ">": own > number, ">=": own >= number };
  if (order.endsWith("~")) return String(own).toLowerCase().includes(value.toLowerCase()) === (order === "~");
  return orders[order] ?? same === (order !== "!=");
}

// Samples without the value come last.
function byValue(a, b, sign) {
  const missing = (value) => value === null || value === undefined;
  if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
  return sign * (typeof a === "string" ? String(a).localeCompare(String(b)) : a - b);
}
