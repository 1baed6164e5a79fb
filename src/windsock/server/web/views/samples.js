// The Samples view: search completions, the group of one prompt side by side, one prompt over training.
import { Plot } from "../charts/plot.js";
import { fetchJson, runPath } from "../data/api.js";
import { seriesFromJson } from "../data/series.js";
import { getState, setState } from "../data/url_state.js";
import { formatNumber, toNumber } from "../text/format.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { debounce, throttle } from "../ui/scheduling.js";
import { emptyState, panel, selectField } from "../ui/widgets.js";

// The parameters of a search by their state in the URL.
const PARAMETERS = {
  grep: "grep",
  at: "step",
  task: "task",
  group: "group",
  finish: "finish_reason",
  low: "min_reward",
  high: "max_reward",
  short: "min_length",
  long: "max_length",
  order: "sort",
};

const SORTS = [
  ["-step", "s_new"],
  ["step", "s_old"],
  ["-reward", "s_high"],
  ["reward", "s_low"],
  ["-length", "s_long"],
  ["-advantage", "s_adv"],
];

const PAGE_SIZE = 60;

export function samplesView(host, context) {
  const rows = el("div", { class: "card sample-list" });
  const detail = el("div", { class: "sample-detail" });
  const summary = el("span", { class: "quiet" });
  let found = [];
  let matched = 0;
  let plot = null;
  let lastRequest = 0;
  const setLater = debounce(200, (names) => setState(names, true));

  function field(name, label, type, extra = {}) {
    const box = el("input", {
      type,
      value: getState(name),
      "aria-label": label,
      placeholder: type === "search" ? label : null,
      ...extra,
    });
    box.addEventListener("input", () => setLater({ [name]: box.value }));
    return type === "search" ? box : el("label", { class: "field" }, el("span", { text: label }), box);
  }

  const bar = el(
    "div",
    { class: "bar" },
    field("grep", t("search_samples"), "search"),
    selectField(
      t("sort"),
      SORTS.map(([key, text]) => [key, t(text)]),
      getState("order") || "-step",
      (order) => setState({ order }),
    ),
    field("at", t("step"), "number", { min: 0 }),
    field("task", t("task"), "text", { class: "short" }),
    field("group", t("group"), "text", { class: "short" }),
    field("low", t("at_least"), "number", { step: "any" }),
    field("high", t("at_most"), "number", { step: "any" }),
    field("short", t("long_least"), "number", { min: 0 }),
    field("long", t("long_most"), "number", { min: 0 }),
    field("finish", t("finish"), "text", { class: "short" }),
    summary,
  );
  const split = el("div", { class: "samples-split" }, rows, detail);
  host.append(bar, split);

  async function read(offset = 0) {
    const request = ++lastRequest;
    const query = Object.fromEntries(Object.entries(PARAMETERS).map(([state, name]) => [name, getState(state)]));
    let response;
    try {
      response = await fetchJson(runPath(context.run, "samples"), {
        ...query,
        sort: query.sort || "-step",
        limit: PAGE_SIZE,
        offset: offset || "",
      });
    } catch (problem) {
      return context.fail(problem);
    }
    if (request !== lastRequest || !host.isConnected) return;
    if (!response.census?.kept && !response.samples.length)
      return host.replaceChildren(emptyState(t("no_samples"), t("no_samples_do")));
    if (!bar.isConnected) host.replaceChildren(bar, split); // the first samples arrived
    found = offset ? [...found, ...response.samples] : response.samples;
    matched = response.matched;
    summary.textContent = t("matched", {
      n: matched,
      m: response.census?.kept ?? found.length,
      s: response.census?.seen ?? "–",
    });
    draw(response.more);
  }

  function draw(more) {
    const selected = getState("sample");
    rows.replaceChildren(...found.map((sample) => sampleRow(sample, selected)));
    if (!found.length) rows.append(el("p", { class: "quiet pad", text: t("nothing_found") }));
    if (more)
      rows.append(
        el("button", { class: "sample-row quiet", text: t("older_page"), onclick: () => read(found.length) }),
      );
    const sample = found.find((one) => sampleId(one) === selected) ?? found[0];
    if (!sample) {
      delete detail.dataset.of;
      return detail.replaceChildren();
    }
    if (detail.dataset.of !== sampleId(sample)) open(sample);
    if (!selected) rows.firstChild?.setAttribute("aria-current", "true");
  }

  async function open(sample) {
    detail.dataset.of = sampleId(sample);
    plot?.destroy();
    plot = null;
    const groupHost = el("div");
    const trainingHost = el("div");
    detail.replaceChildren(
      panel(t("prompt"), sampleFacts(sample), el("pre", { text: sample.prompt ?? messagesText(sample.messages) })),
      panel(t("completion"), "", el("pre", { text: sample.completion ?? "" }), rewardComponents(sample)),
      groupHost,
      trainingHost,
    );
    const isOpen = () => detail.dataset.of === sampleId(sample) && host.isConnected;
    if (sample.group) {
      const group = await fetchJson(runPath(context.run, "samples"), {
        group: sample.group,
        step: sample.step,
        sort: "-reward",
        limit: 64,
      });
      if (isOpen() && group.samples.length)
        groupHost.replaceChildren(
          panel(
            t("group_of", { n: sample.step }),
            sample.group,
            el("div", { class: "side-by-side" }, group.samples.map(column)),
          ),
        );
    }
    if (sample.task) {
      const all = await fetchJson(runPath(context.run, "samples"), { task: sample.task, sort: "step", limit: 500 });
      if (isOpen() && all.samples.length > 1) trainingHost.replaceChildren(overTraining(all.samples, sample));
    }
  }

  function overTraining(samples, sample) {
    const area = el("div", { class: "mini-plot" });
    const steps = [...new Set(samples.map((one) => one.step))];
    const shown = evenlySpaced(steps, 6).map((step) => samples.find((one) => one.step === step));
    const made = panel(
      t("over_training"),
      `${sample.task} · ${t("mean_reward")}`,
      area,
      el("div", { class: "side-by-side" }, shown.map(column)),
    );
    plot = new Plot(area, { zero: true });
    plot.setLines([
      { run: context.run, label: sample.task, colour: context.colour, main: meanRewardByStep(samples, steps) },
    ]);
    return made;
  }

  read();
  return {
    // New samples appear at the top of the list, so it is not updated while it is scrolled.
    update: throttle(3000, () => rows.scrollTop > 0 || found.length > PAGE_SIZE || read()),
    changed(names) {
      if (names.some((name) => name in PARAMETERS)) read();
      else if (names.includes("sample")) draw(matched > found.length);
    },
    destroy: () => plot?.destroy(),
  };
}

