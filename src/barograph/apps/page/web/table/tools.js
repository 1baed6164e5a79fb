// The tools above the table: grouping, columns, export, and what can be done with the selected runs.
import { select, selection } from "../data/selection.js";
import { getState, packList, setState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { html, nothing } from "../ui/html.js";
import { stateLink } from "../ui/widgets.js";
import { chooseColumns } from "./chooser.js";
import { keyOptions } from "./group_keys.js";

export function groupingField({ varying, facts }) {
  const keys = varying.filter((key) => key !== "seed");
  const options = [
    ["", t("group_none")],
    ["seeds", t("group_seeds")],
    ["group", t("group_group")],
    ["tag", t("group_tag")],
    ...keyOptions(keys, (key) => (facts.includes(key) ? `config:${key}` : key)),
  ];
  const option = ([value, text]) => html`<option value=${value} ?selected=${value === grouping()}>${text}</option>`;
  const choose = (event) => setState({ pool: event.target.value, open: "" });
  return html`<label class="field"><span>${t("group_by")}</span>
    <select aria-label=${t("group_by")} .value=${grouping()} @change=${choose}>${options.map(option)}</select></label>`;
}

function grouping() {
  return getState("pool") === "none" ? "" : getState("pool");
}

export function tableTools({ columns, choices, hidden }, exportCsv) {
  const groupSeeds = () => setState({ pool: "seeds", open: "" });
  const choose = () => chooseColumns(columns, choices, (next) => setState({ cols: next && packList(next) }));
  return html`${grouping() ? nothing : html`<button @click=${groupSeeds}>${t("group_seeds_now")}</button>`}
    <button @click=${choose}>${t("columns")}</button>
    <button @click=${exportCsv}>${t("export_csv")}</button>
    ${hidden ? hiddenButton(hidden) : nothing}`;
}

function hiddenButton(count) {
  const isShown = getState("hidden") === "1";
  const text = isShown ? t("hide_again") : t("hidden_runs", { n: count });
  return html`<button class="link" @click=${() => setState({ hidden: isShown ? "" : "1" })}>${text}</button>`;
}

// What is selected, and where to look at it; `baseline` is the name of the run `base`.
export function chosenTools(base, baseline) {
  const count = selection().length;
  const some = html`<b>${t("selected", { n: count })}</b>
    ${count > 1 ? stateLink({ tab: "compare" }, { class: "button", text: t("compare") }) : nothing}
    ${stateLink({ tab: "charts" }, { class: "button", text: t("charts") })}
    <button @click=${() => writeReport(selection())}>${t("report_new_of")}</button>
    <button class="link" @click=${() => select([])}>${t("select_none")}</button>`;
  return html`${count ? some : nothing}${
    base
      ? html`<span class="baseline-note">${t("baseline", { n: baseline })}</span>
      <button class="link" @click=${() => setState({ base: "" })}>${t("unset_baseline")}</button>`
      : nothing
  }`;
}

async function writeReport(keys) {
  (await import("../notes/new_report.js")).beginReport(keys);
}
