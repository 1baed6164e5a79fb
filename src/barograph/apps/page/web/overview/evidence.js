// The curves that the first findings stand on, in the banner of the Overview.
import { Plot } from "../charts/plot.js";
import { findingKey, markOf } from "../data/marks.js";
import { seriesFromJson } from "../data/series.js";
import { localized } from "../text/language.js";
import { el } from "../ui/dom.js";
import { findingLink } from "./links.js";

// Each curve is a link to its finding. They stay while the banner is drawn anew.
export class EvidenceRow {
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
