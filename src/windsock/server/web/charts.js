// All metrics, grouped by family. A chart is alive only while it is in view, and what is in view is asked for at once.
import { ask, askSeries, joined, runPath } from "./api.js";
import { download, el, hue, icon, ICONS, once, soon } from "./dom.js";
import { empty, expression, filterBox, select, swatch, valueText } from "./parts.js";
import { drawnText, Plot, pointsFor } from "./plot.js";
import { chosenRuns, colourOf, runs, tell } from "./runs.js";
import { get, list, packed, set } from "./state.js";
import { aboutMetric, closeTip, explainable } from "./tip.js";
import { say, t } from "./words.js";

const CHUNK = 300; // series in one request
const WIDE = 420;
const FIRST = ["reward", "policy", "value", "tokens", "ppo"];

function zoomed() {
  const range = [get("from"), get("to")];
  return range[0] === "" || range[1] === "" ? null : range.map(Number);
}

function setZoom(range) {
  set(range ? { from: tidyEnd(range[0]), to: tidyEnd(range[1]) } : { from: "", to: "" });
}

function tidyEnd(value) {
  return get("x") === "step" ? Math.round(value * 10) / 10 : value;
}

// The series of many charts: fetched together, followed by their cursors.
export class Store {
  constructor() {
    this.held = new Map();
    this.cards = [];
    this.waiting = new Set();
    this.flush = once(15, () => this.fetchAll());
  }

  window() {
    const range = zoomed();
    const x = get("x");
    if (!range) return { x, from: null, to: null, points: WIDE };
    const [from, to] = x === "step" ? [Math.floor(range[0]), Math.ceil(range[1])] : range;
    return { x, from, to, points: WIDE };
  }

  want(chart) {
    this.waiting.add(chart);
    this.flush();
  }

  // The cards that are followed from now on, in place of those before.
  show(cards) {
    closeLarge();
    this.seen?.disconnect();
    this.cards.forEach((card) => card.leave());
    this.cards = cards;
    this.seen = watcher(cards);
  }

  // Asks for what is new on the cards in view; those whose look changed are drawn at once as well.
  refresh(changed = false) {
    for (const card of this.cards.filter((one) => one.seen)) {
      if (changed) card.draw();
      this.want(card);
    }
  }

  async fetchAll() {
    const charts = [...this.waiting].filter((chart) => chart.seen);
    this.waiting.clear();
    const window = this.window();
    const points = Math.max(window.points, ...charts.map((chart) => chart.points ?? 0));
    const options = { ...window, points };
    const sign = JSON.stringify(options);
    const wanted = new Map();
    for (const chart of charts) for (const one of chart.wanted()) wanted.set(`${one.run}\n${one.name}`, one);
    const all = [...wanted.entries()].filter(([key, one]) => !this.isHeld(key, one, sign));
    const parts = [];
    for (let i = 0; i < all.length; i += CHUNK) parts.push(all.slice(i, i + CHUNK));
    try {
      for (const part of parts) await this.fetchPart(part, options, sign);
    } catch (problem) {
      const said = problem instanceof TypeError ? t("lost") : problem.message;
      if (said !== this.said) tell(said); // once, not with every step
      return void (this.said = said);
    }
    this.said = null;
    for (const chart of charts) soon(() => chart.draw());
  }

  // A run that had ended when it was asked says nothing new: what is held of it for the same window is all there is.
  isHeld(key, one, sign) {
    const held = this.held.get(key);
    return held?.sign === sign && held.ended && hasEnded(one.run);
  }

  async fetchPart(part, options, sign) {
    const ended = new Set(part.filter(([, one]) => hasEnded(one.run)).map(([key]) => key));
    const asked = part.map(([key, one]) => {
      const old = this.held.get(key);
      const since = old?.sign === sign && options.to === null ? (old.series.cursor ?? null) : null;
      return { ...one, since };
    });
    const found = await askSeries(asked, { ...options, branches: true });
    const now = this.window();
    if (["x", "from", "to"].some((name) => now[name] !== options[name])) return; // zoomed meanwhile
    for (const series of found) {
      // the answer has its own order: run by run
      const key = `${series.run}\n${series.name}`;
      const held = this.held.get(key);
      if (series.branch) held?.older.push(series);
      else if (!series.keep || held?.sign === sign)
        this.held.set(key, {
          sign,
          ended: ended.has(key),
          series: joined(held?.series, series),
          older: series.keep ? held.older : [],
        });
    }
  }

  older(run, name) {
    return this.held.get(`${run}\n${name}`)?.older ?? [];
  }

