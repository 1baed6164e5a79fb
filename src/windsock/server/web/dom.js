// Elements, numbers and colours. Everything that was logged goes into the page as text, never as markup.

export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("aria-") && typeof value === "boolean") node.setAttribute(name, String(value));
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = String(value);
    else if (name === "value" || name === "checked" || name === "selected") node[name] = value;
    else if (name === "style") for (const [key, given] of Object.entries(value)) node.style.setProperty(key, given);
    else if (!name.startsWith("aria-") || value !== true) node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function icon(path) {
  return svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, svg("path", { d: path }));
}

export const ICONS = {
  pin: "M6 2h4l-.5 5L12 9.500V11H4V9.500L6.500 7zM8 11v4",
  grow: "M9.500 2H14v4.500M14 2L9 7M6.500 14H2V9.500M2 14l5-5",
  save: "M8 2v8M4.500 7L8 10.500 11.500 7M3 13.500h10",
  table: "M2 3h12v10H2zM2 6.500h12M2 10h12M6.500 3v10",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  list: "M2 4h12M2 8h12M2 12h12",
  copy: "M5 5h8v9H5zM3 11V2h8",
};

// "NaN" and the infinities come as strings in JSON; absent is null.
export function number(value) {
  return value === null || value === undefined ? NaN : Number(value);
}

export function show(value) {
  if (value === null || value === undefined) return "–";
  const v = Number(value);
  if (Number.isNaN(v)) return "NaN";
  if (!Number.isFinite(v)) return v > 0 ? "+∞" : "−∞";
  const size = Math.abs(v);
  let text;
  if (v === 0) text = "0";
  else if (size >= 1e15) text = v.toExponential(2);
  else if (size >= 1e6) text = compact(size) && (v < 0 ? "-" : "") + compact(size);
  else if (Number.isInteger(v)) text = String(v);
  else if (size >= 100) text = v.toFixed(size >= 1000 ? 0 : 1);
  else if (size >= 10) text = v.toFixed(1);
  else if (size >= 1e-3) text = v.toPrecision(3);
  else text = v.toExponential(1);
  return text.replace("-", "−").replace("e−", "e-");
}

function compact(size) {
  const [divisor, letter] = size >= 1e12 ? [1e12, "T"] : size >= 1e9 ? [1e9, "G"] : [1e6, "M"];
  return (size / divisor).toPrecision(3) + letter;
}

// A number for the end of an axis: few letters, still true.
export function short(value) {
  const size = Math.abs(value);
  if (value === 0 || !Number.isFinite(value)) return show(value);
  if (size < 0.01) return value.toExponential(1).replace("-", value < 0 ? "−" : "-");
  if (size >= 10000 && size < 1e6) return `${(value / 1000).toPrecision(3)}k`.replace("-", "−");
  return size < 10000 ? String(Number(value.toPrecision(3))).replace("-", "−") : show(value);
}

export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) return "–";
  const s = Number(value);
  if (s === 0) return "0 s";
  if (s < 0.001) return `${(s * 1e6).toFixed(0)} µs`;
  if (s < 1) return `${(s * 1e3).toPrecision(3)} ms`;
  if (s < 60) return `${s.toPrecision(3)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 < 1 ? "" : ` ${Math.floor(s % 60)} s`}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 < 60 ? "" : ` ${Math.floor((s % 3600) / 60)} min`}`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`;
}

export function bytes(value) {
  if (!value) return "–";
  const power = Math.min(4, Math.floor(Math.log2(value) / 10));
  return `${(value / 1024 ** power).toPrecision(3)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

// A value of a config as a person writes it.
export function plain(value) {
  if (typeof value === "number" && value !== 0 && Math.abs(value) < 1e-3) return value.toExponential();
  return typeof value === "string" ? value : JSON.stringify(value);
}

const colours = new Map(); // asking for a style lays the page out anew: each is asked for once per theme

export function css(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colours.get(name);
}

export function forgetColours() {
  colours.clear();
}

// Work that may wait for the next frames, a little in each, so that scrolling stays smooth.
const queue = new Set();

export function soon(work) {
  if (!queue.size) requestAnimationFrame(workOff);
  queue.add(work);
}

function workOff() {
  const end = performance.now() + 10;
  for (const work of queue) {
    queue.delete(work);
    work();
    if (performance.now() > end) break;
  }
  if (queue.size) requestAnimationFrame(workOff);
}

export function hue(index) {
  return css(`--s${index % 8}`);
}

export function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name.replace(/[^\w.@-]+/g, "_") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export function once(wait, work) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
}

// Work at most so often, and once more after the last call.
export function paced(wait, work) {
  let last = 0;
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(
      () => {
        last = Date.now();
        work();
      },
      Math.max(0, last + wait - Date.now()),
    );
  };
}

// How wide a picture that fills a view may be, and the end of a name that fits into a part of it.
export function room(host) {
  return Math.max(320, Math.min(1100, host.clientWidth - 30));
}

export function tail(name, width) {
  const most = Math.max(3, Math.floor(width / 7));
  return name.length > most ? `…${name.slice(1 - most)}` : name;
}
