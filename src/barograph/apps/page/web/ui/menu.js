// A menu below a button: arrow keys move in it, Escape or a click elsewhere closes it.
import { el } from "./dom.js";

// Open a menu with these nodes, and return the function that closes it.
export function openMenuAt(button, ...children) {
  document.querySelector(".menu")?.remove();
  const menu = el("div", { class: "menu", role: "menu" }, ...children);
  document.body.append(menu);
  const box = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(box.left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.max(8, Math.min(box.bottom + 4, innerHeight - menu.offsetHeight - 8))}px`;
  menu.querySelector("button:not([disabled])")?.focus();
  menu.addEventListener("keydown", (event) => moveFocus(event, menu, button));
  setTimeout(() =>
    addEventListener("pointerdown", (event) => menu.contains(event.target) || menu.remove(), { once: true }),
  );
  return () => {
    menu.remove();
    button.focus();
  };
}

// Open a menu of these items, [label, work]; the chosen one's work begins after it is closed.
export function openMenuOf(button, items) {
  const choose = (work) => {
    close();
    work();
  };
  const close = openMenuAt(button, ...items.map(([label, work]) => menuItem(label, () => choose(work))));
}

// A line of a menu.
export function menuItem(label, work) {
  return el("button", { role: "menuitem", text: label, onclick: work });
}

function moveFocus(event, menu, button) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const all = [...menu.querySelectorAll("button:not([disabled])")];
  if (step) all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  if (event.key === "Escape") button.focus();
}