  of(run, name) {
    const series = this.held.get(`${run}\n${name}`)?.series;
    return series?.found ? series : null;
  }
}

function hasEnded(run) {
  return runs.get(run)?.status === "finished";
}

// One chart in its card. `lines` names what is drawn of each run: [{run, mean, max, min, factor}].
export class ChartCard {
  constructor(store, facts) {
    Object.assign(this, { store, facts, seen: false, plot: null, points: 0 });
    this.node = el("article", { class: "card chart", "data-name": facts.key });
    this.node.chart = this;
  }

  build() {
    if (this.built) return;
    this.built = true;
    const { title, unit, names, metric, note } = this.facts;
    const heading = explainable(el("h3", { text: title }), () => aboutMetric(metric, names, note));
    this.unit = el("span", { class: "quiet unit", text: unit });
    this.sub = el("div", { class: "sub" });
    this.area = el("div", { class: "plot" });
    const tool = (path, label, work) =>
      el("button", { class: "ghost", title: label, "aria-label": `${label}: ${title}`, onclick: work }, icon(path));
    const tools = el(
      "div",
      { class: "tools" },
      this.facts.pinnable ? tool(ICONS.pin, t("pin"), () => this.pin()) : null,
      tool(ICONS.grow, `${t("maximise")} (f)`, () => enlarge(this.plot)),
      tool(ICONS.save, t("png"), async () => download(`${this.facts.key}.png`, await this.plot.picture(title))),
      tool(ICONS.table, t("csv"), () => download(`${this.facts.key}.csv`, this.plot.table())),
    );
    this.node.append(el("header", {}, el("div", { class: "names" }, heading, this.unit), this.sub), this.area, tools);
  }

  pin() {
    const pins = list("pins");
    const { key } = this.facts;
    set({ pins: packed(pins.includes(key) ? pins.filter((one) => one !== key) : [...pins, key]) });
  }

  wanted() {
    return this.facts.lines.flatMap((line) =>
      ["mean", "max", "min"]
        .filter((what) => line[what])
        .map((what) => ({ run: line.run, name: line[what], factor: line.factor ?? 1 })),
    );
  }

  enter() {
    this.seen = true;
    this.build();
    if (!this.plot) {
      this.plot = new Plot(this.area, {
        x: get("x"),
        band: this.facts.metric?.band,
        onzoom: setZoom,
        onpoint: (at) => this.point(at),
      });
      this.plot.card = this;
    }
    this.store.want(this);
    this.draw();
  }

  leave() {
    this.seen = this.near = false;
    this.plot?.destroy();
    this.plot = null;
  }

  drawn() {
    return this.facts.lines
      .map((line) => ({
        run: line.run,
        label: runs.get(line.run)?.name ?? line.run,
        colour: colourOf(line.run),
        main: this.store.of(line.run, line.mean),
        max: line.max ? this.store.of(line.run, line.max) : null,
        min: line.min ? this.store.of(line.run, line.min) : null,
        older: this.store.older(line.run, line.mean),
      }))
      .filter((line) => line.main);
  }

  draw() {
    if (!this.plot) return;
    const lines = this.drawn();
    if (!lines.length) return;
    this.plot.range = zoomed();
    this.plot.set(lines, { smooth: get("smooth"), log: get("log") === "1", x: get("x") });
    if (!this.pointed) this.rest(lines);
  }

  rest(lines) {
    const cut = get("log") === "1" && lines.some((line) => line.main.min.some((v) => v <= 0));
    const many = lines.length > 1;
    const values = lines.map((line) => value(line, valueText([lastOf(line)])[0].text, many));
    this.sub.replaceChildren(...values, el("code", { text: cut ? t("log_cut") : this.facts.key }));
    this.area.title = lines.map(drawnText)[0];
  }

  point(at) {
    this.pointed = Boolean(at);
    if (!at) return this.rest(this.plot.lines);
    const many = at.values.length > 1;
    const x = at.values.find((one) => one.x !== undefined)?.x ?? at.x;
    const said = el("span", { text: get("x") === "step" ? `${t("step")} ${x}` : this.plot.saidX(x) });
    this.sub.replaceChildren(said, ...valueText(at.values).map((one) => value(one.line, one.text, many)));
  }
}

function lastOf(line) {
  const i = line.main.x.length - 1;
  return { line, value: i < 0 ? null : line.main.last[i] };
}

function value(line, text, many) {
  const node = el("span", { class: "val", text, style: { "--c": hue(line.colour) } });
  if (many) node.title = line.label;
  return node;
}