// At most `count` of the values, with the first and the last.
function evenlySpaced(values, count) {
  if (values.length <= count) return values;
  return Array.from({ length: count }, (_, i) => values[Math.round((i / (count - 1)) * (values.length - 1))]);
}

function sampleId(sample) {
  return [sample.step, sample.task, sample.group, sample.run, sample.time].join("|");
}

function rewardChip(sample) {
  const reward = toNumber(sample.reward);
  return el("span", {
    class: "reward-chip",
    text: formatNumber(sample.reward),
    style: { "--r": String(Math.max(0, Math.min(1, reward || 0))) },
  });
}

function sampleFacts(sample) {
  const facts = [
    [t("step"), sample.step],
    [t("task"), sample.task],
    [t("advantage"), sample.advantage === null ? null : formatNumber(sample.advantage)],
    [t("length"), sample.length],
    [t("finish"), sample.finish_reason],
    [t("version"), sample.weight_version],
  ];
  return el(
    "span",
    { class: "facts" },
    rewardChip(sample),
    facts
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => el("span", { text: `${name} ${value}` })),
  );
}

function rewardComponents(sample) {
  const components = Object.entries(sample.rewards ?? {});
  return components.length
    ? el(
        "p",
        { class: "facts" },
        components.map(([name, value]) => el("span", { text: `${name} ${formatNumber(value)}` })),
      )
    : null;
}

function sampleRow(sample, selected) {
  const id = sampleId(sample);
  return el(
    "button",
    { class: "sample-row", "aria-current": id === selected ? "true" : null, onclick: () => setState({ sample: id }) },
    el(
      "span",
      { class: "facts" },
      rewardChip(sample),
      el("span", { text: `${t("step")} ${sample.step ?? "–"}` }),
      el("span", { text: sample.task ?? "" }),
      el("span", { text: sample.length ?? "" }),
      el("span", { text: sample.finish_reason ?? "" }),
    ),
    el("span", { class: "snippet", text: sample.completion || sample.prompt || messagesText(sample.messages) }),
  );
}

function column(sample) {
  return el(
    "div",
    {},
    sampleFacts({ ...sample, task: null, weight_version: null }),
    el("pre", { text: sample.completion ?? messagesText(sample.messages) }),
  );
}

function messagesText(messages) {
  return (messages ?? [])
    .map((one) => `${one.role ?? ""}: ${typeof one.content === "string" ? one.content : JSON.stringify(one.content)}`)
    .join("\n\n");
}

function meanRewardByStep(samples, steps) {
  const groups = steps.map((step) =>
    samples
      .filter((one) => one.step === step)
      .map((one) => toNumber(one.reward))
      .filter(Number.isFinite),
  );
  const mean = groups.map((all) => all.reduce((sum, v) => sum + v, 0) / all.length);
  return seriesFromJson({ name: "reward", found: true, points: samples.length, exact: true, x: steps, last: mean });
}
