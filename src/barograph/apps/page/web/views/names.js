// The Names view: which names of the run are known, what the others may be, and how to decide or describe them.
import { fetchJson, patchRun, runPath } from "../data/api.js";
import { report } from "../data/report.js";
import { runs } from "../data/runs.js";
import { language, localized, t } from "../text/language.js";
import { breakable } from "../ui/cut_text.js";
import { el } from "../ui/dom.js";
import { debounce } from "../ui/scheduling.js";
import { offerUndo } from "../ui/toast.js";
import { addTooltip, metricTooltip } from "../ui/tooltip.js";
import { copyButton, filterField, filterPredicate, panel, table } from "../ui/widgets.js";

const MAX_ROWS = 500; // of known names; the filter finds the others

export function namesView(host, context) {
  const filter = filterField(t("filter_names"));
  const known = el("div");
  let data = null;

  async function choose(source) {
    try {
      const { run, undo } = await patchRun(context.run, { source: source || null });
      takeSource(run);
      offerUndo(t("source_changed"), async () => takeSource(await undo()));
    } catch (problem) {
      context.fail(problem);
    }
  }

  function takeSource({ source }) {
    runs.set(context.run, { ...runs.get(context.run), source });
    read();
  }

  function drawKnown() {
    const matches = filterPredicate(filter);
    const shown = data.known.filter((one) => matches(one.name) || matches(localized(data.metrics[one.metric]?.title)));
    const rows = shown.slice(0, MAX_ROWS).map((one) => knownRow(one, data));
    known.replaceChildren(
      rows.length
        ? table([t("name"), t("meaning"), t("written_by")], rows, "names-table")
        : el("p", { class: "quiet", text: t("nothing_found") }),
      moreNames(shown.length - rows.length) ?? "",
    );
  }

  async function read() {
    try {
      data = await fetchJson(runPath(context.run, "meanings"));
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    drawKnown();
    host.replaceChildren(
      sourcePanel(data, choose),
      data.ambiguous.length ? ambiguousPanel(data, choose) : "",
      data.unknown.length ? unknownPanel(data) : "",
      data.template ? teachPanel(data) : "",
      data.known.length ? panel(t("known_names"), filter, known) : "",
    );
  }

  const redraw = debounce(120, drawKnown);
  let lastStep = runs.get(context.run)?.last_step;
  read();
  return {
    // News without a new step are of another source, or of a file that describes names.
    update(news) {
      const changed = news.names !== data?.names || news.last_step === lastStep;
      lastStep = news.last_step;
      if (data && changed && document.activeElement?.id !== "source") read();
    },
    changed: (names) => names.includes("filter") && data && redraw(),
  };
}

// How many names are known, in a sentence.
export function namesSentence({ names, unknown, ambiguous }) {
  const known = names - unknown;
  const sentence = unknown ? t("names_known", { n: names, m: known }) : t("names_all_known", { n: names });
  return ambiguous ? `${sentence} ${t("names_undecided", { n: ambiguous })}` : sentence;
}

function sourcePanel(data, choose) {
  const counts = { names: data.names, unknown: data.unknown_count, ambiguous: data.ambiguous.length };
  return panel(
    t("names_source"),
    "",
    el("p", { class: "names-count", text: namesSentence(counts) }),
    el("p", { text: sourceSentence(data) }),
    report ? null : sourceField(data, choose),
    el("p", { class: "quiet", text: t("source_help") }),
  );
}

function sourceSentence(data) {
  const s = titleOf(data.chosen ?? data.source ?? "", data);
  if (data.chosen) return t("source_chosen", { s });
  if (data.recorded) return t("source_recorded", { s });
  return data.source ? t("source_found", { s }) : t("source_none");
}

function sourceField(data, choose) {
  const options = data.sources.map(({ source, title }) => el("option", { value: source, label: localized(title) }));
  const list = el("datalist", { id: "sources" }, options);
  const box = el("input", {
    type: "text",
    id: "source",
    list: "sources",
    value: data.chosen ?? "",
    placeholder: data.source ?? "trl/rloo",
    "aria-label": t("names_source"),
  });
  const form = el(
    "form",
    { class: "source-form" },
    box,
    list,
    el("button", { text: t("choose") }),
    data.chosen ? el("button", { type: "button", text: t("find_source"), onclick: () => choose("") }) : null,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    choose(box.value.trim());
  });
  return form;
}

