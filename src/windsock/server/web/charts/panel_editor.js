// The dialog in which a panel is made and changed.
import { t } from "../text/language.js";
import { labelled, openForm } from "../ui/ask.js";
import { el } from "../ui/dom.js";
import { changePanel, KINDS, readPanels, SIZES } from "./panels.js";

// Edit a panel, or a new one; `choices` are the charts whose metrics can be chosen, {key, title}.
export function editPanel(number, panel, choices) {
  const titleOf = new Map(choices.map(({ key, title }) => [key, title]));
  const chosen = [...panel.metrics];
  const list = el(
    "datalist",
    { id: "panel-metrics" },
    choices.map(({ key, title }) => el("option", { value: key, label: title })),
  );
  const adding = el("input", { type: "text", list: "panel-metrics", placeholder: t("add_metric") });
  const chips = el("div", { class: "chips" });
  const drawChips = () => {
    chips.replaceChildren(
      ...chosen.map((key, i) => chip(titleOf.get(key) ?? key, () => chosen.splice(i, 1) && drawChips())),
    );
    adding.required = !chosen.length;
  };
  const add = () => {
    if (!titleOf.has(adding.value)) return;
    chosen.push(adding.value);
    adding.value = "";
    drawChips();
  };
  adding.addEventListener("input", add);
  drawChips();
  const fields = {
    title: el("input", { type: "text", value: panel.title ?? "", maxlength: 200 }),
    kind: choice(
      KINDS.map((kind) => [kind, kindText(kind)]),
      panel.kind,
    ),
    against: el("input", { type: "text", list: "panel-metrics", value: panel.against ?? "" }),
    size: choice(
      SIZES.map((size) => [size, sizeText(size)]),
      panel.size,
    ),
    low: numberField(panel.low),
    high: numberField(panel.high),
    smooth: numberField(panel.smooth, { min: 0, max: 0.99, step: 0.01 }),
    log: choice(
      [
        ["", t("as_page")],
        ["yes", t("log")],
        ["no", t("linear")],
      ],
      { true: "yes", false: "no" }[panel.log],
    ),
  };
  const against = labelled(t("against"), fields.against);
  const showAgainst = () => {
    against.hidden = fields.kind.value === "lines";
    fields.against.required = !against.hidden;
  };
  fields.kind.addEventListener("change", showAgainst);
  showAgainst();
  const pair = (...nodes) => el("div", { class: "form-pair" }, nodes);
  const isNew = number >= readPanels().length;
  const remove = el("button", {
    type: "button",
    class: "danger",
    text: t("remove"),
    onclick: () => changePanel(number, null),
  });
  const box = openForm(
    { title: t(isNew ? "new_panel" : "edit_panel"), className: "panel-editor", buttons: isNew ? [] : [remove] },
    [
      list,
      labelled(t("metrics"), adding),
      chips,
      labelled(t("title"), fields.title),
      labelled(t("panel_kind"), fields.kind),
      against,
      pair(labelled(t("y_from"), fields.low), labelled(t("y_to"), fields.high)),
      pair(
        labelled(t("scale"), fields.log),
        labelled(t("smoothing"), fields.smooth),
        labelled(t("panel_size"), fields.size),
      ),
    ],
    () => changePanel(number, panelOf(chosen, fields)),
  );
  remove.addEventListener("click", () => box.close());
}

// The panel of a filled form: what is left as it is by default is left out.
function panelOf(metrics, { title, kind, against, size, low, high, smooth, log }) {
  const number = (field) => (field.value === "" ? undefined : Number(field.value));
  return {
    title: title.value.trim() || undefined,
    metrics,
    kind: kind.value === "lines" ? undefined : kind.value,
    against: kind.value === "lines" ? undefined : against.value,
    size: size.value === "normal" ? undefined : size.value,
    low: number(low),
    high: number(high),
    smooth: number(smooth),
    log: log.value === "" ? undefined : log.value === "yes",
  };
}

function kindText(kind) {
  return { lines: t("kind_lines"), steps: t("kind_steps"), runs: t("kind_runs") }[kind];
}

function sizeText(size) {
  return { normal: t("size_normal"), wide: t("size_wide"), full: t("size_full") }[size];
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

function choice(options, chosen) {
  return el(
    "select",
    {},
    options.map(([value, text]) => el("option", { value, text, selected: value === chosen })),
  );
}

/** @param {object} limits */
function numberField(value, limits = { step: "any" }) {
  return el("input", { type: "number", value: value ?? "", ...limits });
}
