// The series of many charts: fetched together, and followed by their cursors.
import { fetchSeries } from "../data/api.js";
import { runs } from "../data/runs.js";
import { appendSeries } from "../data/series.js";
import { getState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { debounce, scheduleInFrame } from "../ui/scheduling.js";
import { showMessage } from "../ui/toast.js";
import { offerCards } from "./enlarged.js";
import { observeCards } from "./visibility.js";
import { zoomRange } from "./zoom.js";

const MAX_SERIES = 300; // in one request
const CARD_POINTS = 420;

function keyOf({ run, name }) {
  return `${run}\n${name}`;
}

function hasEnded(run) {
  return runs.get(run)?.status === "finished";
}

export class SeriesStore {
  constructor() {
    this.entries = new Map(); // by run and name: {window, ended, series, older}
    this.cards = [];
    this.requested = new Set();
    this.fetchSoon = debounce(15, () => this.fetchRequested());
  }

  // The part of the x axis to fetch, and its resolution.
  window() {
    const range = zoomRange();
    const x = getState("x");
    if (!range) return { x, from: null, to: null, points: CARD_POINTS };
    const [from, to] = x === "step" ? [Math.floor(range[0]), Math.ceil(range[1])] : range;
    return { x, from, to, points: CARD_POINTS };
  }

  request(card) {
    this.requested.add(card);
    this.fetchSoon();
  }

  // Replace the cards whose series the store follows.
  setCards(cards) {
    this.observer?.disconnect();
    for (const card of this.cards) card.leave();
    this.cards = cards;
    this.observer = observeCards(cards);
    offerCards(cards);
  }

  // Fetch what is new for the cards in view; `redraw` them before that where their look changed.
  refresh(redraw = false) {
    for (const card of this.cards.filter((one) => one.visible)) {
      if (redraw) card.draw();
      this.request(card);
    }
  }

  async fetchRequested() {
    const cards = [...this.requested].filter((card) => card.visible);
    this.requested.clear();
    const window = this.window();
    const options = { ...window, points: Math.max(window.points, ...cards.map((card) => card.points ?? 0)) };
    const wanted = new Map(cards.flatMap((card) => card.requests()).map((one) => [keyOf(one), one]));
    const missing = [...wanted.values()].filter((one) => !this.isComplete(one, JSON.stringify(options)));
    try {
      for (let i = 0; i < missing.length; i += MAX_SERIES) {
        await this.fetchBatch(missing.slice(i, i + MAX_SERIES), options);
      }
    } catch (problem) {
      this.showProblem(problem instanceof TypeError ? t("lost") : problem.message);
      return;
    }
    this.problem = null;
    for (const card of cards) scheduleInFrame(() => card.draw());
  }

  // Show a problem once, not again with every step.
  showProblem(message) {
    if (message !== this.problem) showMessage(message);
    this.problem = message;
  }

  // A run that had already ended at the last request has nothing new in the same window.
  isComplete(one, window) {
    const entry = this.entries.get(keyOf(one));
    return entry?.window === window && entry.ended && hasEnded(one.run);
  }

  async fetchBatch(batch, options) {
    const window = JSON.stringify(options);
    // Read before the request: a run that ends meanwhile may still get its last step.
    const ended = new Set(batch.filter((one) => hasEnded(one.run)).map(keyOf));
    const wanted = batch.map((one) => {
      const entry = this.entries.get(keyOf(one));
      const follows = entry?.window === window && options.to === null;
      return { ...one, since: follows ? (entry.series.cursor ?? null) : null };
    });
    const found = await fetchSeries(wanted, { ...options, branches: true });
    const now = this.window();
    if (["x", "from", "to"].some((name) => now[name] !== options[name])) return; // zoomed meanwhile
    for (const series of found) this.add(series, window, ended.has(keyOf(series)));
  }

  // Add a series of a response. Superseded attempts follow the series that they belong to.
  add(series, window, ended) {
    const entry = this.entries.get(keyOf(series));
    if (series.branch) entry?.older.push(series);
    else if (!series.keep || entry?.window === window) {
      this.entries.set(keyOf(series), {
        window,
        ended,
        series: appendSeries(entry?.series, series),
        older: series.keep ? entry.older : [],
      });
    }
  }

  // The superseded attempts of a series.
  older(run, name) {
    return this.entries.get(keyOf({ run, name }))?.older ?? [];
  }

  series(run, name) {
    const series = this.entries.get(keyOf({ run, name }))?.series;
    return series?.found ? series : null;
  }
}
