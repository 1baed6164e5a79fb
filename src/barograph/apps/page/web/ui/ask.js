// A dialog with a form.
import { t } from "../text/language.js";
import { el } from "./dom.js";

// Open a dialog with fields, and call `done` when its form is sent; `buttons` are before the one that sends it.
export function openForm({ title, className = "", buttons = [] }, fields, done) {
  const cancel = el("button", { type: "button", text: t("cancel"), onclick: () => box.close() });
  const row = el(
    "div",
    { class: "form-buttons" },
    buttons,
    cancel,
    el("button", { class: "primary", text: t("save") }),
  );
  const form = el("form", { method: "dialog" }, el("h2", { text: title }), fields, row);
  const box = el("dialog", { class: `ask ${className}`, "aria-label": title }, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    box.close();
    done();
  });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

export function labelled(label, field) {
  return el("label", {}, el("span", { text: label }), field);
}
