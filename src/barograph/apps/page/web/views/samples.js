// The Samples view: search completions, read one as a transcript, its group side by side, one prompt over training.
import { fetchJson, runPath } from "../data/api.js";
import { report } from "../data/report.js";
import { getState, setState } from "../data/url_state.js";
import { rewardChip, sampleFacts } from "../samples/facts.js";
import { FilterBar, STATES, searchParameters } from "../samples/filters.js";
import { groupPanel, readTraining, trainingPanel } from "../samples/groups.js";
import { answerText, inputTurns, outputText, outputTurns, sharedBeginning } from "../samples/outputs.js";
import { loadParsers } from "../samples/rich_text.js";
import { isRich } from "../samples/text_block.js";
import { firstMatch, highlighted, searchPattern, visibleText } from "../samples/texts.js";
import { tokenPanel } from "../samples/token_view.js";
import { transcript } from "../samples/turns.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { throttle } from "../ui/scheduling.js";
import { emptyState, panel, stateLink } from "../ui/widgets.js";

const PAGE_SIZE = 60;
const SNIPPET = 300; // characters
const BEFORE_MATCH = 40;

export function samplesView(host, context) {
  const rows = el("div", { class: "card sample-list" });
  const detail = el("div", { class: "sample-detail" });
  const bar = new FilterBar();
  const split = el("div", { class: "samples-split" }, rows, detail);
  let found = [];
  let matched = 0;
  let plot = null;
  let tokens = null;
  let lastRequest = 0;
  let isLinked = true; // whether the URL's sample was asked for: it is shown though the list does not have it
  host.append(bar.node, split);

  const search = (parameters) => fetchJson(runPath(context.run, "samples"), { texts: "turns", ...parameters });

  async function read(offset = 0) {
    const request = ++lastRequest;
    let response;
    try {
      response = await search({ ...searchParameters(), limit: PAGE_SIZE, offset: offset || "" });
    } catch (problem) {
      return getState("where") || getState("rx") ? bar.complain(problem.message) : context.fail(problem);
    }
    if (request !== lastRequest || !host.isConnected) return;
    if (!response.census?.kept && !response.samples.length)
      return host.replaceChildren(emptyState(t("no_samples"), t("no_samples_do")));
    if (!bar.node.isConnected) host.replaceChildren(bar.node, split); // the first samples arrived
    found = offset ? [...found, ...response.samples] : response.samples;
    matched = response.matched;
    bar.show(response.census?.columns ?? {});
    bar.complain("");
    bar.summary.textContent = summaryText(response, found.length);
    draw(response.more);
  }

  function draw(more) {
    bar.press();
    const selected = getState("sample");
    const pattern = currentPattern();
    const texts = found.map(pattern ? outputText : answerText);
    const shared = sharedBeginning(texts);
    rows.replaceChildren(...found.map((sample, i) => sampleRow(sample, selected, snippet(texts[i], shared, pattern))));
    if (!found.length) rows.append(nothingFound());
    if (more)
      rows.append(
        el("button", { class: "sample-row quiet", text: t("older_page"), onclick: () => read(found.length) }),
      );
    const place = selected && (isLinked || isListed(selected)) ? selected : found[0]?.place;
    const shown = [place, getState("grep"), getState("rx"), getState("diff"), getState("rich")].join("|");
    if (!place) close();
    else if (detail.dataset.of !== shown) open(place, shown);
    if (place && place !== selected) rows.firstChild?.setAttribute("aria-current", "true");
  }

  function isListed(place) {
    return found.some((one) => one.place === place);
  }

  // That nothing matches; of a step, also the nearest ones that have something.
  function nothingFound() {
    const at = getState("at");
    const note = el("p", { class: "quiet pad", text: t("nothing_found") });
    if (!at) return note;
    const near = (order, sort) => {
      const where = [getState("where"), `step ${order} ${at}`].filter(Boolean).join(" and ");
      return search({ ...searchParameters(), step: "", where, sort, limit: 1 });
    };
    Promise.all([near("<", "-step"), near(">", "step")]).then((both) => {
      const steps = both.flatMap(({ samples }) => samples.slice(0, 1)).map((one) => one.step);
      const link = (step) => stateLink({ at: step }, { class: "near-step" }, String(step));
      if (steps.length)
        note.replaceChildren(`${t("none_at_step", { n: at })} `, ...steps.flatMap((step) => [link(step), " "]));
    }, context.fail);
    return note;
  }

  function close() {
    delete detail.dataset.of;
    plot?.destroy();
    plot = null;
    tokens = null;
    detail.replaceChildren();
  }

  async function open(place, shown) {
    detail.dataset.of = shown;
    const isOpen = () => detail.dataset.of === shown && host.isConnected;
    let sample;
    try {
      [sample] = await Promise.all([fetchJson(runPath(context.run, "sample"), { place }), isRich() && loadParsers()]);
    } catch (problem) {
      if (isListed(place)) return context.fail(problem);
    }
    if (!isOpen()) return;
    if (!sample) {
      isLinked = false; // no such sample: show the first of the list
      return draw(matched > found.length);
    }
    plot?.destroy();
    plot = null;
    const sums = (value) => fetchJson(runPath(context.run, "token_sums"), { step: sample.step, value });
    tokens = sample.tokens.length ? tokenPanel(sample, report ? null : sums) : null;
    const groupHost = el("div");
    const trainingHost = el("div");
    detail.replaceChildren(...samplePanels(sample), tokens?.node ?? "", groupHost, trainingHost);
    tokens?.draw();
    if (sample.group) {
      const group = await search({ group: sample.group, step: sample.step, sort: "-reward", limit: 64 });
      if (isOpen() && group.samples.length) groupHost.replaceChildren(groupPanel(group.samples, sample));
    }
    if (sample.task) {
      const training = await readTraining(search, sample);
      if (!isOpen() || !training) return;
      const made = trainingPanel(training, sample, context);
      plot = made.plot;
      trainingHost.replaceChildren(made.node);
    }
  }

  read();
  return {
    // New samples appear at the top of the list, so it is not updated while it is scrolled.
    update: throttle(3000, () => rows.scrollTop > 0 || found.length > PAGE_SIZE || read()),
    changed(names) {
      isLinked = names.includes("sample") || (isLinked && !names.some((name) => STATES.includes(name)));
      if (names.some((name) => STATES.includes(name))) read();
      else if (names.some((name) => ["sample", "diff", "rich"].includes(name))) draw(matched > found.length);
      if (names.some((name) => ["tv", "tv2"].includes(name))) tokens?.draw();
      else if (names.includes("tok")) tokens?.reveal();
    },
    destroy: () => plot?.destroy(),
  };
}