// What only flies past is not drawn: after the first look, a chart has to stay for a moment.
function watcher(cards) {
  let wait = 0;
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const { chart } = entry.target;
        chart.near = entry.isIntersecting;
        if (chart.near) setTimeout(() => chart.near && soon(() => chart.near && chart.enter()), wait);
        else chart.leave();
      }
      wait = 70;
    },
    { rootMargin: "150px 0px" },
  );
  for (const card of cards) seen.observe(card.node);
  return seen;
}

let large = null;

export function enlarge(plot) {
  const card = plot?.card;
  if (!card || large) return closeLarge();
  closeTip();
  large = { card, hole: el("div", { class: "card chart" }) };
  card.node.replaceWith(large.hole);
  card.node.classList.add("large-chart");
  document.body.append(card.node);
  card.points = pointsFor(innerWidth);
  card.enter();
  setTimeout(() => addEventListener("pointerdown", outside), 0);
}

function outside(event) {
  if (large && !large.card.node.contains(event.target)) closeLarge();
}

export function closeLarge() {
  if (!large) return;
  removeEventListener("pointerdown", outside);
  large.card.node.classList.remove("large-chart");
  large.hole.replaceWith(large.card.node);
  large.card.points = 0;
  if (!large.card.node.isConnected) large.card.leave();
  large = null;
}

export function axisBar(axes, extra = []) {
  const axis = select(
    t("x_axis"),
    axes.map((one) => [one, t(`x_${one}`)]),
    get("x"),
    (x) => set({ x, from: "", to: "" }),
  );
  const amount = el("output", { text: get("smooth") });
  const slide = el("input", {
    type: "range",
    min: 0,
    max: 0.99,
    step: 0.01,
    value: get("smooth"),
    "aria-label": t("smoothing"),
  });
  slide.addEventListener("input", () => {
    amount.textContent = slide.value;
    set({ smooth: slide.value }, true);
  });
  const log = el("button", {
    text: t("log"),
    "aria-pressed": get("log") === "1",
    onclick: () => set({ log: get("log") === "1" ? "" : "1" }),
  });
  const reset = el("button", { text: `${t("reset_zoom")} (r)`, onclick: () => setZoom(null) });
  const sync = () => {
    reset.hidden = !zoomed();
    log.setAttribute("aria-pressed", String(get("log") === "1"));
    slide.value = get("smooth");
    amount.textContent = get("smooth");
    axis.querySelector("select").value = get("x");
  };
  sync();
  return {
    nodes: [
      ...extra,
      axis,
      el("label", { class: "field" }, el("span", { text: t("smoothing") }), slide, amount),
      log,
      reset,
    ],
    sync,
  };
}

export function chartsView(host, context) {
  const store = new Store();
  const families = el("nav", { class: "families", "aria-label": t("families") });
  const body = el("div");
  const counted = el("span", { class: "quiet" });
  const filter = filterBox(t("filter"));
  let bar = null;
  let data = null;

  function build() {
    const fits = expression(filter);
    const pins = list("pins");
    const shown = data.charts.filter(
      (chart) => Object.values(chart.lines).some(fits) || fits(say(data.metrics[chart.metric]?.title)),
    );
    const card = (chart) => new ChartCard(store, facts(chart, data));
    const sections = [];
    const cards = [];
    const section = (key, title, intro, charts) => {
      if (!charts.length) return;
      const made = charts.map(card);
      cards.push(...made);
      const rows = Math.ceil(made.length / Math.max(1, Math.floor((host.clientWidth + 12) / 342)));
      const style = { "contain-intrinsic-size": `auto ${60 + 248 * rows}px` }; // as tall as it will be once it is in view
      const part = el(
        "section",
        { class: "family", style },
        el("h2", { text: title }),
        intro ? el("p", { class: "quiet", text: intro }) : null,
        el(
          "div",
          { class: "charts-grid" },
          made.map((one) => one.node),
        ),
      );
      sections.push([key, title, part]);
    };
    section("pins", t("pinned"), "", pins.map((key) => data.charts.find((chart) => chart.key === key)).filter(Boolean));
    for (const family of ordered(data.families))
      section(
        family.key,
        say(family.title),
        say(family.intro),
        shown.filter((chart) => chart.family === family.key && !pins.includes(chart.key)),
      );
    if (data.histograms.length && !get("filter"))
      sections.push(["histograms", t("histograms"), histogramSection(data.histograms, context)]);
    families.replaceChildren(
      ...sections.map(([, title, part]) =>
        el("a", { href: "#", text: title, onclick: (event) => (event.preventDefault(), part.scrollIntoView()) }),
      ),
    );
    body.replaceChildren(
      ...(sections.length
        ? sections.map(([, , part]) => part)
        : [
            empty(
              data.charts.length ? t("nothing_found") : t("no_metrics"),
              data.charts.length ? "" : t("no_metrics_do"),
            ),
          ]),
    );
    counted.textContent = t("shown", { n: shown.length, m: data.charts.length });
    store.show(cards);
  }

  async function read() {
    try {
      data = await ask(runPath(context.run, "names"));
    } catch (problem) {
      return context.fail(problem);
    }
    if (!host.isConnected) return;
    if (!bar) {
      bar = axisBar(data.axes, [filter]);
      const legend =
        context.chosen.length > 1
          ? el(
              "div",
              { class: "legend" },
              context.chosen.map((key) => swatch(hue(colourOf(key)), runs.get(key).name)),
            )
          : null;
      host.append(el("div", { class: "bar" }, bar.nodes, counted), legend ?? "", families, body);
    }
    build();
  }

  const rebuild = once(150, build);
  read();
  return {
    update(news) {
      if (data && news.names !== undefined && news.names !== data.names) read();
      else store.refresh();
    },
    changed(names) {
      if (!data) return;
      bar.sync();
      if (filter.value !== get("filter")) filter.value = get("filter");
      if (names.includes("filter")) rebuild();
      else if (names.includes("pins")) build();
      else if (names.some((name) => ["from", "to", "x"].includes(name))) store.refresh(true);
      else store.cards.forEach((card) => card.draw());
    },
    destroy: () => store.show([]),
  };
}

