// The series of many charts: fetched together, and followed by their cursors.
import { fetchSeries } from "../data/api.js";
import { runs } from "../data/runs.js";
import { appendSeries, hasNothingNew } from "../data/series.js";
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
    this.entries = new Map(); // by run and name: {window, ended, change, series, older}
    this.changes = new Map(); // by run: the number of its last change
    this.allChanged = 0; // the number of the last change of an unknown run
    this.change = 0;
    this.cards = [];
    this.requested = new Set();
    this.isFetching = false;
    this.fetchSoon = debounce(15, () => this.fetchInTurn());
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

  // Fetch what is new of some runs, or of all, for the cards in view; `redraw` them before that where their look changed.
  refresh(redraw = false, changed = null) {
    this.change += 1;
    if (changed) for (const run of changed) this.changes.set(run, this.change);
    else this.allChanged = this.change;
    for (const card of this.cards.filter((one) => one.visible)) {
      if (redraw) card.draw();
      this.requested.add(card);
    }
    this.fetchInTurn();
  }

  // The number of the last change of a run.
  changeOf(run) {
    return Math.max(this.allChanged, this.changes.get(run) ?? 0);
  }

  // One fetch after the other: two at once would ask for the same.
  async fetchInTurn() {
    if (this.isFetching) return;
    this.isFetching = true;
    try {
      await this.fetchRequested();
    } finally {
      this.isFetching = false;
    }
    if (this.requested.size) this.fetchSoon();
  }

  async fetchRequested() {
    const cards = [...this.requested].filter((card) => card.visible);
    this.requested.clear();
    const window = this.window();
    const options = { ...window, points: Math.max(window.points, ...cards.map((card) => card.points ?? 0)) };
    const wanted = new Map(cards.flatMap((card) => card.requests()).map((one) => [keyOf(one), one]));
    const missing = [...wanted.values()].filter((one) => !this.isCurrent(one, JSON.stringify(options)));
    const news = new Set();
    try {
      for (let i = 0; i < missing.length; i += MAX_SERIES) {
        for (const key of await this.fetchBatch(missing.slice(i, i + MAX_SERIES), options)) news.add(key);
      }
    } catch (problem) {
      this.showProblem(problem instanceof TypeError ? t("lost") : problem.message);
      return;
    }
    this.problem = null;
    for (const card of cards) {
      if (card.requests().some((one) => news.has(keyOf(one)))) scheduleInFrame(card.drawInFrame);
    }
  }

  // Show a problem once, not again with every step.
  showProblem(message) {
    if (message !== this.problem) showMessage(message);
    this.problem = message;
  }

  // A run that has not changed since the last request, or had already ended then, has nothing new in the same window.
  isCurrent(one, window) {
    const entry = this.entries.get(keyOf(one));
    if (entry?.window !== window) return false;
    return entry.change >= this.changeOf(one.run) || (entry.ended && hasEnded(one.run));
  }

  // Fetch series; return the keys of those that have changed.
  async fetchBatch(batch, options) {
    const window = JSON.stringify(options);
    // Read before the request: a run that ends meanwhile may still get its last step.
    const ended = new Set(batch.filter((one) => hasEnded(one.run)).map(keyOf));
    const change = this.change;
    const wanted = batch.map((one) => {
      const entry = this.entries.get(keyOf(one));
      const follows = entry?.window === window && options.to === null;
      return { ...one, since: follows ? (entry.series.cursor ?? null) : null };
    });
    const found = await fetchSeries(wanted, { ...options, branches: true });
    const now = this.window();
    if (["x", "from", "to"].some((name) => now[name] !== options[name])) return []; // zoomed meanwhile
    const news = found.filter((series) => this.add(series, { window, change, ended: ended.has(keyOf(series)) }));
    return news.map(keyOf);
  }

  // Add a series of a response; return whether it has changed. Superseded attempts follow the series that they belong to.
  add(series, request) {
    const entry = this.entries.get(keyOf(series));
    if (series.branch) {
      entry?.older.push(series);
      return true;
    }
    if (series.keep && entry?.window !== request.window) return false;
    const isSame = entry?.window === request.window && hasNothingNew(entry.series, series);
    this.entries.set(keyOf(series), {
      ...request,
      series: isSame ? entry.series : appendSeries(entry?.series, series),
      older: series.keep ? entry.older : [],
    });
    return !isSame;
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
