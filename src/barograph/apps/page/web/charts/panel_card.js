// The card of a panel.
import { getState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { swatch } from "../ui/widgets.js";
import { ChartCard } from "./card.js";
import { against, lastAgainst } from "./scatter.js";

export class PanelCard extends ChartCard {
  constructor(store, chart) {
    super(store, chart);
    this.node.classList.add("panel-card", chart.panel.size ?? "normal");
  }

  build() {
    super.build();
    if (this.chart.note) this.area.replaceChildren(el("p", { class: "quiet", text: this.chart.note }));
  }

  // Without a line there is nothing to plot.
  enter() {
    if (this.chart.lines.length) return super.enter();
    this.visible = true;
    this.build();
  }

  isScatter() {
    return ["steps", "runs"].includes(this.chart.panel.kind);
  }

  axis() {
    return this.isScatter() ? "value" : super.axis();
  }

  range() {
    return this.isScatter() ? null : super.range();
  }

  requests() {
    const others = this.isScatter() ? this.chart.lines.filter((line) => line.against) : [];
    return [...super.requests(), ...others.map((line) => ({ run: line.run, name: line.against, factor: 1 }))];
  }

  lines() {
    if (!this.isScatter()) return super.lines();
    const pair = this.chart.panel.kind === "runs" ? lastAgainst : against;
    const specs = new Map(this.chart.lines.map((line) => [`${line.run}\n${line.mean}`, line]));
    return super
      .lines()
      .map((line) => {
        const other = specs.get(line.id)?.against;
        const xs = other ? this.store.series(line.run, other) : null;
        return { ...line, older: [], dots: true, main: xs && pair(line.main, xs) };
      })
      .filter((line) => line.main);
  }

  showLast(lines) {
    if (!this.isScatter()) return super.showLast(lines);
    const names =
      lines.length > 1 && !this.legend ? lines.map((line) => swatch(seriesColour(line.colour), line.label)) : [];
    this.sub.replaceChildren(...names, el("span", { text: `x: ${this.chart.xTitle ?? this.chart.panel.against}` }));
  }

  // A point has no step of its own on the axis: tell both of its values, and its step.
  showCursor(cursor) {
    if (!this.isScatter() || !cursor) return super.showCursor(cursor);
    this.hasCursor = true;
    const x = cursor.values.find((one) => one.x !== undefined)?.x;
    const step = cursor.values.length === 1 && cursor.values[0].step;
    const texts = [
      x === undefined ? "" : this.plot.formatX(x),
      step && getState("x") === "step" ? t("at_step", { n: step }) : "",
    ];
    this.sub.replaceChildren(
      el("span", { text: texts.filter(Boolean).join(" · ") }),
      ...this.valueNodes(cursor.values.filter((one) => one.value !== null)),
    );
  }
}
