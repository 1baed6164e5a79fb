// A grid of many rows of the same height, of which only those in sight are in the page.
import { controlsOf, el } from "../ui/dom.js";

const ROW_HEIGHT = 34;
const BEYOND = 6; // rows above and below those in sight
const FRAME_MS = 8; // of making rows, so that scrolling stays smooth

export class Grid {
  // `drawRow(index)` makes the row; `onrest` is called when scrolling has ended.
  constructor(drawRow, onrest) {
    this.drawRow = drawRow;
    this.count = 0;
    this.drawn = new Map(); // by index
    this.focused = null; // what had the focus before the rows were drawn again, until its row is there
    this.head = el("div", { class: "grid-head", role: "row" });
    this.body = el("div", { class: "grid-body", role: "rowgroup" });
    this.node = el("div", { class: "grid", role: "table", tabindex: "0" }, this.head, this.body);
    // Remembered: reading them from the element while rows are replaced would force a layout.
    this.top = 0;
    this.height = 0;
    let timer = null;
    this.node.addEventListener("scroll", () => {
      this.top = this.node.scrollTop;
      clearTimeout(timer);
      timer = setTimeout(onrest, 200);
      this.drawSoon();
    });
    this.node.addEventListener("pointerover", showWhole);
    this.observer = new ResizeObserver(() => {
      this.height = this.node.clientHeight;
      this.drawSoon();
    });
    this.observer.observe(this.node);
  }

  // Draw all again: other rows, or the same with other contents.
  redraw(count) {
    this.count = count;
    this.body.style.height = `${count * ROW_HEIGHT}px`;
    this.node.setAttribute("aria-rowcount", String(count + 1));
    this.rememberFocus();
    this.drawn.clear();
    this.body.replaceChildren();
    this.drawSight();
  }

  // Rows that are made again have the focus again: the same control of the same run.
  rememberFocus() {
    const row = this.body.contains(document.activeElement) && document.activeElement.closest("[data-key]");
    if (!row) return;
    this.focused = { key: row.getAttribute("data-key"), place: controlsOf(row).indexOf(document.activeElement) };
  }

  restoreFocus() {
    const row = [...this.drawn.values()].find((one) => one.dataset.key === this.focused.key);
    if (!row) return;
    if (document.activeElement === document.body) controlsOf(row)[this.focused.place]?.focus({ preventScroll: true });
    this.focused = null;
  }

  // The first row in sight, and the one after the last.
  sight() {
    const height = this.height || this.node.clientHeight;
    // With fewer rows than before the browser scrolls up, and says so later.
    const top = Math.min(this.top, Math.max(0, this.count * ROW_HEIGHT - height));
    return [Math.floor(top / ROW_HEIGHT), Math.min(this.count, Math.ceil((top + height) / ROW_HEIGHT))];
  }

  drawSoon() {
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.drawSight();
    });
  }

  // Make the rows in sight, as many as a frame has time for, and drop those that are not; the next frame goes on.
  drawSight() {
    const end = performance.now() + FRAME_MS;
    const [first, last] = this.wanted();
    for (const [index, row] of this.drawn) {
      if (index >= first && index < last) continue;
      row.remove();
      this.drawn.delete(index);
    }
    const added = [];
    for (let index = first; index < last; index++) {
      if (this.drawn.has(index)) continue;
      added.push(this.makeRow(index));
      if (performance.now() < end) continue;
      this.drawSoon();
      break;
    }
    this.body.append(...added);
    if (this.focused) this.restoreFocus();
  }

  makeRow(index) {
    const row = this.drawRow(index);
    row.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
    row.setAttribute("aria-rowindex", String(index + 2));
    this.drawn.set(index, row);
    return row;
  }

  wanted() {
    const [first, last] = this.sight();
    return [Math.max(0, first - BEYOND), Math.min(this.count, last + BEYOND)];
  }

  destroy() {
    this.observer.disconnect();
  }
}

// Show the whole text of a cell that is cut off.
function showWhole(event) {
  const cell = event.target.closest?.(".grid-cell[role=cell]");
  if (cell && !cell.title) cell.title = (cell.querySelector(".table-name, .group-label") ?? cell).textContent;
}
