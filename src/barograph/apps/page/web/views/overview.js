// The Overview: the doctor's verdict, headline values as cards, and time by phase.

import { severityWord } from "../charts/marks.js";
import { drawPhases } from "../charts/phase_bars.js";
import { Plot } from "../charts/plot.js";
import { StackedBars } from "../charts/stacked_bars.js";
import { valueTexts } from "../charts/values.js";
import { fetchJson, runPath } from "../data/api.js";
import { findingKey, markOf, takeMarks } from "../data/marks.js";
import { fetchOthers } from "../data/other_runs.js";
import { seriesFromJson } from "../data/series.js";
import { setState } from "../data/url_state.js";
import { formatNumber, formatShort, toNumber } from "../text/format.js";
import { localized, t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { addTooltip, metricTooltip } from "../ui/tooltip.js";
import { emptyState, listPanel, panel, stateLink, statusDot, swatch, verdictBanner } from "../ui/widgets.js";
import { namesLine } from "./names.js";

export function overviewView(host, context) {
  const cards = new Map();
  const top = el("div");
  const evidence = new EvidenceRow(context);
  const grid = el("div", { class: "vitals" });
  const legend = el("div", { class: "legend selection-legend" });
  const lower = el("div", { class: "lower" });
  let phaseBars = null;
  let busy = false;
  let again = false;
  host.append(top, legend, grid, lower);

  async function read() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const [data, others] = await Promise.all([
        fetchJson(runPath(context.run, "overview")),
        fetchOthers(context, "overview"),
      ]);
      draw(data, others);
    } catch (problem) {
      context.fail(problem);
    }
    busy = false;
    if (again) {
      again = false;
      setTimeout(read, 400);
    }
  }

  function draw(data, others) {
    if (!host.isConnected) return;
    takeMarks(context.run, data);
    evidence.draw(data);
    top.replaceChildren(
      banner(data, evidence.node),
      data.names ? namesLine(data, () => setState({ tab: "names" })) : "",
    );
    const keys = [!data.names, ...data.vital.map((headline) => headline.key)].join();
    if (grid.dataset.keys !== keys) {
      for (const one of cards.values()) one.plot.destroy();
      cards.clear();
      for (const headline of data.vital) cards.set(headline.key, headlineCard(headline, data, context));
      grid.replaceChildren(...[...cards.values()].map((one) => one.card));
      grid.dataset.keys = keys;
    }
    for (const headline of data.vital)
      cards.get(headline.key).update(headline, troubleOf(headline, data.findings), sameValues(headline, others));
    drawSelection(others);
    if (!data.vital.length && !data.names) grid.replaceChildren(emptyState(t("no_metrics"), t("no_metrics_do")));
    drawLower(data);
  }

  // Which runs the curves are of, where several are selected; the verdict and the numbers are of the one in view.
  function drawSelection(others) {
    const all = [{ name: context.name, colour: context.colour }, ...others];
    const entries = others.length ? all.map((one) => swatch(seriesColour(one.colour), one.name)) : [];
    legend.replaceChildren(...entries);
  }

  function drawLower(data) {
    const panels = [];
    if (data.time?.phases.length) {
      phaseBars ??= makePhaseBars();
      drawPhases(phaseBars.bars, data.time, false, phaseBars.legend);
      panels.push(phaseBars.panel);
    }
    if (data.absent.length) panels.push(absentPanel(data));
    if (data.notices.length) panels.push(listPanel(t("notices"), data.notices));
    lower.replaceChildren(...panels);
  }

  read();
  return {
    update: read,
    destroy() {
      phaseBars?.bars.destroy();
      evidence.destroy();
      for (const one of cards.values()) one.plot.destroy();
    },
  };
}

// The same value of other runs, under whatever name; one that is another number is not drawn beside it.
function sameValues(headline, others) {
  return others.flatMap(({ run, name, colour, data }) => {
    const same = data.vital.find(
      (one) => one.metric === headline.metric && localized(one.note) === localized(headline.note),
    );
    return same ? [{ run, label: name, colour, main: mainCurve(same) }] : [];
  });
}

function mainCurve({ curves }) {
  return seriesFromJson(curves.mean ?? curves.line ?? Object.values(curves)[0]);
}

function makePhaseBars() {
  const legend = el("div", { class: "legend" });
  const area = el("div", { class: "stack-host" });
  const bars = new StackedBars(area, (step) => setState({ tab: "time", step }));
  return { bars, legend, panel: panel(t("where_step"), t("stacked"), area, legend) };
}

