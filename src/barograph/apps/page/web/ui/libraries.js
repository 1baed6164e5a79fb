// Libraries that only some views need. A report has them in its file; else a script is added to the page.
import { el } from "./dom.js";

const loading = new Map();

// Load a library of vendor/ once, and return what it is called in the window.
export async function loadLibrary(file, name) {
  if (globalThis[name]) return globalThis[name];
  if (!loading.has(file)) loading.set(file, added(`vendor/${file}`));
  await loading.get(file).catch((problem) => {
    loading.delete(file); // the next call tries again
    throw problem;
  });
  return globalThis[name];
}

function added(src) {
  return new Promise((resolve, reject) => {
    const script = el("script", { src, onload: resolve, onerror: () => reject(new Error(src)) });
    document.head.append(script);
  });
}
