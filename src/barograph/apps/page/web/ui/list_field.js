// A field for several values: a chip for each, and an input that adds one, with suggestions.
import { t } from "../text/language.js";
import { labelled } from "./ask.js";
import { el } from "./dom.js";

let count = 0; // of fields, for the ids of their suggestions

// `choices` are suggestions, {key, title}; `values()` returns what is chosen, with what is typed and not added yet.
export function listField(
  label,
  chosen,
  choices,
  { required = false, free = false, placeholder = t("add_metric") } = {},
) {
  const values = [...chosen];
  const titleOf = new Map(choices.map(({ key, title }) => [key, title]));
  const id = `choices-${++count}`;
  const list = el(
    "datalist",
    { id },
    choices.map(({ key, title }) => el("option", { value: key, label: title })),
  );
  const adding = el("input", { type: "text", list: id, placeholder });
  const chips = el("div", { class: "chips" });
  const draw = () => {
    chips.replaceChildren(
      ...values.map((key, i) => chip(titleOf.get(key) ?? key, () => values.splice(i, 1) && draw())),
    );
    adding.required = required && !values.length;
  };
  const add = () => {
    values.push(adding.value.trim());
    adding.value = "";
    draw();
  };
  adding.addEventListener("input", () => titleOf.has(adding.value) && add());
  adding.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !free || !adding.value.trim()) return;
    event.preventDefault(); // it adds the value, and does not send the form
    add();
  });
  draw();
  const read = () => [...values, ...(adding.value.trim() ? [adding.value.trim()] : [])];
  return { nodes: [list, labelled(label, adding), chips], values: read, id };
}

function chip(text, remove) {
  const label = `${t("remove")}: ${text}`;
  return el(
    "span",
    { class: "chip" },
    text,
    el("button", { type: "button", class: "ghost", text: "×", "aria-label": label, onclick: remove }),
  );
}