// The curves that the first findings stand on, each a link to its finding. They stay while the banner is drawn anew.
class EvidenceRow {
  constructor(context) {
    this.context = context;
    this.node = el("div", { class: "banner-evidence" });
    this.plots = new Map();
  }

  draw({ evidence, findings }) {
    const keys = evidence.map((one) => `${findingKey(one.finding)} ${one.name}`);
    if (this.node.dataset.keys !== keys.join()) this.build(evidence, findings, keys);
    evidence.forEach((one, i) => {
      const { context } = this;
      const main = seriesFromJson(one.curve);
      this.plots.get(keys[i]).setLines([{ run: context.run, label: context.name, colour: context.colour, main }]);
    });
  }

  build(evidence, findings, keys) {
    this.destroy();
    const cards = evidence.map((one, i) => {
      const finding = findings.find((other) => findingKey(other) === findingKey(one.finding));
      const area = el("div", { class: "evidence-plot" });
      const stretch = () => markOf(this.context.run, one.finding);
      this.plots.set(keys[i], new Plot(area, { title: localized(one.title), small: true, stretch }));
      return el("div", {}, findingLink(finding, localized(one.title)), area);
    });
    this.node.replaceChildren(...cards);
    this.node.dataset.keys = keys.join();
  }

  destroy() {
    for (const plot of this.plots.values()) plot.destroy();
    this.plots.clear();
  }
}

// A link to the chart of a logged name, among those of its family.
function chartLink(name, ...children) {
  const states = { tab: "charts", look: name, chart: "", filter: "" };
  return stateLink(states, { class: "chart-link", title: t("show_chart") }, ...children);
}

// The doctor's verdict with its findings, the crucial values, and how many rules found nothing or could not judge.
function banner(data, evidence) {
  const { word, reasons } = data.health;
  const findings = data.findings.map((one) =>
    el(
      "li",
      {},
      statusDot(severityWord(one.severity)),
      findingLink(one, localized(one.title)),
      el("span", { class: "since", text: t("since_step", { n: one.onset }) }),
      el("span", { text: [localized(one.text), explained(one)].filter(Boolean).join(" ") }),
    ),
  );
  const all = withExplained(data.findings);
  const crucial = data.crucial.map((one) => {
    // A value with a finding leads to it: the sentence is said above, or in Findings.
    const found = all.find((finding) => localized(finding.text) === localized(one.text));
    const item = el(
      "li",
      {},
      statusDot(one.word),
      one.name && !found
        ? chartLink(one.name, el("b", { text: localized(one.title) }))
        : el("b", { text: localized(one.title) }),
      found ? findingLink(found, localized(found.title)) : el("span", { text: localized(one.text) }),
    );
    return addTooltip(item, () => metricTooltip(data.metrics[one.metric], one.name ? [one.name] : [], one.note));
  });
  const { fine, unmeasured } = data.checked;
  const looked = `${t("looked", { n: fine, m: unmeasured })} →`;
  return verdictBanner(
    word,
    reasons.length ? el("p", { class: "quiet", text: reasons.map(localized).join("; ") }) : "",
    findings.length ? el("ul", { class: "crucial findings" }, findings) : "",
    data.evidence.length ? evidence : "",
    el("ul", { class: "crucial" }, crucial),
    data.names ? stateLink({ tab: "findings", finding: "" }, { class: "quiet looked", text: looked }) : "",
  );
}

// A link to a finding, with what to look at next as its tooltip.
function findingLink(finding, text) {
  const link = stateLink({ tab: "findings", finding: findingKey(finding) }, { class: "finding-link", text });
  return addTooltip(link, () => finding.advice.map((one) => el("p", { text: localized(one) })));
}

// The findings that another one explains, in a sentence.
function explained(finding) {
  const titles = finding.explains.filter((one) => one.severity !== "info").map((one) => localized(one.title));
  return titles.length ? t("explains", { n: titles.join(", ") }) : "";
}

// The most important finding about a headline value, also one that another explains.
function troubleOf(headline, findings) {
  const names = Object.values(headline.names);
  return withExplained(findings).find((one) => names.includes(one.name));
}

// Findings, each followed by those above info that it explains.
function withExplained(findings) {
  return findings.flatMap((one) => [one, ...one.explains.filter((inner) => inner.severity !== "info")]);
}

