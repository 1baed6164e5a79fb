// A chart in its card. It has a plot only while it is in view.
import { colourOf } from "../data/colours.js";
import { runs } from "../data/runs.js";
import { getList, getState, packList, setState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { seriesStyle } from "../ui/colours.js";
import { cutMiddle } from "../ui/cut_text.js";
import { el, ICONS, icon } from "../ui/dom.js";
import { addTooltip, metricTooltip } from "../ui/tooltip.js";
import { swatch } from "../ui/widgets.js";
import { enlarge, shrink } from "./enlarged.js";
import { openExportMenu } from "./export_menu.js";
import { Plot } from "./plot.js";
import { pointCountText, valueTexts } from "./values.js";
import { setZoom, zoomRange } from "./zoom.js";

const DASH_SIGNS = ["", "╌ ", "┄ "];

// What stands in a legend before the name of a line with these dashes.
export function dashSign(dash) {
  return DASH_SIGNS[(dash ?? 0) % DASH_SIGNS.length];
}

export class ChartCard {
  // `chart` is {key, title, unit, metric, band, note, names, lines, stretch, settings, edit}; each of its lines is
  // {run, mean, max, min, factor}, and in a panel also {of, colour, dash}.
  constructor(store, chart) {
    this.store = store;
    this.chart = chart;
    this.visible = false;
    this.plot = null;
    this.points = 0; // more than a card's where the chart is enlarged
    this.drawInFrame = () => this.draw(); // one function: in a tab in the background there are no frames
    this.node = el("article", { class: "card chart", "data-name": chart.key });
    this.node.card = this;
  }

  build() {
    if (this.built) return;
    this.built = true;
    const { title, unit, names, metric, note } = this.chart;
    const heading = el("h3", { "aria-level": this.level() }, cutMiddle(title));
    addTooltip(heading, () => metricTooltip(metric, names, note));
    this.sub = el("div", { class: "sub" });
    this.area = el("div", { class: "plot" });
    const nameRow = el("div", { class: "names" }, heading, el("span", { class: "quiet unit", text: unit }));
    this.legend = this.makeLegend();
    this.node.append(el("header", {}, nameRow, this.sub, this.legend), this.area, this.tools());
  }

  // The level of the title among the headings of the page.
  level() {
    return null;
  }

  // Where runs log it under different names, the name of each in its colour.
  makeLegend() {
    const lines = this.chart.lines.filter((line) => line.mean);
    if (new Set(lines.map((line) => line.mean)).size < 2) return null;
    const entries = lines.map(({ run, mean, of, colour, dash }) => {
      const entry = swatch(seriesStyle(colour ?? colourOf(run)), `${dashSign(dash)}${of || mean}`);
      entry.title = `${runs.get(run)?.name ?? run}: ${mean}`;
      return entry;
    });
    return el("div", { class: "chart-legend" }, entries);
  }

  tools() {
    const { title, pinnable, edit } = this.chart;
    const tool = (path, name, label, work) =>
      el(
        "button",
        { class: `ghost tool-${name}`, title: label, "aria-label": `${label}: ${title}`, onclick: work },
        icon(path),
      );
    return el(
      "div",
      { class: "tools" },
      pinnable ? tool(ICONS.pin, "pin", t("pin"), () => this.togglePin()) : null,
      edit ? tool(ICONS.edit, "edit", t("edit_panel"), edit) : null,
      tool(ICONS.grow, "grow", `${t("maximise")} (f)`, () => enlarge(this.plot)),
      tool(ICONS.save, "save", t("take_along"), (event) => openExportMenu(event.currentTarget, this)),
      tool(ICONS.close, "shrink", `${t("close")} (Esc)`, shrink),
    );
  }

  // Show the chart over the page, or at its place again.
  setLarge(points) {
    this.points = points;
    this.node.classList.toggle("large-chart", points > 0);
    if (this.plot?.lines.length && !this.hasCursor) this.showLast(this.plot.lines);
  }

  togglePin() {
    const pins = getList("pins");
    const { key } = this.chart;
    setState({ pins: packList(pins.includes(key) ? pins.filter((one) => one !== key) : [...pins, key]) });
  }

  // The series that the card needs.
  requests() {
    return this.chart.lines.flatMap(
      ({ run, mean, max, min, factor, members }) =>
        members ?? [mean, max, min].filter(Boolean).map((name) => ({ run, name, factor: factor ?? 1 })),
    );
  }

  enter() {
    this.visible = true;
    this.build();
    if (!this.plot) {
      this.plot = new Plot(this.area, {
        title: this.chart.title,
        x: this.axis(),
        xTitle: this.chart.xTitle,
        band: this.chart.band,
        stretch: this.chart.stretch,
        onzoom: this.axis() === "value" ? () => {} : setZoom,
        oncursor: (cursor) => this.showCursor(cursor),
      });
      this.plot.card = this;
    }
    this.store.request(this);
    this.draw();
  }

  leave() {
    this.visible = this.near = false;
    this.plot?.destroy();
    this.plot = null;
  }

  // The lines of the plot, as far as their series are known.
  lines() {
    const series = (run, name) => (name ? this.store.series(run, name) : null);
    const lines = this.chart.lines.map(({ run, mean, max, min, of, label, colour, dash, isGroup }) => ({
      run,
      id: `${run}\n${mean}`,
      isGroup,
      label: label ?? [runs.get(run)?.name ?? run, of].filter(Boolean).join(" · "),
      colour: colour ?? colourOf(run),
      dash: dash ?? 0,
      main: series(run, mean),
      max: series(run, max),
      min: series(run, min),
      older: this.store.older(run, mean),
    }));
    return lines.filter((line) => line.main);
  }

  draw() {
    if (!this.plot) return;
    const lines = this.lines();
    if (!lines.length) return;
    const { low, high } = this.chart.settings ?? {};
    this.plot.range = this.range();
    this.plot.setLines(lines, { smooth: this.smoothing(), log: this.isLog(), x: this.axis(), low, high });
    if (!this.hasCursor) this.showLast(lines);
  }

  // The settings of a panel come before those of the page.
  smoothing() {
    return this.chart.settings?.smooth ?? getState("smooth");
  }

  isLog() {
    return this.chart.settings?.log ?? getState("log") === "1";
  }

  axis() {
    return getState("x");
  }

  range() {
    return zoomRange();
  }

  // Without a cursor, show the last value of each line, and the key of the chart where no legend has the names.
  showLast(lines) {
    const cut = this.isLog() && lines.some((line) => line.main.min.some((v) => v <= 0));
    const last = lines.map((line) => ({ line, value: line.main.x.length ? line.main.last.at(-1) : null }));
    const key = cut ? t("log_cut") : this.legend || this.chart.settings ? "" : this.chart.key;
    this.showValues(last, key);
    const count = lines.length ? pointCountText(lines[0]) : "";
    if (this.area.title !== count) this.area.title = count;
  }

  // Where only values have changed, as at a new step, their texts are replaced and the elements stay.
  showValues(last, key) {
    const shown = JSON.stringify([last.map(({ line }) => [line.label, line.colour]), key, this.points > 0]);
    if (this.shown !== shown || !this.valuesShown?.[0]?.isConnected) {
      this.shown = shown;
      this.valuesShown = this.valueNodes(last);
      this.sub.replaceChildren(...this.valuesShown, el("code", { text: key }));
      return;
    }
    valueTexts(last).forEach(({ line, text }, i) => {
      const node = this.valuesShown[i].lastChild;
      const now = this.points ? `${line.label}  ${text}` : text;
      if (node.data !== now) node.data = now;
    });
  }

  showCursor(cursor) {
    this.hasCursor = Boolean(cursor);
    if (!cursor) return this.showLast(this.plot.lines);
    const x = cursor.values.find((one) => one.x !== undefined)?.x ?? cursor.x;
    const position = el("span", { text: this.axis() === "step" ? t("at_step", { n: x }) : this.plot.formatX(x) });
    this.sub.replaceChildren(position, ...this.valueNodes(cursor.values));
  }

  // Values in the colours of their lines. Several lines name themselves in a title; an enlarged chart has space for names.
  valueNodes(values) {
    return valueTexts(values).map(({ line, text }) => {
      const style = { "--c": seriesStyle(line.colour) };
      if (this.points) return swatch(seriesStyle(line.colour), `${line.label}  ${text}`);
      return el("span", { class: "val", text, style, title: values.length > 1 ? line.label : null });
    });
  }
}