// What people look at first comes first; the rest stays as the catalogue orders it.
export function ordered(all, field = "key") {
  const place = (one) => (FIRST.includes(one[field]) ? FIRST.indexOf(one[field]) : FIRST.length);
  return [...all].sort((a, b) => place(a) - place(b));
}

function facts(chart, data) {
  const metric = data.metrics[chart.metric];
  const here = Object.values(chart.here ?? {}).join(" · ");
  const triple = chart.lines.max && chart.lines.min;
  const title = metric ? [say(metric.title), here].filter(Boolean).join(" · ") : chart.key;
  const unit = [metric?.sign, triple ? "min–max" : ""].filter(Boolean).join(" · ");
  const line = (run) => ({
    run,
    mean: chart.main,
    max: triple ? chart.lines.max : null,
    min: triple ? chart.lines.min : null,
  });
  return {
    key: chart.key,
    title,
    unit,
    metric,
    note: chart.note,
    pinnable: true,
    names: Object.values(chart.lines),
    lines: chosenRuns().map(line),
  };
}

function histogramSection(names, context) {
  const grid = el("div", { class: "charts-grid" });
  for (const name of names) {
    const area = el("canvas", { class: "histogram" });
    const told = el("span", { class: "quiet unit" });
    const card = el(
      "article",
      { class: "card chart", "data-name": name },
      el("header", { class: "names" }, el("h3", { text: name }), told),
      area,
    );
    grid.append(card);
    new IntersectionObserver(async (entries, self) => {
      if (!entries[0].isIntersecting) return;
      self.disconnect();
      const found = await ask(runPath(context.run, "histograms"), { name, points: 40 });
      drawHistograms(area, found.histograms);
      told.textContent = `${found.total} · ${t("step")} ${found.histograms[0].step}–${found.histograms.at(-1).step}`;
    }).observe(card);
  }
  return el("section", { class: "family" }, el("h2", { text: t("histograms") }), grid);
}

// Steps from left to right, values upwards, darker where more values lie.
function drawHistograms(canvas, all) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = devicePixelRatio;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  const low = Math.min(...all.map((one) => one.edges[0]));
  const high = Math.max(...all.map((one) => one.edges[one.edges.length - 1]));
  const y = (v) => height - 4 - ((v - low) / (high - low || 1)) * (height - 8);
  const wide = width / all.length;
  ctx.fillStyle = hue(0);
  all.forEach((one, i) => {
    const most = Math.max(...one.counts.map((count, j) => count / (one.edges[j + 1] - one.edges[j] || 1)));
    one.counts.forEach((count, j) => {
      ctx.globalAlpha = Math.min(1, count / (one.edges[j + 1] - one.edges[j] || 1) / (most || 1));
      ctx.fillRect(
        i * wide,
        y(one.edges[j + 1]),
        Math.max(1, wide - 0.5),
        Math.max(1, y(one.edges[j]) - y(one.edges[j + 1])),
      );
    });
  });
}