// The card of a headline value: its last value and its curve.
function headlineCard(headline, data, context) {
  const metric = data.metrics[headline.metric];
  const title = el("h3", { "aria-level": 2 }, chartLink(headline.name, localized(headline.title)));
  const value = el("span", { class: "large" });
  const change = el("span", { class: "quiet" });
  const point = el("span", { class: "point" });
  const area = el("div", { class: "vital-plot" });
  const ends = el("div", { class: "ends quiet" });
  const hasBand = headline.curves.max && context.chosen.length < 2; // of several runs only lines are drawn
  const unit = [metric?.sign, metric?.estimator, hasBand && "min–max"].filter(Boolean).join(" · ");
  addTooltip(title, () => metricTooltip(metric, [headline.name, ...(headline.others ?? [])], headline.note));
  const trouble = el("span", { class: "trouble" });
  const head = el(
    "header",
    {},
    trouble,
    title,
    point,
    el("span", { class: "quiet unit", text: unit, title: localized(metric?.unit) }),
  );
  const card = el(
    "article",
    { class: "card vital", "data-key": headline.key, "data-name": headline.name },
    head,
    el("div", { class: "now" }, chartLink(headline.name, value), change),
    area,
    ends,
  );
  const oncursor = (cursor) => {
    const own = cursor?.values.filter((one) => one.line.run === context.run) ?? [];
    const text =
      cursor && `${t("at_step", { n: own[0]?.x ?? Math.round(cursor.x) })}: ${valueTexts(own)[0]?.text ?? ""}`;
    point.textContent = text ?? "";
    card.classList.toggle("pointed", Boolean(cursor));
  };
  const plot = new Plot(area, {
    title: localized(headline.title),
    small: true,
    band: headline.band,
    oncursor,
    onzoom: (range) => range && setState({ tab: "charts", x: "", from: range[0], to: range[1] }),
  });
  function update(now, found, others) {
    trouble.replaceChildren(found ? troubleLink(found) : "");
    const curve = (name) => (now.curves[name] ? seriesFromJson(now.curves[name]) : null);
    const main = mainCurve(now);
    const line = {
      run: context.run,
      label: context.name,
      colour: context.colour,
      main,
      max: curve("max"),
      min: curve("min"),
    };
    value.textContent = brief(now.last);
    value.classList.toggle("bad", !Number.isFinite(toNumber(now.last)));
    const bad = main.nonfinite.reduce((sum, n) => sum + n, 0);
    const first = now.first === null || now.first === undefined ? [] : [`${t("from")} ${brief(now.first)}`];
    const facts = [...usualRange(now), ...first].join(" · ");
    change.title = facts;
    change.replaceChildren(bad ? el("span", { class: "bad", text: `× ${t("nonfinite", { n: bad })}` }) : facts);
    const drawn = [line, ...others].map((one) => one.main).filter((one) => one.x.length);
    const firstStep = drawn.length ? Math.min(...drawn.map((one) => one.x[0])) : "";
    const lastStep = drawn.length ? Math.max(...drawn.map((one) => one.x_end.at(-1))) : "";
    ends.replaceChildren(el("span", { text: firstStep }), el("span", { text: t("at_step", { n: lastStep }) }));
    plot.setLines([...others, line]);
  }
  return { card, plot, update };
}

// A dot that leads to the finding about a value.
function troubleLink(finding) {
  const link = findingLink(finding, "");
  link.append(statusDot(severityWord(finding.severity)));
  link.setAttribute("aria-label", localized(finding.title));
  link.title = `${localized(finding.title)} · ${t("since_step", { n: finding.onset })}`;
  return link;
}

function brief(value) {
  return Math.abs(value) >= 1e4 ? formatShort(value) : formatNumber(value);
}

// The healthy range, where the last value is outside of it. Whether that is a problem is what the doctor says.
function usualRange({ last, band }) {
  const v = toNumber(last);
  const isBelow = band && band.low !== null && v < band.low;
  const isAbove = band && band.high !== null && v > band.high;
  if (!isBelow && !isAbove) return [];
  return [t("usual_range", { r: isBelow ? `≥ ${formatShort(band.low)}` : `≤ ${formatShort(band.high)}` })];
}

function absentPanel(data) {
  const reasons = [...new Set(data.absent.map((one) => localized(one.reason)))]; // one is often that of many values
  const rows = reasons.map((reason) => {
    const values = data.absent.filter((one) => localized(one.reason) === reason);
    const titles = values.map((one) => {
      const title = el("b", { text: localized(one.title) });
      return addTooltip(title, () => metricTooltip(data.metrics[one.metrics[0]], []));
    });
    return el("li", {}, el("span", { class: "titles" }, titles), el("span", { class: "quiet", text: reason }));
  });
  return panel(data.unknown ? t("not_found") : t("not_logged"), "", el("ul", { class: "absent" }, rows));
}
