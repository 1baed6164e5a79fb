// Keyboard shortcuts and their help.
import { enlarge, shrink } from "./charts/enlarged.js";
import { plotUnderPointer } from "./charts/plot.js";
import { askForStep, closeStepMenu } from "./charts/step_menu.js";
import { toggleMarks } from "./data/marks.js";
import { report } from "./data/report.js";
import { getState, setState, toggleState } from "./data/url_state.js";
import { selectNeighbour } from "./run_list.js";
import { t } from "./text/language.js";
import { el } from "./ui/dom.js";
import { undoLast } from "./ui/toast.js";
import { closeTooltip } from "./ui/tooltip.js";
import { TABS } from "./views/index.js";

const SHORTCUTS = {
  j: () => selectNeighbour(1),
  k: () => selectNeighbour(-1),
  r: () => setState({ from: "", to: "" }),
  m: toggleMarks,
  v: () => getState("tab") === "samples" && toggleState("rich"),
  f: () => plotUnderPointer() && enlarge(plotUnderPointer()),
  s: () => askForStep(plotUnderPointer()),
  t: () => report || setState({ tab: "table", report: "" }),
  u: undoLast,
  "?": showHelp,
  "/": focusSearch,
};

export function handleKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return closeOverlays();
  if (event.target.closest?.("input, select, textarea, dialog")) return;
  const shortcut = SHORTCUTS[event.key];
  const tab = /^[0-9]$/.test(event.key) ? TABS[(Number(event.key) + 9) % 10] : null; // 0 is the tenth
  if (!shortcut && !tab) return;
  event.preventDefault();
  if (tab) setState({ tab, chart: "", look: "", report: "" });
  else shortcut();
}

export function showHelp() {
  const rows = [
    ["/", "k_filter"],
    ["j  k", "k_next"],
    ...(TABS.length ? [[TABS.length > 9 ? "1–9  0" : `1–${TABS.length}`, "k_tabs"]] : []),
    ["f", "k_full"],
    ["r", "k_reset"],
    ["m", "k_marks"],
    ["s", "k_step"],
    ["v", "k_rich"],
    ...(report ? [] : [["t", "table"]]),
    ["u", "k_undo"],
    ["?", "k_help"],
    ["Esc", "k_esc"],
    [t("click"), "k_step"],
    [t("drag"), "k_drag"],
    [t("double"), "k_reset"],
  ];
  const lines = rows.map(([keys, text]) =>
    el("tr", {}, el("td", {}, el("kbd", { text: keys })), el("td", { text: t(text) })),
  );
  const close = el("form", { method: "dialog" }, el("button", { text: t("close") }));
  const table = el("table", {}, el("tbody", {}, lines));
  const dialog = el("dialog", { class: "help" }, el("h2", { text: t("keys") }), table, close);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function closeOverlays() {
  document.querySelector(".menu")?.remove();
  document.body.classList.remove("list-open");
  closeTooltip();
  closeStepMenu();
  shrink();
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
}

function focusSearch() {
  const field = document.querySelector("main input[type=search]") ?? document.getElementById("run-filter");
  if (field instanceof HTMLElement) field.focus();
}
