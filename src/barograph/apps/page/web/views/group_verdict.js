// Which group of runs is better: means with intervals, and differences from the first group.

import { formatNumber } from "../text/format.js";
import { comparedTitle } from "../text/labels.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { panel, selectField, statusDot, swatch, table } from "../ui/widgets.js";

const DOTS = { better: "good", worse: "bad" };
const SENTENCES = { "too few": "verdict_too_few", nothing: "verdict_no_values", undecided: "verdict_equal" };

// `data` is the answer of /api/groups; its groups have labels and colours; `choose` are metric(key) and base(label).
export function verdictPanel(data, charts, choose) {
  const base = data.groups[0];
  const options = charts.map((chart) => [chart.key, comparedTitle(chart)]);
  const fields = el(
    "span",
    { class: "verdict-fields" },
    selectField(t("verdict_by"), options, data.chart, choose.metric),
    selectField(
      t("verdict_baseline"),
      data.groups.map((group) => [group.label, group.label]),
      base.label,
      choose.base,
    ),
  );
  const others = data.groups.slice(1).map((group, i) => ({ label: group.label, last: data.results[i + 1].last }));
  const few = others.filter(({ last }) => last.word === "too few");
  const sentences = others.filter((one) => !few.includes(one)).map((one) => sentence(one, base, data));
  if (few.length) sentences.push(sentence({ ...few[0], label: few.map(({ label }) => label).join(", ") }, base, data));
  return panel(
    t("verdict_title"),
    fields,
    el("ul", { class: "verdicts" }, sentences),
    table(
      heads(data),
      data.groups.map((group, i) => row(group, data.results[i], data)),
      "right verdict-table",
    ),
    el("p", { class: "quiet", text: t("verdict_how") }),
  );
}

// What is to say about a group, or about several with too few runs.
function sentence({ label, last }, base, data) {
  const values = {
    a: label,
    b: base.label,
    d: intervalText(last.difference),
    w: word(last.word, data),
    n: data.min_seeds,
  };
  const text = t(SENTENCES[last.word] ?? "verdict_beats", values);
  return el("li", { class: `verdict-${last.word.replace(" ", "-")}` }, statusDot(DOTS[last.word] ?? "unknown"), text);
}

function heads({ steps }) {
  const [first, last] = steps ?? ["–", "–"];
  const over = t("verdict_area", { n: first, m: last });
  const difference = t("verdict_difference");
  return [t("verdict_group"), t("verdict_runs"), t("verdict_last", { n: last }), difference, over, difference];
}

function row(group, { last, area }, data) {
  const cells = ({ mean, difference, word: said }) => [
    intervalText(mean),
    !difference ? "–" : said === "nothing" ? word(said, data) : judged(intervalText(difference), word(said, data)),
  ];
  return [swatch(group.swatch, group.label, group.about), String(group.keys.length), ...cells(last), ...cells(area)];
}

// Where there is no room for both, the word is in the next line.
function judged(interval, said) {
  return el("span", {}, `${interval} ·`, el("span", { class: "said", text: ` ${said}` }));
}

function word(said, { min_seeds }) {
  return said === "too few" ? t("verdict_few", { n: min_seeds }) : said ? t(`verdict_${said}`) : "";
}

// A mean or difference with the ends of its interval.
export function intervalText([mean, low, high]) {
  if (low === null || low === undefined) return formatNumber(mean);
  return `${formatNumber(mean)} (${formatNumber(low)} … ${formatNumber(high)})`;
}
