// A short message at the bottom of the page.
import { el } from "./dom.js";

export function showMessage(text) {
  const note = el("div", { class: "toast", role: "status", text });
  document.body.append(note);
  setTimeout(() => note.remove(), 6000);
}
