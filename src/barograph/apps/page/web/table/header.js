// The heads of the columns: a click sorts, an edge resizes, dragging moves a column.
import { t } from "../text/language.js";
import { cutMiddle } from "../ui/cut_text.js";
import { el } from "../ui/dom.js";

const MIN_WIDTH = 48;

// `column` is {key, title, width}; `actions` are sort(key), resize(key, width, isDone) and move(key, before).
export function headCell(column, sorted, actions) {
  const sign = sorted.key === column.key ? sorted.sign : 0;
  const arrow = sign > 0 ? "↑" : sign < 0 ? "↓" : "";
  const button = el(
    "button",
    { class: "head-sort", title: column.title, onclick: () => actions.sort(column.key) },
    cutMiddle(column.title),
    arrow ? el("span", { class: "arrow", text: arrow }) : null,
  );
  const cell = el(
    "div",
    {
      class: `grid-cell ${column.isNumber ? "number" : ""}`,
      role: "columnheader",
      "aria-sort": sign > 0 ? "ascending" : sign < 0 ? "descending" : "none",
      "data-column": column.key,
      draggable: column.key === "name" ? null : "true",
    },
    button,
    resizer(column, actions),
  );
  addDragging(cell, column.key, actions);
  return cell;
}

function resizer(column, { resize }) {
  const handle = el("span", {
    class: "resizer",
    role: "separator",
    tabindex: "0",
    "aria-orientation": "vertical",
    "aria-label": `${t("column_width")}: ${column.title}`,
    "aria-valuenow": Math.round(column.width),
  });
  handle.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
    if (by) resize(column.key, Math.max(MIN_WIDTH, column.width + by), true);
  });
  handle.addEventListener("pointerdown", (down) => {
    down.preventDefault();
    handle.setPointerCapture(down.pointerId);
    const width = (event) => Math.max(MIN_WIDTH, Math.round(column.width + event.clientX - down.clientX));
    handle.onpointermove = (event) => resize(column.key, width(event), false);
    handle.onpointerup = handle.onpointercancel = (event) => {
      handle.onpointermove = null;
      resize(column.key, width(event), true);
    };
  });
  return handle;
}

function addDragging(cell, key, { move }) {
  cell.addEventListener("dragstart", (event) => {
    if (event.target.closest?.(".resizer")) return event.preventDefault();
    event.dataTransfer.setData("text/x-column", key);
  });
  cell.addEventListener("dragover", (event) => {
    if (event.dataTransfer.types.includes("text/x-column")) event.preventDefault();
  });
  cell.addEventListener("drop", (event) => {
    event.preventDefault();
    const moved = event.dataTransfer.getData("text/x-column");
    if (moved && moved !== key) move(moved, key);
  });
}
