// The charts of a report: cards that are all drawn at once, so that the report can be printed.
import { BandStore } from "../charts/band_store.js";
import { dashSign } from "../charts/card.js";
import { comparedChart, namedGroups } from "../charts/compared_chart.js";
import { offerCards } from "../charts/enlarged.js";
import { PanelCard } from "../charts/panel_card.js";
import { panelChart } from "../charts/panels.js";
import { SeriesStore } from "../charts/store.js";
import { zoomRange } from "../charts/zoom.js";
import { assignColours } from "../data/colours.js";
import { seriesStyle } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { swatch } from "../ui/widgets.js";

const POINTS = 420;

// The series of charts over some steps; an end that is null is that of the run.
class StepStore extends SeriesStore {
  constructor(from, to) {
    super();
    this.ends = [from, to];
  }

  window() {
    const [from, to] = this.ends.some((end) => end !== null) ? this.ends : (zoomRange() ?? this.ends);
    return {
      x: "step",
      from: from === null ? null : Math.floor(from),
      to: to === null ? null : Math.ceil(to),
      points: POINTS,
    };
  }
}

// The cards of a report, each with a store of its own kind.
export class ReportCards extends SeriesStore {
  constructor() {
    super();
    this.bands = new BandStore();
    this.stores = new Map(); // of series, by the ends of their steps
  }

  storeOf({ groups, panel }) {
    if (groups) return this.bands;
    const ends = [panel.from ?? null, panel.to ?? null];
    const key = JSON.stringify(ends);
    if (!this.stores.has(key)) this.stores.set(key, new StepStore(...ends));
    return this.stores.get(key);
  }

  request(card) {
    card.store.request(card);
  }

  setCards(cards) {
    for (const card of this.cards) card.leave();
    this.cards = cards;
    offerCards(cards);
    for (const card of cards) card.enter();
  }
}

class ReportCard extends PanelCard {
  // The names of all lines: a chart of a report is read on its own.
  makeLegend() {
    const lines = this.chart.lines.filter((line) => line.mean);
    if (lines.length < 2) return null;
    return el(
      "div",
      { class: "chart-legend" },
      lines.map((line) => swatch(seriesStyle(line.colour), `${dashSign(line.dash)}${line.label}`)),
    );
  }

  // Below the title of the report, whatever headings its notes have.
  level() {
    return 2;
  }

  axis() {
    return this.isScatter() ? "value" : "step";
  }

  range() {
    const { from, to } = this.chart.panel;
    if (from === undefined && to === undefined) return super.range();
    const known = this.lines().flatMap(({ main }) => (main.x.length ? [main.x[0], main.x_end.at(-1)] : []));
    return known.length ? [from ?? Math.min(...known), to ?? Math.max(...known)] : null;
  }

  smoothing() {
    return this.chart.panel.smooth ?? 0;
  }

  isLog() {
    return this.chart.panel.log ?? false;
  }
}

// What is called and painted how: a run or group has the same colour in the whole report.
export class Legend {
  constructor({ runs, blocks }) {
    this.names = new Map(runs.map(({ key, name }) => [key, name]));
    // What is drawn, in its order; further runs are those of tables.
    const all = [...blocks.flatMap((block) => block.groups?.map(idOf) ?? block.runs ?? []), ...this.names.keys()];
    const keys = [...new Set(all)].map((key, number) => ({ key, number }));
    this.colours = assignColours(keys);
  }

  groups(groups) {
    return namedGroups(
      groups,
      (key) => this.names.get(key),
      (group) => this.colours.get(idOf(group)),
    );
  }
}

function idOf(group) {
  return group.keys.join("\n");
}

// The card of a chart; `number` is its place in the report.
export function reportCard(block, number, legend, metrics, cards) {
  const groups = block.groups ? legend.groups(block.groups) : null;
  const drawn = new Map();
  for (const chart of [...block.charts, block.against]) {
    if (chart) drawn.set(chart.key, comparedChart(chart, metrics, groups));
  }
  const chart = panelChart(block.panel, number, (key) => drawn.get(key));
  const isSeveral = block.charts.length > 1;
  const lines = chart.lines.map((line) => named(line, legend, isSeveral));
  return new ReportCard(cards.storeOf(block), { ...chart, lines });
}

function named(line, legend, isSeveral) {
  const name = line.label ?? legend.names.get(line.run) ?? line.run;
  const colour = line.colour ?? legend.colours.get(line.run);
  return { ...line, colour, label: isSeveral ? `${name} · ${line.of}` : name, of: "" };
}