function currentPattern() {
  return searchPattern(getState("grep"), getState("rx") === "1");
}

function summaryText(response, listed) {
  const { census, unknown } = response;
  const counts = { n: response.matched, m: census?.kept ?? listed, s: census?.seen ?? "–" };
  const shown = Object.entries(counts).map(([name, count]) => [name, count.toLocaleString()]);
  const text = t("matched", Object.fromEntries(shown));
  return unknown?.length ? `${text} · ${t("no_column", { n: unknown.join(", ") })}` : text;
}

function samplePanels(sample) {
  const pattern = currentPattern();
  const input = inputTurns(sample);
  const output = panel(
    t("completion"),
    input.length ? "" : sampleFacts(sample),
    transcript(outputTurns(sample), pattern),
  );
  output.append(...answers(sample), atStep(sample));
  return input.length ? [panel(t("prompt"), sampleFacts(sample), transcript(input, pattern)), output] : [output];
}

// The given and the right answer; green if they are the same.
function answers(sample) {
  const right = sample.reference === null ? "" : sample.answer === sample.reference ? "right" : "wrong";
  return [
    [t("answer"), sample.answer, right],
    [t("reference"), sample.reference, ""],
  ]
    .filter(([, text]) => text !== null && text !== undefined)
    .map(([label, text, name]) =>
      el(
        "p",
        { class: `answer ${name}` },
        el("span", { class: "quiet", text: label }),
        el("b", { text: visibleText(text) }),
      ),
    );
}

function atStep(sample) {
  const show = () => setState({ tab: "charts", from: Math.max(0, sample.step - 20), to: sample.step + 20 });
  return sample.step === null
    ? ""
    : el("button", { class: "ghost to-charts", text: t("charts_at", { n: sample.step }), onclick: show });
}

function snippet(text, shared, pattern) {
  if (!text) return el("span", { class: "snippet quiet", text: t("empty_sample") });
  const match = firstMatch(text, pattern);
  const start = match >= 0 ? Math.max(0, match - BEFORE_MATCH) : shared;
  const shown = highlighted(text.slice(start, start + SNIPPET), pattern);
  return el("span", { class: "snippet", dir: "auto" }, start ? "… " : "", shown);
}

// A list has their number, a report has the tokens.
function tokenCount({ tokens }) {
  return Array.isArray(tokens) ? tokens.length : tokens;
}

function sampleRow(sample, selected, text) {
  const named = (label, value) => (/^[\d.]+$/.test(String(value ?? "")) ? `${label} ${value}` : value); // a bare number says nothing
  const facts = [
    t("at_step", { n: sample.step ?? "–" }),
    (sample.group ?? null) === null ? named(t("task"), sample.task) : named(t("group"), sample.group),
    named(t("length"), sample.length),
    sample.finish_reason && `${t("finish")} ${sample.finish_reason}`,
  ];
  return el(
    "button",
    {
      class: sample.discarded ? "sample-row discarded" : "sample-row",
      "aria-current": sample.place === selected ? "true" : null,
      onclick: () => setState({ sample: sample.place, tok: "" }),
    },
    el(
      "span",
      { class: "facts" },
      sample.reward === null ? null : rewardChip(sample),
      tokenCount(sample)
        ? el("i", { class: "has-tokens", role: "img", "aria-label": t("has_tokens"), title: t("has_tokens") })
        : null,
      facts
        .filter((fact) => fact !== null && fact !== undefined)
        .map((fact) => el("span", { text: visibleText(String(fact)) })),
      sample.discarded ? el("span", { class: "watch", text: visibleText(sample.discarded) }) : null,
    ),
    text,
  );
}
