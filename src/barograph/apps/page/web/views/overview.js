// The Overview: the doctor's verdict, headline values as cards, and time by phase.
import { drawPhases } from "../charts/phase_bars.js";
import { StackedBars } from "../charts/stacked_bars.js";
import { fetchJson, runPath } from "../data/api.js";
import { takeMarks } from "../data/marks.js";
import { fetchOthers } from "../data/other_runs.js";
import { setState } from "../data/url_state.js";
import { banner, withExplained } from "../overview/banner.js";
import { EvidenceRow } from "../overview/evidence.js";
import { HeadlineCard, mainCurve } from "../overview/headline_card.js";
import { localized, t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { html, nothing, render } from "../ui/html.js";
import { addTooltip, metricTooltip } from "../ui/tooltip.js";
import { emptyState, listPanel, panel, swatch } from "../ui/widgets.js";
import { namesLine } from "./names.js";

const PAUSE_MS = 400; // between two requests, where news arrive faster

export const overviewView = (host, context) => new OverviewView(host, context);

class OverviewView {
  constructor(host, context) {
    this.host = host;
    this.context = context;
    this.cards = new Map(); // of headline values, by key
    this.evidence = new EvidenceRow(context);
    this.top = el("div");
    this.legend = el("div", { class: "legend selection-legend" });
    this.grid = el("div", { class: "vitals" });
    this.lower = el("div", { class: "lower" });
    this.phaseBars = null;
    this.isBusy = false;
    this.isAsked = false; // again, while a request is under way
    host.append(this.top, this.legend, this.grid, this.lower);
    this.update();
  }

  async update() {
    this.isAsked = this.isBusy;
    if (this.isBusy) return;
    this.isBusy = true;
    const { context } = this;
    try {
      const own = fetchJson(runPath(context.run, "overview"));
      const [data, others] = await Promise.all([own, fetchOthers(context, "overview")]);
      if (this.host.isConnected) this.draw(data, others);
    } catch (problem) {
      context.fail(problem);
    }
    this.isBusy = false;
    if (this.isAsked) setTimeout(() => this.update(), PAUSE_MS);
  }

  draw(data, others) {
    takeMarks(this.context.run, data);
    this.evidence.draw(data);
    const names = data.names ? namesLine(data, () => setState({ tab: "names" })) : nothing;
    render(html`${banner(data, this.evidence.node)}${names}`, this.top);
    this.drawSelection(others);
    this.drawCards(data, others);
    this.drawLower(data);
  }

  // Which runs the curves are of, where several are selected; the verdict and the numbers are of the one in view.
  drawSelection(others) {
    const all = [this.context, ...others].map((one) => swatch(seriesColour(one.colour), one.name));
    this.legend.replaceChildren(...(others.length ? all : []));
  }

  drawCards(data, others) {
    const keys = [!data.names, ...data.vital.map((headline) => headline.key)].join();
    if (this.grid.dataset.keys !== keys) this.makeCards(data);
    this.grid.dataset.keys = keys;
    for (const headline of data.vital) {
      const card = this.cards.get(headline.key);
      card.update(headline, troubleOf(headline, data.findings), sameValues(headline, others));
    }
    if (!data.vital.length && !data.names) this.grid.replaceChildren(emptyState(t("no_metrics"), t("no_metrics_do")));
  }

  makeCards(data) {
    for (const card of this.cards.values()) card.destroy();
    this.cards = new Map(data.vital.map((one) => [one.key, new HeadlineCard(one, data, this.context)]));
    this.grid.replaceChildren(...[...this.cards.values()].map((card) => card.node));
  }

  drawLower(data) {
    const panels = [];
    if (data.time?.phases.length) {
      this.phaseBars ??= makePhaseBars();
      drawPhases(this.phaseBars.bars, data.time, false, this.phaseBars.legend);
      panels.push(this.phaseBars.panel);
    }
    if (data.absent.length) panels.push(absentPanel(data));
    if (data.notices.length) panels.push(listPanel(t("notices"), data.notices));
    this.lower.replaceChildren(...panels);
  }

  destroy() {
    this.phaseBars?.bars.destroy();
    this.evidence.destroy();
    for (const card of this.cards.values()) card.destroy();
  }
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

function makePhaseBars() {
  const legend = el("div", { class: "legend" });
  const area = el("div", { class: "stack-host" });
  const bars = new StackedBars(area, (step) => setState({ tab: "time", step }));
  return { bars, legend, panel: panel(t("where_step"), t("stacked"), area, legend) };
}

// The most important finding about a headline value, also one that another explains.
function troubleOf(headline, findings) {
  const names = Object.values(headline.names);
  return withExplained(findings).find((one) => names.includes(one.name));
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
