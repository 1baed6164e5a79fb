// The menu of a run in the list: pin, rename, hide, tag, and write a note.
import { patchRun } from "./data/api.js";
import { refreshRuns, runs } from "./data/runs.js";
import { t } from "./text/language.js";
import { labelled, openForm } from "./ui/ask.js";
import { el } from "./ui/dom.js";
import { offerUndo, showMessage } from "./ui/toast.js";

// `more` are further items, [label, work].
export function openMenu(button, run, more = []) {
  document.querySelector(".menu")?.remove();
  const choose = (work) => {
    menu.remove();
    work();
  };
  const ask = (label, value, done) => promptForText(run.name, label, value, done);
  const item = (label, work) => el("button", { role: "menuitem", text: label, onclick: () => choose(work) });
  const menu = el(
    "div",
    { class: "menu", role: "menu" },
    item(run.pinned ? t("unpin") : t("pin"), () => annotateRun(run, { pinned: !run.pinned })),
    item(t("rename"), () => ask(t("new_name"), run.name, (name) => annotateRun(run, { name: name || null }))),
    item(t("note"), () => ask(t("new_note"), run.note, (note) => annotateRun(run, { note }))),
    item(t("edit_tags"), () => ask(t("new_tags"), run.tags.join(", "), (tags) => annotateRun(run, { tags }))),
    more.map(([label, work]) => item(label, work)),
    item(run.hidden ? t("unhide") : t("hide"), () =>
      annotateRun(run, { hidden: !run.hidden }, run.hidden ? undefined : t("run_hidden", { n: run.name })),
    ),
  );
  document.body.append(menu);
  const box = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(box.left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.min(box.bottom + 4, innerHeight - menu.offsetHeight - 8)}px`;
  menu.firstChild.focus();
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextSibling", ArrowUp: "previousSibling" }[event.key];
    if (step) document.activeElement[step]?.focus();
    if (event.key === "Escape") button.focus();
  });
  setTimeout(() =>
    addEventListener("pointerdown", (event) => menu.contains(event.target) || menu.remove(), { once: true }),
  );
}

async function annotateRun(run, fields, said = t("run_changed", { n: run.name })) {
  try {
    const changed = await patchRun(run.key, fields);
    await show(run.key, changed.run);
    offerUndo(said, async () => show(run.key, await changed.undo()));
  } catch (problem) {
    showMessage(problem.message);
  }
}

async function show(key, changed) {
  if (runs.has(key)) runs.set(key, { ...runs.get(key), ...changed });
  await refreshRuns(); // its place in the list may be another
  dispatchEvent(new CustomEvent("runs"));
}

function promptForText(title, label, value, done) {
  const field = el("input", { type: "text", value });
  openForm({ title }, labelled(label, field), () => done(field.value.trim()));
  field.select();
}
