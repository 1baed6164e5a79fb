// Creation of elements. Logged text always becomes a text node, never markup.
import { fragmentOf } from "./html.js";

// Create an element. `on…` props are listeners, `text` is its text, a null or false prop is left out; a child may be a
// template.
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    // aria-pressed and the like need "false" in words; other attributes are absent instead.
    if (name.startsWith("aria-") && typeof value === "boolean") node.setAttribute(name, String(value));
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = String(value);
    else if (name === "value" || name === "checked" || name === "selected") node[name] = value;
    else if (name === "style") for (const [key, given] of Object.entries(value)) node.style.setProperty(key, given);
    else if (!name.startsWith("aria-") || value !== true) node.setAttribute(name, value === true ? "" : String(value));
  }
  const given = children.flat(2).filter((child) => child !== null && child !== undefined && child !== false);
  node.append(...given.map((child) => (child._$litType$ ? fragmentOf(child) : child)));
  return node;
}

export function icon(path) {
  return svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, svg("path", { d: path }));
}

export const ICONS = {
  pin: "M6 2h4l-.5 5L12 9.5V11H4V9.5L6.5 7zM8 11v4",
  grow: "M9.5 2H14v4.5M14 2L9 7M6.5 14H2V9.5M2 14l5-5",
  save: "M8 2v8M4.5 7L8 10.5 11.5 7M3 13.5h10",
  edit: "M3 4.5h4M11 4.5h2M9 3v3M3 11.5h2M9 11.5h4M7 10v3",
  up: "M8 13V3M4 7l4-4 4 4",
  down: "M8 3v10M4 9l4 4 4-4",
  plus: "M8 3v10M3 8h10",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  list: "M2 4h12M2 8h12M2 12h12",
  copy: "M5 5h8v9H5zM3 11V2h8",
};

export function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name.replace(/[^\w.@-]+/g, "_") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// The width of a picture that fills a view.
export function pictureWidth(host) {
  return Math.max(320, Math.min(1100, host.clientWidth - 30));
}

// The controls of an element in their order, so that one of them can have the focus again after they were made anew.
export function controlsOf(element) {
  return [...element.querySelectorAll("a, button, input, select, [tabindex]")];
}
