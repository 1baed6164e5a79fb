// A short message at the bottom of the page; with a button, where what happened can be undone or opened.
import { t } from "../text/language.js";
import { el } from "./dom.js";

const SHOWN_MS = 6000;
const OFFERED_MS = 15000; // long enough to read it, decide and get there by keyboard
const stack = el("div", { class: "toasts" });
let lastUndo = null;

// Show a message. `offers` are buttons, [label, work]; it stays while one of them has the focus or the pointer.
export function showMessage(text, ...offers) {
  const buttons = offers.map(([label, work]) =>
    el("button", {
      class: "offer",
      text: label,
      onclick: () => {
        note.remove();
        work();
      },
    }),
  );
  const note = el("div", { class: "toast", role: "status" }, el("span", { text }), buttons);
  if (!stack.isConnected) document.body.append(stack);
  stack.append(note);
  removeLater(note, offers.length ? OFFERED_MS : SHOWN_MS);
  return note;
}

// Say what was removed or changed, and offer to undo it: by the button, or by the key `u` as long as the message stands.
// `offers` are further buttons.
export function offerUndo(text, work, ...offers) {
  const undo = async () => {
    lastUndo = null;
    try {
      await work();
      showMessage(t("undone"));
    } catch (problem) {
      showMessage(problem.message);
    }
  };
  lastUndo?.note.remove();
  lastUndo = { undo, note: showMessage(text, [`${t("undo")} (u)`, undo], ...offers) };
}

// Undo what the message that stands offers to undo.
export function undoLast() {
  const last = lastUndo;
  if (!last?.note.isConnected) return;
  last.note.remove();
  last.undo();
}

function removeLater(note, wait) {
  setTimeout(() => {
    if (note.matches(":hover, :focus-within")) removeLater(note, SHOWN_MS);
    else note.remove();
  }, wait);
}
