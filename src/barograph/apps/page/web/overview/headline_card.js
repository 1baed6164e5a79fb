// The card of a headline value: its last value and its curve.
import { Plot } from "../charts/plot.js";
import { valueTexts } from "../charts/values.js";
import { seriesFromJson } from "../data/series.js";
import { setState } from "../data/url_state.js";
import { formatNumber, formatShort, toNumber } from "../text/format.js";
import { localized, t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { elementOf, html, nothing } from "../ui/html.js";
import { addTooltip, metricTooltip } from "../ui/tooltip.js";
import { chartLink, troubleLink } from "./links.js";

export class HeadlineCard {
  constructor(headline, data, context) {
    this.context = context;
    const metric = data.metrics[headline.metric];
    const hasBand = headline.curves.max && context.chosen.length < 2; // of several runs only lines are drawn
    const unit = [metric?.sign, metric?.estimator, hasBand && "min–max"].filter(Boolean).join(" · ");
    const title = el("h3", { "aria-level": 2 }, chartLink(headline.name, localized(headline.title)));
    addTooltip(title, () => metricTooltip(metric, [headline.name, ...(headline.others ?? [])], headline.note));
    this.value = el("span", { class: "large" });
    this.change = el("span", { class: "quiet" });
    this.point = el("span", { class: "point" });
    this.trouble = el("span", { class: "trouble" });
    this.ends = el("div", { class: "ends quiet" });
    const area = el("div", { class: "vital-plot" });
    this.node = elementOf(html`<article class="card vital" data-key=${headline.key} data-name=${headline.name}>
      <header>
        ${this.trouble}${title}${this.point}
        <span class="quiet unit" title=${localized(metric?.unit) ?? nothing}>${unit}</span>
      </header>
      <div class="now">${chartLink(headline.name, this.value)}${this.change}</div>
      ${area}${this.ends}
    </article>`);
    this.plot = new Plot(area, {
      title: localized(headline.title),
      small: true,
      band: headline.band,
      oncursor: (cursor) => this.showPoint(cursor),
      onzoom: (range) => range && setState({ tab: "charts", x: "", from: range[0], to: range[1] }),
    });
  }

  // Show the value at the cursor, which is null when it leaves.
  showPoint(cursor) {
    const own = cursor?.values.filter((one) => one.line.run === this.context.run) ?? [];
    const step = own[0]?.x ?? Math.round(cursor?.x);
    this.point.textContent = cursor ? `${t("at_step", { n: step })}: ${valueTexts(own)[0]?.text ?? ""}` : "";
    this.node.classList.toggle("pointed", Boolean(cursor));
  }

  // Show the value now, the finding about it, and the same value of other runs.
  update(now, found, others) {
    const { run, name, colour } = this.context;
    const curve = (statistic) => (now.curves[statistic] ? seriesFromJson(now.curves[statistic]) : null);
    const main = mainCurve(now);
    const line = { run, label: name, colour, main, max: curve("max"), min: curve("min") };
    this.trouble.replaceChildren(found ? troubleLink(found) : "");
    this.showNumbers(now, main);
    this.showEnds([line, ...others].map((one) => one.main).filter((one) => one.x.length));
    this.plot.setLines([...others, line]);
  }

  showNumbers(now, main) {
    this.value.textContent = brief(now.last);
    this.value.classList.toggle("bad", !Number.isFinite(toNumber(now.last)));
    const bad = main.nonfinite.reduce((sum, n) => sum + n, 0);
    const first = (now.first ?? null) === null ? [] : [`${t("from")} ${brief(now.first)}`];
    const facts = [...usualRange(now), ...first].join(" · ");
    this.change.title = facts;
    this.change.replaceChildren(bad ? el("span", { class: "bad", text: `× ${t("nonfinite", { n: bad })}` }) : facts);
  }

  // The first and the last step of the curves.
  showEnds(drawn) {
    const first = drawn.length ? Math.min(...drawn.map((one) => one.x[0])) : "";
    const last = drawn.length ? Math.max(...drawn.map((one) => one.x_end.at(-1))) : "";
    this.ends.replaceChildren(el("span", { text: first }), el("span", { text: t("at_step", { n: last }) }));
  }

  destroy() {
    this.plot.destroy();
  }
}

export function mainCurve({ curves }) {
  return seriesFromJson(curves.mean ?? curves.line ?? Object.values(curves)[0]);
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
