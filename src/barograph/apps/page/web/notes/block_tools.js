// The tools of a report and of its blocks.
import { report } from "../data/report.js";
import { t } from "../text/language.js";
import { ICONS, icon } from "../ui/dom.js";
import { elementOf, html, nothing } from "../ui/html.js";
import { openMenuOf } from "../ui/menu.js";
import { stateLink } from "../ui/widgets.js";

const KINDS = ["note", "chart", "runs"];

export function allReports() {
  return stateLink({ report: "" }, { class: "button", text: `‹ ${t("report_all")}` });
}

// The tools above a report, which do their work on its page; the file of a report can only be printed.
export function toolbar(page) {
  const tools = () => html`${allReports()}<span class="grow"></span>
    <button @click=${() => page.reopen({ isWhole: true })}>${t("report_source")}</button>
    <button @click=${() => page.rename()}>${t("report_rename")}</button>
    <button @click=${() => page.remove()}>${t("report_delete")}</button>`;
  const save = () => html`<button class="primary" title=${t("report_file_help")} @click=${() => page.saveFile()}
    >${t("report_file")}</button>`;
  return elementOf(html`<div class="bar report-bar">${report ? nothing : tools()}
    <button @click=${() => window.print()}>${t("report_print")}</button>${report ? nothing : save()}</div>`);
}

// The tools of the block at a place.
export function blockTools(block, place, page) {
  const tool = (path, label, work, isOff = false) =>
    html`<button class="ghost" title=${label} aria-label=${label} ?disabled=${isOff} @click=${work}>${icon(path)}</button>`;
  const isLast = place === page.data.blocks.length - 1;
  return elementOf(html`<div class="block-tools" role="toolbar" aria-label=${t(`block_${block.kind}`)}>
    ${tool(ICONS.edit, t("block_edit"), () => page.edit(block, place))}
    ${tool(ICONS.up, t("block_up"), () => page.move(place, -1), place === 0)}
    ${tool(ICONS.down, t("block_down"), () => page.move(place, 1), isLast)}
    ${tool(ICONS.plus, t("block_add"), (event) => page.openAddMenu(event.currentTarget, place + 1))}
    ${tool(ICONS.close, t("remove"), () => page.change(place, 1))}
  </div>`);
}

// A menu of the kinds of blocks; `add` gets the one that is chosen.
export function openAddMenu(button, add) {
  openMenuOf(
    button,
    KINDS.map((kind) => [t(`block_${kind}`), () => add(kind)]),
  );
}

// The buttons below a report that add a block.
export function addBar(add) {
  const button = (kind) => html`<button @click=${() => add(kind)}>+ ${t(`block_${kind}`)}</button>`;
  return elementOf(html`<div class="add-bar">${KINDS.map(button)}</div>`);
}
