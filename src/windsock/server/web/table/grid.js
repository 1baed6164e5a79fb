// A grid of many rows of the same height, of which only those in sight are in the page.
import { el } from "../ui/dom.js";

const ROW_HEIGHT = 34;
const BEYOND = 12; // rows above and below those in sight

export class Grid {
  // `drawRow(index)` makes the row; `onrest` is called when scrolling has ended.
  constructor(drawRow, onrest) {
    this.drawRow = drawRow;
    this.count = 0;
    this.drawn = new Map(); // by index
    this.head = el("div", { class: "grid-head", role: "row" });
    this.body = el("div", { class: "grid-body", role: "rowgroup" });
    this.node = el("div", { class: "grid", role: "table", tabindex: "0" }, this.head, this.body);
    let timer = null;
    let waiting = false;
    this.node.addEventListener("scroll", () => {
      clearTimeout(timer);
      timer = setTimeout(onrest, 200);
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        this.drawSight();
      });
    });
    this.observer = new ResizeObserver(() => this.drawSight());
    this.observer.observe(this.node);
  }

  // Draw all again: other rows, or the same with other contents.
  redraw(count) {
    this.count = count;
    this.body.style.height = `${count * ROW_HEIGHT}px`;
    this.node.setAttribute("aria-rowcount", String(count + 1));
    this.drawn.clear();
    const rows = this.fill();
    this.body.replaceChildren(...rows);
  }

  // The first and the last row in sight.
  sight() {
    const first = Math.floor(this.node.scrollTop / ROW_HEIGHT);
    const last = Math.ceil((this.node.scrollTop + this.node.clientHeight) / ROW_HEIGHT);
    return [Math.max(0, first), Math.min(this.count, last)];
  }

  drawSight() {
    const [first, last] = this.wanted();
    for (const [index, row] of this.drawn) {
      if (index >= first && index < last) continue;
      row.remove();
      this.drawn.delete(index);
    }
    this.body.append(...this.fill());
  }

  wanted() {
    const [first, last] = this.sight();
    return [Math.max(0, first - BEYOND), Math.min(this.count, last + BEYOND)];
  }

  // Make the rows in sight that are not drawn yet.
  fill() {
    const [first, last] = this.wanted();
    const added = [];
    for (let index = first; index < last; index++) {
      if (this.drawn.has(index)) continue;
      const row = this.drawRow(index);
      row.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
      row.setAttribute("aria-rowindex", String(index + 2));
      this.drawn.set(index, row);
      added.push(row);
    }
    return added;
  }

  destroy() {
    this.observer.disconnect();
  }
}
