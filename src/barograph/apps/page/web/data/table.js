// The rows of the table of runs: fetched in one request, then only what changed.
import { fetchJson, prefetch, withQuery } from "./api.js";
import { getList, getState } from "./url_state.js";

const PATH = "/api/table";
const BASE = 11; // fields of every row, before the columns

// What the URL asks for.
function question() {
  return {
    column: getList("cols"),
    where: getState("only"),
    group: getList("pool").filter((one) => one !== "none"),
    hidden: Number(getState("hidden") === "1"),
    choices: 1,
  };
}

// Request the first rows before the page knows that it shows them.
export function prefetchTable() {
  prefetch(withQuery(PATH, question()));
}

export class TableData {
  constructor() {
    this.rows = new Map(); // by key
    this.keys = [];
    this.groups = [];
    this.fields = [];
    this.places = {};
    this.choices = { facts: [], headlines: [], config: [], varying: [], metrics: [] };
    this.pending = 0; // runs that are not read yet
    this.all = 0;
    this.hidden = 0;
    this.asked = null; // the columns of the cursor
    this.cursor = null;
    this.turn = 0;
  }

  // Fetch what the URL asks for; return whether this answer is the newest. The runs in sight are judged first.
  async fetch(shown = []) {
    const mine = ++this.turn;
    const asked = getState("cols");
    const since = asked === this.asked ? this.cursor : null;
    const response = await fetchJson(PATH, { ...question(), shown, since });
    if (mine !== this.turn) return false;
    // Rows are the same for all conditions: those that are known need not come again.
    if (response.reset || response.fields.join() !== this.fields.join()) this.rows = new Map();
    for (const row of response.rows) this.rows.set(row[0], row);
    for (const name of ["keys", "groups", "fields", "choices", "pending", "all", "hidden", "cursor"])
      this[name] = response[name];
    this.asked = asked;
    this.places = Object.fromEntries(this.fields.slice(0, BASE).map((name, i) => [name, i]));
    if (this.keys.every((key) => this.rows.has(key))) return true;
    this.cursor = null; // a run that fulfils the conditions now has not changed since
    return this.fetch(shown);
  }

  get columns() {
    return this.fields.slice(BASE);
  }

  // A field of a run, such as its name.
  field(key, name) {
    return this.rows.get(key)?.[this.places[name]];
  }

  // The value of a run in the column at a place.
  column(key, place) {
    return this.rows.get(key)?.[BASE + place];
  }

  // A run as the menu of the list knows it.
  run(key) {
    const of = (name) => this.field(key, name);
    const names = ["key", "name", "pinned", "hidden", "note", "tags", "status"];
    return Object.fromEntries(names.map((name) => [name, of(name)]));
  }
}
