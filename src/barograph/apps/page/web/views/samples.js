// The Samples view: search completions, read one as a transcript, its group side by side, one prompt over training.
import { fetchJson, runPath } from "../data/api.js";
import { report } from "../data/report.js";
import { getState, setState } from "../data/url_state.js";
import { sampleFacts } from "../samples/facts.js";
import { FilterBar, STATES, searchParameters } from "../samples/filters.js";
import { groupPanel, readTraining, trainingPanel } from "../samples/groups.js";
import { nothingFound, sampleRows } from "../samples/list.js";
import { inputTurns, outputTurns } from "../samples/outputs.js";
import { loadParsers } from "../samples/rich_text.js";
import { isRich } from "../samples/text_block.js";
import { searchPattern, visibleText } from "../samples/texts.js";
import { tokenPanel } from "../samples/token_view.js";
import { transcript } from "../samples/turns.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { html, nothing, render } from "../ui/html.js";
import { throttle } from "../ui/scheduling.js";
import { emptyState, panel } from "../ui/widgets.js";

const PAGE_SIZE = 60;

export const samplesView = (host, context) => new SamplesView(host, context);

class SamplesView {
  constructor(host, context) {
    this.host = host;
    this.context = context;
    this.rows = el("div", { class: "card sample-list" });
    this.detail = el("div", { class: "sample-detail" });
    this.bar = new FilterBar();
    this.split = el("div", { class: "samples-split" }, this.rows, this.detail);
    this.found = [];
    this.matched = 0;
    this.plot = null;
    this.tokens = null;
    this.lastRequest = 0;
    this.isLinked = true; // whether the URL's sample was asked for: it is shown though the list does not have it
    // New samples appear at the top of the list, so it is not updated while it is scrolled.
    this.update = throttle(3000, () => this.rows.scrollTop > 0 || this.found.length > PAGE_SIZE || this.read());
    host.append(this.bar.node, this.split);
    this.read();
  }

  search(parameters) {
    return fetchJson(runPath(this.context.run, "samples"), { texts: "turns", ...parameters });
  }

  async read(offset = 0) {
    const { bar, host, split } = this;
    const request = ++this.lastRequest;
    let response;
    try {
      response = await this.search({ ...searchParameters(), limit: PAGE_SIZE, offset: offset || "" });
    } catch (problem) {
      return getState("where") || getState("rx") ? bar.complain(problem.message) : this.context.fail(problem);
    }
    if (request !== this.lastRequest || !host.isConnected) return;
    if (!response.census?.kept && !response.samples.length)
      return host.replaceChildren(emptyState(t("no_samples"), t("no_samples_do")));
    if (!bar.node.isConnected) host.replaceChildren(bar.node, split); // the first samples arrived
    this.found = offset ? [...this.found, ...response.samples] : response.samples;
    this.matched = response.matched;
    bar.show(response.census?.columns ?? {});
    bar.complain("");
    bar.summary.textContent = summaryText(response, this.found.length);
    this.draw(response.more);
  }

  draw(more = this.matched > this.found.length) {
    const { found } = this;
    this.bar.press();
    const selected = getState("sample");
    const place = selected && (this.isLinked || this.isListed(selected)) ? selected : found[0]?.place;
    const older = () => this.read(found.length);
    render(
      html`${sampleRows(found, place, currentPattern())}
        ${found.length ? nothing : nothingFound((parameters) => this.search(parameters), this.context.fail)}
        ${more ? html`<button class="sample-row quiet" @click=${older}>${t("older_page")}</button>` : nothing}`,
      this.rows,
    );
    const shown = [place, getState("grep"), getState("rx"), getState("diff"), getState("rich")].join("|");
    if (!place) this.close();
    else if (this.detail.dataset.of !== shown) this.open(place, shown);
  }

  isListed(place) {
    return this.found.some((one) => one.place === place);
  }

  close() {
    delete this.detail.dataset.of;
    this.plot?.destroy();
    this.plot = null;
    this.tokens = null;
    this.detail.replaceChildren();
  }

  async open(place, shown) {
    this.detail.dataset.of = shown;
    const isOpen = () => this.detail.dataset.of === shown && this.host.isConnected;
    const path = runPath(this.context.run, "sample");
    let sample;
    try {
      [sample] = await Promise.all([fetchJson(path, { place }), isRich() && loadParsers()]);
    } catch (problem) {
      if (this.isListed(place)) return this.context.fail(problem);
    }
    if (!isOpen()) return;
    if (!sample) {
      this.isLinked = false; // no such sample: show the first of the list
      return this.draw();
    }
    const [groupHost, trainingHost] = [el("div"), el("div")];
    this.show(sample, groupHost, trainingHost);
    await this.showRelated(sample, groupHost, trainingHost, isOpen);
  }

  // Show a sample, with the places of its group and of its prompt over training.
  show(sample, ...hosts) {
    this.plot?.destroy();
    this.plot = null;
    const path = runPath(this.context.run, "token_sums");
    const sums = (value) => fetchJson(path, { step: sample.step, value });
    this.tokens = sample.tokens.length ? tokenPanel(sample, report ? null : sums) : null;
    this.detail.replaceChildren(...samplePanels(sample), this.tokens?.node ?? "", ...hosts);
    this.tokens?.draw();
  }

  async showRelated(sample, groupHost, trainingHost, isOpen) {
    const search = (parameters) => this.search(parameters);
    if (sample.group) {
      const group = await search({ group: sample.group, step: sample.step, sort: "-reward", limit: 64 });
      if (isOpen() && group.samples.length) groupHost.replaceChildren(groupPanel(group.samples, sample));
    }
    const training = sample.task ? await readTraining(search, sample) : null;
    if (!isOpen() || !training) return;
    const made = trainingPanel(training, sample, this.context);
    this.plot = made.plot;
    trainingHost.replaceChildren(made.node);
  }

  changed(names) {
    const has = (states) => names.some((name) => states.includes(name));
    this.isLinked = names.includes("sample") || (this.isLinked && !has(STATES));
    if (has(STATES)) this.read();
    else if (has(["sample", "diff", "rich"])) this.draw();
    if (has(["tv", "tv2"])) this.tokens?.draw();
    else if (names.includes("tok")) this.tokens?.reveal();
  }

  destroy() {
    this.plot?.destroy();
  }
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
  const facts = input.length ? "" : sampleFacts(sample);
  const end = html`${answers(sample)}${atStep(sample)}`;
  const output = panel(t("completion"), facts, transcript(outputTurns(sample), pattern), end);
  return input.length ? [panel(t("prompt"), sampleFacts(sample), transcript(input, pattern)), output] : [output];
}

// The given and the right answer; green if they are the same.
function answers(sample) {
  const right = sample.reference === null ? "" : sample.answer === sample.reference ? "right" : "wrong";
  const line = (label, text, name = "") =>
    (text ?? null) === null
      ? nothing
      : html`<p class="answer ${name}"><span class="quiet">${label}</span><b>${visibleText(text)}</b></p>`;
  return html`${line(t("answer"), sample.answer, right)}${line(t("reference"), sample.reference)}`;
}

function atStep({ step }) {
  const show = () => setState({ tab: "charts", from: Math.max(0, step - 20), to: step + 20 });
  const text = t("charts_at", { n: step });
  return step === null ? nothing : html`<button class="ghost to-charts" @click=${show}>${text}</button>`;
}
