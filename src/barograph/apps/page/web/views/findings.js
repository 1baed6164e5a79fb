// The Findings view: the doctor's verdict, the findings with the charts of their evidence, and what was checked.
import { axisBar } from "../charts/axis_bar.js";
import { ChartCard } from "../charts/card.js";
import { severityWord } from "../charts/marks.js";
import { metricChart } from "../charts/metric_chart.js";
import { SeriesStore } from "../charts/store.js";
import { fetchJson, runPath } from "../data/api.js";
import { findingKey, markOf, takeMarks } from "../data/marks.js";
import { getState } from "../data/url_state.js";
import { localized, t } from "../text/language.js";
import { html, nothing, render, repeat } from "../ui/html.js";
import { throttle } from "../ui/scheduling.js";
import { stateLink, statusDot, verdictBanner } from "../ui/widgets.js";

const UPDATE_MS = 1000;

export function findingsView(host, context) {
  const store = new SeriesStore();
  const cards = new Map(); // the charts of the evidence, by finding and name
  let bar = null;

  async function read() {
    const data = await context.load(fetchJson(runPath(context.run, "findings")));
    if (!data) return;
    const isFirst = !bar;
    bar ??= axisBar(data.axes);
    takeMarks(context.run, data);
    render(page(data, bar, evidenceOf(data)), host);
    store.setCards([...cards.values()]);
    if (isFirst) showChosen(host);
    store.refresh();
  }

  // A function that returns the charts of a finding, which stay as long as the finding has them.
  function evidenceOf(data) {
    const before = new Map(cards);
    cards.clear();
    return (finding) => {
      const names = finding.evidence.filter((name) => data.charts[name]);
      for (const name of names) {
        const key = `${findingKey(finding)} ${name}`;
        cards.set(key, before.get(key) ?? evidenceCard(store, data, finding, name, context.run));
      }
      const nodes = names.map((name) => cards.get(`${findingKey(finding)} ${name}`).node);
      return html`<div class="evidence">${nodes}</div>`;
    };
  }

  read();
  return {
    update: throttle(UPDATE_MS, read),
    changed(names) {
      bar?.sync();
      if (names.includes("finding")) showChosen(host);
      else if (names.some((name) => ["from", "to", "x"].includes(name))) store.refresh(true);
      else for (const card of store.cards) card.draw();
    },
    destroy: () => store.setCards([]),
  };
}

function evidenceCard(store, data, finding, name, run) {
  const chart = metricChart(data.charts[name], data.metrics, [run]);
  return new ChartCard(store, { ...chart, stretch: () => markOf(run, finding) });
}

// Show the finding of the URL; of a rule whose finding has another first step by now, the first one.
function showChosen(host) {
  for (const node of host.querySelectorAll(".finding.chosen")) node.classList.remove("chosen");
  const key = getState("finding");
  const [rule] = key.split("@");
  const node =
    host.querySelector(`[data-finding="${CSS.escape(key)}"]`) ??
    host.querySelector(`[data-rule="${CSS.escape(rule)}"]`);
  if (!key || !node) return;
  node.classList.add("chosen");
  if (node instanceof HTMLDetailsElement) node.open = true;
  node.scrollIntoView({ block: "start" });
  node.querySelector("h2 a, summary").focus({ preventScroll: true });
}

function page(data, bar, evidence) {
  const { findings, past, fine, unmeasured } = data;
  return html`${verdict(data)}
    <div class="bar" ?hidden=${!findings.length && !past.length}>${bar.nodes}</div>
    <div class="finding-list">
      ${repeat(findings, findingKey, (one) => findingCard(one, evidence))}
      ${
        past.length
          ? html`<section class="panel card past">
        <h2>${t("past_findings")}</h2>${repeat(past, findingKey, (one) => foldedFinding(one, evidence))}
      </section>`
          : nothing
      }
    </div>
    ${foldedNotes(t("checked_fine", { n: fine.length }), fine)}
    ${foldedNotes(t("not_judged", { n: unmeasured.length }), unmeasured)}`;
}

// The verdict, and what it stands on.
function verdict({ health, findings, fine, unmeasured, steps }) {
  const { word, reasons } = health;
  const count = findings.filter((one) => one.severity !== "info").length;
  const none = findings.length ? t("only_infos") : t("no_findings");
  const looked = t("looked", { n: fine.length, m: unmeasured.length });
  const why = word === "unknown" ? reasons.map(localized).join("; ") : "";
  const said = [why, count ? t("open_findings", { n: count }) : none, looked].filter(Boolean).join(" · ");
  return verdictBanner(word, html`<p class="quiet">${steps ? said : t("no_metrics")}</p>`);
}

function findingCard(finding, evidence) {
  return html`<section class="finding card" data-finding=${findingKey(finding)} data-rule=${finding.rule}>
    <div class="finding-body"><div>${findingHead(finding)}${findingText(finding)}</div>${evidence(finding)}</div>
    ${finding.explains.length ? html`<p class="quiet explains-title">${t("explains_these")}</p>` : nothing}
    ${repeat(finding.explains, findingKey, (one) => foldedFinding(one, evidence))}
  </section>`;
}

// A finding that another explains, or that is over: its charts are drawn when it is opened.
function foldedFinding(finding, evidence) {
  return html`<details class="finding folded" data-finding=${findingKey(finding)} data-rule=${finding.rule}>
    <summary>${findingHead(finding, true)}</summary>
    <div class="finding-body">${findingText(finding)}${evidence(finding)}</div>
  </details>`;
}

// Title, severity, and from which step to which. The title is a link, but for a folded finding, which it opens.
function findingHead(finding, isFolded = false) {
  const title = localized(finding.title);
  const word = severityWord(finding.severity);
  const { onset, last, is_open } = finding;
  const over = onset === last ? t("at_step", { n: onset }) : t("from_to_step", { n: onset, m: last });
  return html`<div class="finding-head">
    <h2>${statusDot(word)}${isFolded ? title : stateLink({ finding: findingKey(finding) }, { text: title })}</h2>
    <span class="severity ${word}">${t(`severity_${finding.severity}`)}</span>
    <span class="quiet">${is_open ? t("since_step", { n: onset }) : over}</span>
    ${is_open ? nothing : html`<span class="quiet over-note">${t("over")}</span>`}
  </div>`;
}

// The sentence about a finding, and what to do.
function findingText(finding) {
  const advice = finding.advice.map((text) => html`<li>${localized(text)}</li>`);
  return html`<div class="finding-text">
    <p>${localized(finding.text)}</p>
    ${advice.length ? html`<ul class="advice">${advice}</ul>` : nothing}
  </div>`;
}

// Titles with what the rules look at, or why they cannot judge: the short reason that many have in common, and as the
// tip of a title the rule's own one.
function foldedNotes(title, notes) {
  if (!notes.length) return nothing;
  const said = (note) => localized(note.reason ?? note.text);
  const named = (note) => html`<b title=${note.reason ? localized(note.text) : nothing}>${localized(note.title)}</b>`;
  const row = (text) => html`<li>
    <span class="titles">${notes.filter((note) => said(note) === text).map(named)}</span><span class="quiet">${text}</span>
  </li>`;
  return html`<details class="panel card checked">
    <summary>${title}</summary><ul class="absent">${[...new Set(notes.map(said))].map(row)}</ul>
  </details>`;
}
