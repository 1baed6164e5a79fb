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
import { el } from "../ui/dom.js";
import { throttle } from "../ui/scheduling.js";
import { stateLink, statusDot, verdictBanner } from "../ui/widgets.js";

const UPDATE_MS = 1000;

export function findingsView(host, context) {
  const store = new SeriesStore();
  const top = el("div");
  const list = el("div", { class: "finding-list" });
  const checked = el("div");
  let bar = null;
  let shown = ""; // the findings in the list, which is made anew where they are others

  async function read() {
    let data;
    try {
      data = await fetchJson(runPath(context.run, "findings"));
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    takeMarks(context.run, data);
    draw(data);
    store.refresh();
  }

  function draw(data) {
    top.replaceChildren(verdict(data));
    if (!bar) {
      bar = axisBar(data.axes);
      host.append(top, el("div", { class: "bar" }, bar.nodes), list, checked);
    }
    const all = [...data.findings, ...data.past];
    host.querySelector(".bar").hidden = !all.length;
    const keys = JSON.stringify([data.findings.map(keysOf), data.past.map(keysOf), Object.keys(data.charts)]);
    if (keys !== shown) {
      shown = keys;
      build(data);
    } else for (const finding of all) updateTexts(finding);
    drawChecked(data);
  }

  function build(data) {
    const cards = [];
    const evidence = (finding) => {
      const own = finding.evidence.filter((name) => data.charts[name]).map((name) => evidenceCard(data, finding, name));
      cards.push(...own);
      return el(
        "div",
        { class: "evidence" },
        own.map((card) => card.node),
      );
    };
    const isFirst = !list.hasChildNodes();
    const opened = [...list.querySelectorAll("details[open]")].map((node) => node.getAttribute("data-finding"));
    const past = data.past.map((finding) => foldedFinding(finding, evidence));
    list.replaceChildren(
      ...data.findings.map((finding) => findingCard(finding, evidence)),
      past.length ? el("section", { class: "panel card past" }, el("h2", { text: t("past_findings") }), past) : "",
    );
    for (const key of opened) nodeOf(key)?.setAttribute("open", "");
    store.setCards(cards);
    showChosen(isFirst); // a new finding must not move what is being read
  }

  function evidenceCard(data, finding, name) {
    const chart = metricChart(data.charts[name], data.metrics, [context.run]);
    return new ChartCard(store, { ...chart, stretch: () => markOf(context.run, finding) });
  }

  // Text of a finding changes with every step: its numbers, its severity and its end.
  function updateTexts(finding) {
    const node = nodeOf(findingKey(finding));
    const head = findingHead(finding, node instanceof HTMLDetailsElement);
    if (!node.contains(document.activeElement)) node.querySelector(".finding-head").replaceWith(head);
    node.querySelector(".finding-text").replaceWith(findingText(finding));
    for (const one of finding.explains) updateTexts(one);
  }

  function nodeOf(key) {
    return [...list.querySelectorAll(".finding")].find((node) => node.dataset.finding === key);
  }

  // Show the finding of the URL; of a rule whose finding has another first step by now, the first one.
  function showChosen(scroll = true) {
    for (const node of list.querySelectorAll(".finding.chosen")) node.classList.remove("chosen");
    const key = getState("finding");
    const rule = key.split("@")[0];
    const node = key && (nodeOf(key) ?? list.querySelector(`.finding[data-rule="${CSS.escape(rule)}"]`));
    if (!node) return;
    node.classList.add("chosen");
    if (node instanceof HTMLDetailsElement) node.open = true;
    if (!scroll) return;
    node.scrollIntoView({ block: "start" });
    node.querySelector("h2 a, summary").focus({ preventScroll: true });
  }

  function drawChecked({ fine, unmeasured }) {
    const open = [...checked.querySelectorAll("details")].map((one) => one.open);
    const lists = [
      [t("checked_fine", { n: fine.length }), fine],
      [t("not_judged", { n: unmeasured.length }), unmeasured],
    ];
    checked.replaceChildren(
      ...lists.map(([title, notes], i) => (notes.length ? foldedNotes(title, notes, open[i]) : "")),
    );
  }

  const update = throttle(UPDATE_MS, read);
  read();
  return {
    update,
    changed(names) {
      bar?.sync();
      if (names.includes("finding")) showChosen();
      else if (names.some((name) => ["from", "to", "x"].includes(name))) store.refresh(true);
      else for (const card of store.cards) card.draw();
    },
    destroy: () => store.setCards([]),
  };
}

function keysOf(finding) {
  return [findingKey(finding), finding.evidence, finding.explains.map(keysOf)];
}

// The verdict, and what it stands on.
function verdict({ health, findings, fine, unmeasured, steps }) {
  const { word, reasons } = health;
  const count = findings.filter((one) => one.severity !== "info").length;
  const nothing = findings.length ? t("only_infos") : t("no_findings");
  const found = count ? t("open_findings", { n: count }) : nothing;
  const looked = t("looked", { n: fine.length, m: unmeasured.length });
  const why = word === "unknown" ? reasons.map(localized).join("; ") : "";
  const text = steps ? [why, found, looked].filter(Boolean).join(" · ") : t("no_metrics");
  return verdictBanner(word, el("p", { class: "quiet", text }));
}

function findingCard(finding, evidence) {
  return el(
    "section",
    { class: "finding card", ...dataOf(finding) },
    el("div", { class: "finding-body" }, el("div", {}, findingHead(finding), findingText(finding)), evidence(finding)),
    finding.explains.length ? el("p", { class: "quiet explains-title", text: t("explains_these") }) : null,
    finding.explains.map((one) => foldedFinding(one, evidence)),
  );
}

// A finding that another explains, or that is over: its charts are drawn when it is opened.
function foldedFinding(finding, evidence) {
  return el(
    "details",
    { class: "finding folded", ...dataOf(finding) },
    el("summary", {}, findingHead(finding, true)),
    el("div", { class: "finding-body" }, findingText(finding), evidence(finding)),
  );
}

function dataOf(finding) {
  return { "data-finding": findingKey(finding), "data-rule": finding.rule };
}

// Title, severity, and from which step to which. The title is a link, but for a folded finding, which it opens.
function findingHead(finding, isFolded = false) {
  const title = localized(finding.title);
  const word = severityWord(finding.severity);
  const { onset, last, is_open } = finding;
  const over = onset === last ? t("at_step", { n: onset }) : t("from_to_step", { n: onset, m: last });
  return el(
    "div",
    { class: "finding-head" },
    el("h2", {}, statusDot(word), isFolded ? title : stateLink({ finding: findingKey(finding) }, { text: title })),
    el("span", { class: `severity ${word}`, text: t(`severity_${finding.severity}`) }),
    el("span", { class: "quiet", text: is_open ? t("since_step", { n: onset }) : over }),
    is_open ? null : el("span", { class: "quiet over-note", text: t("over") }),
  );
}

// The sentence about a finding, and what to do.
function findingText(finding) {
  const advice = finding.advice.map((text) => el("li", { text: localized(text) }));
  return el(
    "div",
    { class: "finding-text" },
    el("p", { text: localized(finding.text) }),
    advice.length ? el("ul", { class: "advice" }, advice) : null,
  );
}

// Titles with what the rules look at, or why they cannot judge: the short reason that many have in common, and as the
// tip of a title the rule's own one.
function foldedNotes(title, notes, open) {
  const said = (note) => localized(note.reason ?? note.text);
  const rows = [...new Set(notes.map(said))].map((text) => {
    const titles = notes
      .filter((note) => said(note) === text)
      .map((note) => el("b", { text: localized(note.title), title: note.reason ? localized(note.text) : null }));
    return el("li", {}, el("span", { class: "titles" }, titles), el("span", { class: "quiet", text }));
  });
  return el(
    "details",
    { class: "panel card checked", open: Boolean(open) },
    el("summary", { text: title }),
    el("ul", { class: "absent" }, rows),
  );
}
