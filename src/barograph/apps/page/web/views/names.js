// The Names view: which names of the run are known, what the others may be, and how to decide or describe them.
import { fetchJson, patchRun, runPath } from "../data/api.js";
import { report } from "../data/report.js";
import { runs } from "../data/runs.js";
import { language, localized, t } from "../text/language.js";
import { breakable } from "../ui/cut_text.js";
import { el } from "../ui/dom.js";
import { html, nothing, render } from "../ui/html.js";
import { debounce } from "../ui/scheduling.js";
import { offerUndo } from "../ui/toast.js";
import { addTooltip, metricTooltip } from "../ui/tooltip.js";
import { copyButton, filterField, filterPredicate, panel, table } from "../ui/widgets.js";

const MAX_ROWS = 500; // of known names; the filter finds the others

export const namesView = (host, context) => new NamesView(host, context);

class NamesView {
  constructor(host, context) {
    this.host = host;
    this.context = context;
    this.filter = filterField(t("filter_names"));
    this.known = el("div");
    this.data = null;
    this.lastStep = runs.get(context.run)?.last_step;
    this.redraw = debounce(120, () => this.drawKnown());
    this.read();
  }

  async read() {
    const data = await this.context.load(fetchJson(runPath(this.context.run, "meanings")));
    if (!data) return;
    this.data = data;
    const choose = (source) => this.choose(source);
    this.drawKnown();
    this.host.replaceChildren(
      sourcePanel(data, choose),
      data.ambiguous.length ? ambiguousPanel(data, choose) : "",
      data.unknown.length ? unknownPanel(data) : "",
      data.template ? teachPanel(data) : "",
      data.known.length ? panel(t("known_names"), this.filter, this.known) : "",
    );
  }

  drawKnown() {
    const { known, metrics } = this.data;
    const matches = filterPredicate(this.filter);
    const shown = known.filter((one) => matches(one.name) || matches(localized(metrics[one.metric]?.title)));
    const rows = shown.slice(0, MAX_ROWS).map((one) => knownRow(one, metrics));
    const none = html`<p class="quiet">${t("nothing_found")}</p>`;
    const heads = [t("name"), t("meaning"), t("written_by")];
    render(
      html`${rows.length ? table(heads, rows, "names-table") : none}${moreNames(shown.length - rows.length)}`,
      this.known,
    );
  }

  async choose(source) {
    try {
      const { run, undo } = await patchRun(this.context.run, { source: source || null });
      this.takeSource(run);
      offerUndo(t("source_changed"), async () => this.takeSource(await undo()));
    } catch (problem) {
      this.context.fail(problem);
    }
  }

  takeSource({ source }) {
    const { run } = this.context;
    runs.set(run, { ...runs.get(run), source });
    this.read();
  }

  // News without a new step are of another source, or of a file that describes names.
  update(news) {
    const changed = news.names !== this.data?.names || news.last_step === this.lastStep;
    this.lastStep = news.last_step;
    if (this.data && changed && document.activeElement?.id !== "source") this.read();
  }

  changed(names) {
    if (names.includes("filter") && this.data) this.redraw();
  }
}

// How many names are known, in a sentence.
export function namesSentence({ names, unknown, ambiguous }) {
  const known = names - unknown;
  const sentence = unknown ? t("names_known", { n: names, m: known }) : t("names_all_known", { n: names });
  return ambiguous ? `${sentence} ${t("names_undecided", { n: ambiguous })}` : sentence;
}

function sourcePanel(data, choose) {
  const counts = { names: data.names, unknown: data.unknown_count, ambiguous: data.ambiguous.length };
  const text = html`<p class="names-count">${namesSentence(counts)}</p>
    <p>${sourceSentence(data)}</p>
    ${report ? nothing : sourceField(data, choose)}
    <p class="quiet">${t("source_help")}</p>`;
  return panel(t("names_source"), "", text);
}

