// The dialog in which the columns of the table are chosen and ordered.
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { html, render, repeat } from "../ui/html.js";
import { columnTitle } from "./columns.js";

const MAX_SHOWN = 200; // that match
const STATISTICS = ["last", "best", "max", "min", "mean", "at"];

// `change(columns)` is called with every change; null restores the default.
export function chooseColumns(columns, choices, change) {
  const chooser = new Chooser(columns, choices, change);
  document.body.append(chooser.dialog);
  chooser.draw();
  chooser.dialog.showModal();
  chooser.dialog.querySelector("input").focus();
}

class Chooser {
  constructor(columns, choices, change) {
    this.columns = columns; // those of before
    this.chosen = columns;
    this.choices = choices;
    this.change = change;
    this.what = "last"; // the statistic of a metric's column, and its number
    this.number = 10;
    this.words = [];
    this.dialog = el("dialog", { class: "chooser", onclose: () => this.dialog.remove() });
  }

  set(next) {
    this.chosen = next ?? this.columns;
    this.change(next);
    if (next === null) this.dialog.close();
    else this.draw();
  }

  move(key, by) {
    const place = this.chosen.indexOf(key);
    const others = this.chosen.filter((one) => one !== key);
    others.splice(Math.max(0, place + by), 0, key);
    this.set(others);
  }

  // Take over a field, and draw what follows from it.
  take(fields) {
    Object.assign(this, fields);
    this.draw();
  }

  draw() {
    const { chosen, words } = this;
    const texts = (key) => `${key} ${columnTitle(key, this.choices)}`.toLowerCase();
    const found = this.candidates().filter(
      (key) => !chosen.includes(key) && words.every((word) => texts(key).includes(word)),
    );
    render(
      html`<h2>${t("columns")}</h2>
        <div class="chooser-search">${this.fields()}</div>
        <div class="chooser-lists">
          <section><h3>${t("columns_shown")}</h3>
            <ul class="chosen">${repeat(chosen, String, (key, place) => this.chosenItem(key, place))}</ul></section>
          <section><h3>${t("columns_more")}</h3>
            <ul class="found">${found.slice(0, MAX_SHOWN).map((key) => this.foundItem(key))}</ul></section>
        </div>
        <form method="dialog">
          <button type="button" class="ghost" @click=${() => this.set(null)}>${t("columns_reset")}</button>
          <button>${t("close")}</button>
        </form>`,
      this.dialog,
    );
  }

  fields() {
    const search = ({ target }) => this.take({ words: target.value.toLowerCase().split(/\s+/).filter(Boolean) });
    const count = ({ target }) => this.take({ number: Math.max(1, Math.round(Number(target.value) || 1)) });
    return html`<input type="search" placeholder=${t("columns_find")} aria-label=${t("columns_find")} @input=${search}>
      <label class="field"><span>${t("column_value")}</span>
        <select aria-label=${t("column_value")} @change=${({ target }) => this.take({ what: target.value })}>
          ${STATISTICS.map((key) => html`<option value=${key}>${t(`stat_${key}`)}</option>`)}
        </select></label>
      <input type="number" class="short" value="10" min="1" aria-label="n" ?hidden=${!this.isCounted()} @input=${count}>`;
  }

  isCounted() {
    return ["mean", "at"].includes(this.what);
  }

  // All columns that can be added: facts, headline values and metrics as the chosen number of them, config keys.
  candidates() {
    const { choices, what, number } = this;
    const prefix = this.isCounted() ? `${what}${number}` : what;
    const facts = choices.facts.filter((key) => !["name", "key", "pinned"].includes(key));
    const values = [...choices.headlines.map((one) => one.key), ...choices.metrics].map((name) => `${prefix}:${name}`);
    const config = choices.config.map((key) => (choices.facts.includes(key) ? `config:${key}` : key));
    const varying = config.filter((key) => choices.varying.includes(key.replace(/^config:/, "")));
    return [...new Set([...varying, ...facts, ...values.slice(0, choices.headlines.length), ...config, ...values])];
  }

  chosenItem(key, place) {
    const { chosen } = this;
    const title = columnTitle(key, this.choices);
    const button = (text, label, work, isOff) =>
      html`<button class="ghost" title=${label} aria-label="${label}: ${title}" ?disabled=${isOff} @click=${work}
        >${text}</button>`;
    return html`<li>
      <span class="grow">${title}</span>
      ${button("↑", t("column_earlier"), () => this.move(key, -1), place === 0)}
      ${button("↓", t("column_later"), () => this.move(key, 1), place === chosen.length - 1)}
      ${button("×", t("column_remove"), () => this.set(chosen.filter((one) => one !== key)), false)}
    </li>`;
  }

  foundItem(key) {
    const add = () => this.set([...this.chosen, key]);
    return html`<li><button class="ghost" data-column=${key} @click=${add}>+ ${columnTitle(key, this.choices)}</button></li>`;
  }
}
