// The menu of a run in the list: pin, rename, hide, tag, and write a note.
import { patchRun } from "./data/api.js";
import { refreshRuns, runs } from "./data/runs.js";
import { t } from "./text/language.js";
import { labelled, openForm } from "./ui/ask.js";
import { el } from "./ui/dom.js";
import { openMenuOf } from "./ui/menu.js";
import { offerUndo, showMessage } from "./ui/toast.js";

// `more` are further items, [label, work].
export function openMenu(button, run, more = []) {
  const ask = (label, value, done) => promptForText(run.name, label, value, done);
  const said = run.hidden ? undefined : t("run_hidden", { n: run.name });
  const items = [
    [run.pinned ? t("unpin") : t("pin"), () => annotateRun(run, { pinned: !run.pinned })],
    [t("rename"), () => ask(t("new_name"), run.name, (name) => annotateRun(run, { name: name || null }))],
    [t("note"), () => ask(t("new_note"), run.note, (note) => annotateRun(run, { note }))],
    [t("edit_tags"), () => ask(t("new_tags"), run.tags.join(", "), (tags) => annotateRun(run, { tags }))],
    ...more,
    [run.hidden ? t("unhide") : t("hide"), () => annotateRun(run, { hidden: !run.hidden }, said)],
  ];
  openMenuOf(button, items);
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
