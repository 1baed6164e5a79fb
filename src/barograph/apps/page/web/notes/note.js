// A note of a report, rendered or as a field to edit. Elements are made one by one: nothing in a text can be markup.
import { richBlock } from "../samples/rich_text.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";

// The note with its headings and links; one that is too long to be parsed is shown as it is written.
export function noteNode(text) {
  const block = richBlock(text, null);
  if (!block) return el("pre", { class: "note-plain", dir: "auto", text });
  for (const title of block.querySelectorAll(".title")) title.replaceWith(heading(title));
  for (const link of block.querySelectorAll(".link")) if (isWeb(link.title)) link.replaceWith(anchor(link));
  return block;
}

function heading(title) {
  const depth = Math.min(6, Number(/\bd(\d)/.exec(title.className)?.[1] ?? 1));
  return el(`h${depth}`, { class: title.className, dir: "auto" }, [...title.childNodes]);
}

function anchor(link) {
  const props = { href: link.title, class: "link", target: "_blank", rel: "noopener noreferrer nofollow" };
  return el("a", props, [...link.childNodes]);
}

// Other addresses, such as javascript:, stay text.
function isWeb(address) {
  return URL.canParse(address) && ["http:", "https:"].includes(new URL(address).protocol);
}

// A field for a Markdown text; `done` gets the text, `cancel` the text that is not wanted.
export function noteEditor(text, done, cancel) {
  const field = el("textarea", { "aria-label": t("note_text"), placeholder: t("note_text"), dir: "auto" });
  field.value = text;
  field.addEventListener("input", () => fit(field));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") cancel(field.value);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) done(field.value);
  });
  const buttons = el(
    "div",
    { class: "form-buttons" },
    el("button", { text: t("cancel"), onclick: () => cancel(field.value) }),
    el("button", { class: "primary", text: t("note_done"), onclick: () => done(field.value) }),
  );
  return el("div", { class: "note-editor" }, field, buttons);
}

// Put the cursor into the field of a page that has one. It must be in the document, and keys may follow at once.
export function focusEditor(page) {
  const field = page.querySelector(".note-editor textarea");
  if (!field) return;
  fit(field);
  field.focus();
}

function fit(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}
