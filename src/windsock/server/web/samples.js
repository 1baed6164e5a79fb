// Completions: search and filter, the group of one prompt side by side, the same prompt over training.
import { ask, fromJSON, runPath } from "./api.js";
import { el, number, once, paced, show } from "./dom.js";
import { empty, panel, select } from "./parts.js";
import { Plot } from "./plot.js";
import { get, set } from "./state.js";
import { t } from "./words.js";

const FIELDS_OF = {
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
const SORTED = [
  ["-step", "s_new"],
  ["step", "s_old"],
  ["-reward", "s_high"],
  ["reward", "s_low"],
  ["-length", "s_long"],
  ["-advantage", "s_adv"],
];
const PAGE = 60;

export function samplesView(host, context) {
  const rows = el("div", { class: "card sample-list" });
  const detail = el("div", { class: "sample-detail" });
  const told = el("span", { class: "quiet" });
  let found = [];
  let matched = 0;
  let plot = null;
  let asked = 0;
  const later = once(200, (names) => set(names, true));

  function field(name, label, type, extra = {}) {
    const box = el("input", {
      type,
      value: get(name),
      "aria-label": label,
      placeholder: type === "search" ? label : null,
      ...extra,
    });
    box.addEventListener("input", () => later({ [name]: box.value }));
    return type === "search" ? box : el("label", { class: "field" }, el("span", { text: label }), box);
  }

  const bar = el(
    "div",
    { class: "bar" },
    field("grep", t("search_samples"), "search"),
    select(
      t("sort"),
      SORTED.map(([key, word]) => [key, t(word)]),
      get("order") || "-step",
      (order) => set({ order }),
    ),
    field("at", t("step"), "number", { min: 0 }),
    field("task", t("task"), "text", { class: "short" }),
    field("group", t("group"), "text", { class: "short" }),
    field("low", t("at_least"), "number", { step: "any" }),
    field("high", t("at_most"), "number", { step: "any" }),
    field("short", t("long_least"), "number", { min: 0 }),
    field("long", t("long_most"), "number", { min: 0 }),
    field("finish", t("finish"), "text", { class: "short" }),
    told,
  );
  const split = el("div", { class: "samples-split" }, rows, detail);
  host.append(bar, split);

  async function read(offset = 0) {
    const mine = ++asked;
    const query = Object.fromEntries(Object.entries(FIELDS_OF).map(([mark, name]) => [name, get(mark)]));
    let answer;
    try {
      answer = await ask(runPath(context.run, "samples"), {
        ...query,
        sort: query.sort || "-step",
        limit: PAGE,
        offset: offset || "",
      });
    } catch (problem) {
      return context.fail(problem);
    }
    if (mine !== asked || !host.isConnected) return;
    if (!answer.census?.kept && !answer.samples.length)
      return host.replaceChildren(empty(t("no_samples"), t("no_samples_do")));
    if (!bar.isConnected) host.replaceChildren(bar, split); // the first ones
    found = offset ? [...found, ...answer.samples] : answer.samples;
    matched = answer.matched;
    told.textContent = t("matched", {
      n: matched,
      m: answer.census?.kept ?? found.length,
      s: answer.census?.seen ?? "–",
    });
    draw(answer.more);
  }

  function draw(more) {
    const chosen = get("sample");
    const pick = (sample) => set({ sample: identity(sample) });
    rows.replaceChildren(...found.map((sample) => row(sample, identity(sample) === chosen, () => pick(sample))));
    if (!found.length) rows.append(el("p", { class: "quiet pad", text: t("nothing_found") }));
    if (more)
      rows.append(
        el("button", { class: "sample-row quiet", text: t("older_page"), onclick: () => read(found.length) }),
      );
    const sample = found.find((one) => identity(one) === chosen) ?? found[0];
    if (!sample) return (delete detail.dataset.of, detail.replaceChildren());
    if (detail.dataset.of !== identity(sample)) open(sample);
    if (!chosen) rows.firstChild?.setAttribute("aria-current", "true");
  }

  async function open(sample) {
    detail.dataset.of = identity(sample);
    plot?.destroy();
    plot = null;
    const beside = el("div");
    const over = el("div");
    detail.replaceChildren(
      panel(t("prompt"), factsOf(sample), el("pre", { text: sample.prompt ?? textOf(sample.messages) })),
      panel(t("completion"), "", el("pre", { text: sample.completion ?? "" }), rewardsOf(sample)),
      beside,
      over,
    );
    const mine = detail.dataset.of;
    const still = () => detail.dataset.of === mine && host.isConnected;
    if (sample.group) {
      const group = await ask(runPath(context.run, "samples"), {
        group: sample.group,
        step: sample.step,
        sort: "-reward",
        limit: 64,
      });
      if (still() && group.samples.length)
        beside.replaceChildren(
          panel(
            t("group_of", { n: sample.step }),
            sample.group,
            el("div", { class: "side-by-side" }, group.samples.map(column)),
          ),
        );
    }
    if (sample.task) {
      const all = await ask(runPath(context.run, "samples"), { task: sample.task, sort: "step", limit: 500 });
      if (still() && all.samples.length > 1) over.replaceChildren(overTraining(all.samples, sample));
    }
  }

  function overTraining(samples, sample) {
    const area = el("div", { class: "mini-plot" });
    const steps = [...new Set(samples.map((one) => one.step))];
    const picks =
      steps.length > 6 ? [0, 1, 2, 3, 4, 5].map((i) => steps[Math.round((i / 5) * (steps.length - 1))]) : steps;
    const firsts = picks.map((step) => samples.find((one) => one.step === step));
    const made = panel(
      t("over_training"),
      `${sample.task} · ${t("mean_reward")}`,
      area,
      el("div", { class: "side-by-side" }, firsts.map(column)),
    );
    plot = new Plot(area, { zero: true });
    plot.set([{ run: context.run, label: sample.task, colour: context.colour, main: rewardsByStep(samples, steps) }]);
    return made;
  }

  read();
  return {
    // new samples come to the top of the list; who reads one further down is left alone
    update: paced(3000, () => rows.scrollTop > 0 || found.length > PAGE || read()),
    changed(names) {
      if (names.some((name) => name in FIELDS_OF)) read();
      else if (names.includes("sample")) draw(matched > found.length);
    },
    destroy: () => plot?.destroy(),
  };
}

function identity(sample) {
  return [sample.step, sample.task, sample.group, sample.run, sample.time].join("|");
}

function chipOf(sample) {
  const reward = number(sample.reward);
  return el("span", {
    class: "reward-chip",
    text: show(sample.reward),
    style: { "--r": String(Math.max(0, Math.min(1, reward || 0))) },
  });
}

function factsOf(sample) {
  const facts = [
    [t("step"), sample.step],
    [t("task"), sample.task],
    [t("advantage"), sample.advantage === null ? null : show(sample.advantage)],
    [t("length"), sample.length],
    [t("finish"), sample.finish_reason],
    [t("version"), sample.weight_version],
  ];
  return el(
    "span",
    { class: "facts" },
    chipOf(sample),
    facts
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => el("span", { text: `${name} ${value}` })),
  );
}

