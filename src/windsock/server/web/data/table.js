// The rows of the table of runs: fetched in one request, then only what changed.
import { fetchJson } from "./api.js";

export class TableData {
  constructor() {
    this.rows = new Map(); // by key
    this.keys = [];
    this.groups = [];
    this.fields = [];
    this.places = {};
    this.pending = 0; // runs that are not read yet
    this.all = 0;
    this.hidden = 0;
    this.newest = null;
    this.question = "";
    this.cursor = null;
    this.turn = 0;
  }

  // Fetch what the question asks for, {column, where, group, hidden}; return whether this answer is the newest.
  async fetch(question, shown) {
    const mine = ++this.turn;
    const asked = JSON.stringify(question);
    const since = asked === this.question ? this.cursor : null;
    const response = await fetchJson("/api/table", { ...question, shown, since });
    if (mine !== this.turn) return false;
    if (response.reset || since === null) this.rows = new Map();
    for (const row of response.rows) this.rows.set(row[0], row);
    this.question = asked;
    this.cursor = response.cursor;
    for (const name of ["keys", "groups", "fields", "pending", "all", "hidden", "newest"]) this[name] = response[name];
    this.places = Object.fromEntries(this.fields.map((name, i) => [name, i]));
    if (this.keys.every((key) => this.rows.has(key))) return true;
    this.cursor = null; // a run that fulfils the conditions now has not changed since
    return this.fetch(question, shown);
  }

  // A field of a run, such as its name; a column by its place among the columns.
  field(key, name) {
    return this.rows.get(key)?.[this.places[name]];
  }

  column(key, place) {
    return this.rows.get(key)?.[this.fields.indexOf("finding") + 1 + place];
  }

  // A run as the menu of the list knows it.
  run(key) {
    const of = (name) => this.field(key, name);
    return Object.fromEntries(
      ["key", "name", "pinned", "hidden", "note", "tags", "status"].map((name) => [name, of(name)]),
    );
  }
}
