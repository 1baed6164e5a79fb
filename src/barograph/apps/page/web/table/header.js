// The heads of the columns: a click sorts, an edge resizes, dragging moves a column.
import { t } from "../text/language.js";
import { cutMiddle } from "../ui/cut_text.js";
import { html, nothing } from "../ui/html.js";

const MIN_WIDTH = 48;

// `column` is {key, title, width, isNumber}; `actions` are sort(key), resize(key, width, isDone) and move(key, before).
export function headCell(column, sorted, actions, before) {
  const { key, title, isNumber } = column;
  const sign = sorted.key === key ? sorted.sign : 0;
  const order = sign > 0 ? "ascending" : sign < 0 ? "descending" : "none";
  return html`<div class="grid-cell ${isNumber ? "number" : ""}" role="columnheader" aria-sort=${order}
    data-column=${key} draggable=${key === "name" ? nothing : "true"} @dragstart=${(event) => take(event, key)}
    @dragover=${allowDrop} @drop=${(event) => drop(event, key, actions)}>
    ${before}
    <button class="head-sort" title=${title} @click=${() => actions.sort(key)}>
      ${cutMiddle(title)}${sign ? html`<span class="arrow">${sign > 0 ? "↑" : "↓"}</span>` : nothing}
    </button>
    <span class="resizer" role="separator" tabindex="0" aria-orientation="vertical"
      aria-label="${t("column_width")}: ${title}" aria-valuenow=${Math.round(column.width)}
      @keydown=${(event) => resizeByKey(event, column, actions)}
      @pointerdown=${(event) => resizeByPointer(event, column, actions)}></span>
  </div>`;
}

// The box that selects all runs; `work` gets whether it is ticked.
export function tickAll(work) {
  return html`<input type="checkbox" class="tick-all" aria-label=${t("select_all")} title=${t("select_all")}
    @change=${(event) => work(event.target.checked)}>`;
}

function resizeByKey(event, { key, width }, actions) {
  const by = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
  if (by) actions.resize(key, Math.max(MIN_WIDTH, width + by), true);
}

function resizeByPointer(down, column, actions) {
  const handle = down.currentTarget;
  down.preventDefault();
  handle.setPointerCapture(down.pointerId);
  const width = (event) => Math.max(MIN_WIDTH, Math.round(column.width + event.clientX - down.clientX));
  handle.onpointermove = (event) => actions.resize(column.key, width(event), false);
  handle.onpointerup = handle.onpointercancel = (event) => {
    handle.onpointermove = handle.onpointerup = handle.onpointercancel = null;
    actions.resize(column.key, width(event), true);
  };
}

function take(event, key) {
  if (event.target.closest?.(".resizer")) return event.preventDefault();
  event.dataTransfer.setData("text/x-column", key);
}

function allowDrop(event) {
  if (event.dataTransfer.types.includes("text/x-column")) event.preventDefault();
}

function drop(event, key, actions) {
  event.preventDefault();
  const moved = event.dataTransfer.getData("text/x-column");
  if (moved && moved !== key) actions.move(moved, key);
}
