// The menu of saved views.
import { fetchViews, removeView, saveView, showView } from "../data/saved_views.js";
import { getState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { labelled, openForm } from "../ui/ask.js";
import { el } from "../ui/dom.js";
import { menuItem, openMenuAt } from "../ui/menu.js";
import { showMessage } from "../ui/toast.js";

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
    item(t("save_view"), async () => askName(current?.name ?? "")),
    current ? item(t("remove_view", { n: current.name }), () => removeView(current.name)) : "",
  );
}

function askName(name) {
  const field = el("input", { type: "text", value: name, maxlength: 100, required: true });
  openForm({ title: t("save_view_title") }, [labelled(t("name"), field)], () =>
    attempt(() => saveView(field.value.trim())),
  );
  field.select();
}

async function attempt(work) {
  try {
    await work();
  } catch (problem) {
    showMessage(problem.message);
  }
}