function sourceSentence(data) {
  const s = titleOf(data.chosen ?? data.source ?? "", data);
  if (data.chosen) return t("source_chosen", { s });
  if (data.recorded) return t("source_recorded", { s });
  return data.source ? t("source_found", { s }) : t("source_none");
}

function sourceField(data, choose) {
  const option = ({ source, title }) => html`<option value=${source} label=${localized(title)}></option>`;
  const send = (event) => {
    event.preventDefault();
    choose(event.target.elements.source.value.trim());
  };
  const find = html`<button type="button" @click=${() => choose("")}>${t("find_source")}</button>`;
  return html`<form class="source-form" @submit=${send}>
    <input type="text" id="source" list="sources" .value=${data.chosen ?? ""} placeholder=${data.source ?? "trl/rloo"}
      aria-label=${t("names_source")}>
    <datalist id="sources">${data.sources.map(option)}</datalist>
    <button>${t("choose")}</button>${data.chosen ? find : nothing}
  </form>`;
}

// The source with what it stands for: "trl/rloo (RLOOTrainer)".
function titleOf(source, data) {
  const found = data.sources.find((one) => one.source === source);
  const title = localized(found?.title);
  if (!title || title.toLowerCase() === source) return source;
  return language() === "zh" ? `${source}（${title}）` : `${source} (${title})`;
}

function ambiguousPanel(data, choose) {
  const entry = ({ name, meanings, reasons }) => html`<section class="undecided" data-name=${name}>
    <h3><code>${name}</code> ${t("may_be")}</h3>
    <ul>${meanings.map((meaning) => possibleMeaning(meaning, choose))}</ul>
    ${reasons.map((reason) => html`<p class="quiet">${localized(reason)}</p>`)}
  </section>`;
  const help = html`<p class="quiet">${t("ambiguous_help")}</p>`;
  return panel(t("ambiguous_names"), String(data.ambiguous.length), help, data.ambiguous.map(entry));
}

function possibleMeaning({ title, about, metric, sources, signs }, choose) {
  const button = (source) => html`<button @click=${() => choose(source)}>${source}</button>`;
  const name = (source) => html`<code>${source}</code>`;
  const hints = Object.entries(signs).map(([source, sign]) => `${source}: ${localized(sign)}`);
  return html`<li>
    <p><b>${localized(title)}</b><code class="quiet"> ${metric}</code></p>
    <p>${localized(about)}</p>
    <p class="choices">${t("if_written_by")}${sources.map(report ? name : button)}</p>
    ${hints.length ? html`<p class="quiet">${t("would_show")} ${hints.join("; ")}</p>` : nothing}
  </li>`;
}

function unknownPanel(data) {
  const rows = data.unknown.map(({ name, nearest, guessed }) => [
    el("code", {}, breakable(name)),
    el("span", { class: "similar" }, nearest.length ? nearest.map((one) => html`<code>${one}</code>`) : "–"),
    guessed ? localized(guessed.text) : "",
  ]);
  const heads = [t("name"), t("similar_names"), t("guessed_from_form")];
  const content = html`<p class="quiet">${t("unknown_help")}</p>
    ${table(heads, rows, "names-table")}${moreNames(data.unknown_count - data.unknown.length)}`;
  return panel(t("unknown_names"), String(data.unknown_count), content);
}

function moreNames(count) {
  return count ? html`<p class="quiet">${t("more_names", { n: count })}</p>` : nothing;
}

function teachPanel(data) {
  const [first, second] = data.files.map((file) => html`<code>${file}</code>`);
  const name = data.unknown[0]?.name ?? data.ambiguous[0].name;
  const content = html`<p>${t("teach_file")} ${first} ${t("or")} ${second}</p>
    <pre class="template" tabindex="0">${data.template}</pre>
    <p>${t("teach_code")}</p>
    <pre>barograph.define(${JSON.stringify(name)}, "…", unit="1", direction="lower")</pre>`;
  return panel(t("teach_names"), copyButton(data.template, t("copy_file")), content);
}

function knownRow({ name, metric, source, note }, metrics) {
  const record = metrics[metric];
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