// The source with what it stands for: "trl/rloo (RLOOTrainer)".
function titleOf(source, data) {
  const found = data.sources.find((one) => one.source === source);
  const title = localized(found?.title);
  if (!title || title.toLowerCase() === source) return source;
  return language() === "zh" ? `${source}（${title}）` : `${source} (${title})`;
}

function ambiguousPanel(data, choose) {
  const entries = data.ambiguous.map((one) =>
    el(
      "section",
      { class: "undecided", "data-name": one.name },
      el("h3", {}, el("code", { text: one.name }), ` ${t("may_be")}`),
      el(
        "ul",
        {},
        one.meanings.map((meaning) => possibleMeaning(meaning, choose)),
      ),
      one.reasons.map((reason) => el("p", { class: "quiet", text: localized(reason) })),
    ),
  );
  return panel(
    t("ambiguous_names"),
    String(data.ambiguous.length),
    el("p", { class: "quiet", text: t("ambiguous_help") }),
    entries,
  );
}

function possibleMeaning({ title, about, metric, sources, signs }, choose) {
  const buttons = sources.map((source) =>
    report ? el("code", { text: source }) : el("button", { text: source, onclick: () => choose(source) }),
  );
  const hints = Object.entries(signs).map(([source, sign]) => `${source}: ${localized(sign)}`);
  return el(
    "li",
    {},
    el("p", {}, el("b", { text: localized(title) }), el("code", { class: "quiet", text: ` ${metric}` })),
    el("p", { text: localized(about) }),
    el("p", { class: "choices" }, t("if_written_by"), ...buttons),
    hints.length ? el("p", { class: "quiet", text: `${t("would_show")} ${hints.join("; ")}` }) : null,
  );
}

function unknownPanel(data) {
  const rows = data.unknown.map(({ name, nearest, guessed }) => [
    el("code", {}, breakable(name)),
    el("span", { class: "similar" }, nearest.length ? nearest.map((one) => el("code", { text: one })) : "–"),
    guessed ? localized(guessed.text) : "",
  ]);
  return panel(
    t("unknown_names"),
    String(data.unknown_count),
    el("p", { class: "quiet", text: t("unknown_help") }),
    table([t("name"), t("similar_names"), t("guessed_from_form")], rows, "names-table"),
    moreNames(data.unknown_count - data.unknown.length),
  );
}

function moreNames(count) {
  return count ? el("p", { class: "quiet", text: t("more_names", { n: count }) }) : null;
}

function teachPanel(data) {
  const files = data.files.map((file) => el("code", { text: file }));
  const first = data.unknown[0]?.name ?? data.ambiguous[0].name;
  return panel(
    t("teach_names"),
    copyButton(data.template, t("copy_file")),
    el("p", {}, t("teach_file"), " ", files[0], ` ${t("or")} `, files[1]),
    el("pre", { class: "template", tabindex: 0, text: data.template }),
    el("p", { text: t("teach_code") }),
    el("pre", { text: `barograph.define(${JSON.stringify(first)}, "…", unit="1", direction="lower")` }),
  );
}

function knownRow({ name, metric, source, note }, data) {
  const record = data.metrics[metric];
  const title = el("span", { text: localized(record?.title) || metric });
  return [
    el("code", {}, breakable(name)),
    addTooltip(title, () => metricTooltip(record, [], note)),
    el("span", { class: "quiet source", text: source }),
  ];
}

// A line that leads to the view, for the overview.
export function namesLine(data, onclick) {
  const counts = { names: data.names, unknown: data.unknown, ambiguous: data.ambiguous.length };
  const source = data.source ? ` ${t("read_as", { s: data.source })}` : "";
  const open = (event) => {
    event.preventDefault();
    onclick();
  };
  const isWeak = data.unknown > data.names / 5 || data.ambiguous.length > 0; // a few are of everybody's own
  return el("a", {
    class: `names-line ${isWeak ? "watch" : "quiet"}`,
    href: "?tab=names",
    text: namesSentence(counts) + source,
    onclick: open,
  });
}
