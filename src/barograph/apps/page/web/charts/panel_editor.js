// The dialog in which a panel is made or changed.
import { t } from "../text/language.js";
import { labelled, openForm } from "../ui/ask.js";
import { el } from "../ui/dom.js";
import { listField } from "../ui/list_field.js";
import { changePanel, KINDS, readPanels, SIZES } from "./panels.js";

// Edit a panel of the Charts view, or a new one; `choices` are the charts whose metrics can be chosen, {key, title}.
export function editPanel(number, panel, choices) {
  const isNew = number >= readPanels().length;
  openPanelForm(panel, choices, {
    title: t(isNew ? "new_panel" : "edit_panel"),
    remove: isNew ? null : () => changePanel(number, null),
    done: (made) => changePanel(number, made),
  });
}

// `more` are further fields, `scale` is what the scale is by default; `done` gets the panel, `remove` is offered where there is one.
/**
 * @param {any} panel
 * @param {{key: string, title: string}[]} choices
 * @param {{title: string, done: (panel: any) => void, remove?: (() => void) | null, more?: any[], free?: boolean, scale?: string}} form
 */
export function openPanelForm(
  panel,
  choices,
  { title, done, remove = null, more = [], free = false, scale = t("as_page") },
) {
  const metrics = listField(t("metrics"), panel.metrics, choices, { required: true, free });
  const fields = {
    title: el("input", { type: "text", value: panel.title ?? "", maxlength: 200 }),
    kind: choice(
      KINDS.map((kind) => [kind, kindText(kind)]),
      panel.kind,
    ),
    against: el("input", { type: "text", list: metrics.id, value: panel.against ?? "" }),
    size: choice(
      SIZES.map((size) => [size, sizeText(size)]),
      panel.size,
    ),
    low: numberField(panel.low),
    high: numberField(panel.high),
    smooth: numberField(panel.smooth, { min: 0, max: 0.99, step: 0.01 }),
    log: choice(
      [
        ["", scale],
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
  const removal = el("button", { type: "button", class: "danger", text: t("remove"), onclick: () => remove?.() });
  const box = openForm(
    { title, className: "panel-editor", buttons: remove ? [removal] : [] },
    [
      ...metrics.nodes,
      ...more,
      labelled(t("title"), fields.title),
      labelled(t("panel_kind"), fields.kind),
      against,
      formPair(labelled(t("y_from"), fields.low), labelled(t("y_to"), fields.high)),
      formPair(
        labelled(t("scale"), fields.log),
        labelled(t("smoothing"), fields.smooth),
        labelled(t("panel_size"), fields.size),
      ),
    ],
    () => done(panelOf(metrics.values(), fields)),
  );
  removal.addEventListener("click", () => box.close());
}

// Fields beside each other.
export function formPair(...nodes) {
  return el("div", { class: "form-pair" }, nodes);
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

export function choice(options, chosen) {
  return el(
    "select",
    {},
    options.map(([value, text]) => el("option", { value, text, selected: value === chosen })),
  );
}

/** @param {object} limits */
export function numberField(value, limits = { step: "any" }) {
  return el("input", { type: "number", value: value ?? "", ...limits });
}