function rewardsOf(sample) {
  const parts = Object.entries(sample.rewards ?? {});
  return parts.length
    ? el(
        "p",
        { class: "facts" },
        parts.map(([name, value]) => el("span", { text: `${name} ${show(value)}` })),
      )
    : null;
}

function row(sample, here, pick) {
  return el(
    "button",
    { class: "sample-row", "aria-current": here ? "true" : null, onclick: pick },
    el(
      "span",
      { class: "facts" },
      chipOf(sample),
      el("span", { text: `${t("step")} ${sample.step ?? "–"}` }),
      el("span", { text: sample.task ?? "" }),
      el("span", { text: sample.length ?? "" }),
      el("span", { text: sample.finish_reason ?? "" }),
    ),
    el("span", { class: "snippet", text: sample.completion || sample.prompt || textOf(sample.messages) }),
  );
}

function column(sample) {
  return el(
    "div",
    {},
    factsOf({ ...sample, task: null, weight_version: null }),
    el("pre", { text: sample.completion ?? textOf(sample.messages) }),
  );
}

function textOf(messages) {
  return (messages ?? [])
    .map((one) => `${one.role ?? ""}: ${typeof one.content === "string" ? one.content : JSON.stringify(one.content)}`)
    .join("\n\n");
}

function rewardsByStep(samples, steps) {
  const groups = steps.map((step) =>
    samples
      .filter((one) => one.step === step)
      .map((one) => number(one.reward))
      .filter(Number.isFinite),
  );
  const mean = groups.map((all) => all.reduce((sum, v) => sum + v, 0) / all.length);
  return fromJSON({ name: "reward", found: true, points: samples.length, exact: true, x: steps, last: mean });
}
