// The menu of saved views.
import { fetchViews, saveView, showView, stateNow } from "../data/saved_views.js";
import { getState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { labelled, openForm } from "../ui/ask.js";
import { el } from "../ui/dom.js";
import { menuItem, openMenuAt } from "../ui/menu.js";
import { offerUndo, showMessage } from "../ui/toast.js";

// The button with the name of the current view.
export function viewsButton() {
  const button = el("button", {
    class: "views",
    "aria-haspopup": "menu",
    onclick: () => attempt(() => openViews(button)),
  });
  const sync = () => {
    button.textContent = getState("view") ? `${t("view")}: ${getState("view")}` : t("views");
  };
  sync();
  return { button, sync };
}

async function openViews(button) {
  const views = await fetchViews();
  const current = views.find((view) => view.name === getState("view"));
  const item = (label, work) =>
    menuItem(label, () => {
      close();
      attempt(work);
    });
  const close = openMenuAt(
    button,
    views.map((view) => item(view.name, async () => showView(view))),
    item(t("save_view"), async () => askName(current?.name ?? "", views)),
    current ? item(t("remove_view", { n: current.name }), () => change(current.name, null, views)) : "",
  );
}

function askName(name, views) {
  const field = el("input", { type: "text", value: name, maxlength: 100, required: true });
  openForm({ title: t("save_view_title") }, [labelled(t("name"), field)], () =>
    attempt(() => change(field.value.trim(), stateNow(), views)),
  );
  field.select();
}

// Save a view, or with null remove it; what another of that name was can be restored.
async function change(name, state, views) {
  const before = views.find((view) => view.name === name)?.state;
  await saveView(name, state);
  if (before === undefined || before === state) return;
  const said = state === null ? t("view_removed", { n: name }) : t("view_replaced", { n: name });
  offerUndo(said, () => saveView(name, before));
}

async function attempt(work) {
  try {
    await work();
  } catch (problem) {
    showMessage(problem.message);
  }
}
