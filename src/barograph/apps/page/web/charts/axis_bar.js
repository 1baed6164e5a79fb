// The bar above charts: x axis, smoothing, log scale and zoom.

import { areMarksShown, toggleMarks } from "../data/marks.js";
import { getState, setState } from "../data/url_state.js";
import { t } from "../text/language.js";
import { el } from "../ui/dom.js";
import { selectField } from "../ui/widgets.js";
import { setZoom, zoomRange } from "./zoom.js";

export function axisBar(axes, extra = []) {
  const axis = selectField(
    t("x_axis"),
    axes.map((one) => [one, t(`x_${one}`)]),
    getState("x"),
    (x) => setState({ x, from: "", to: "" }),
  );
  const amount = el("output", { text: getState("smooth") });
  const slide = el("input", {
    type: "range",
    min: 0,
    max: 0.99,
    step: 0.01,
    value: getState("smooth"),
    "aria-label": t("smoothing"),
  });
  slide.addEventListener("input", () => {
    amount.textContent = slide.value;
    setState({ smooth: slide.value }, true);
  });
  const log = el("button", {
    text: t("log"),
    "aria-pressed": getState("log") === "1",
    onclick: () => setState({ log: getState("log") === "1" ? "" : "1" }),
  });
  const marks = el("button", {
    class: "marks-switch",
    text: t("marks"),
    title: `${t("marks_help")} (m)`,
    onclick: toggleMarks,
  });
  const reset = el("button", { text: `${t("reset_zoom")} (r)`, onclick: () => setZoom(null) });
  const sync = () => {
    reset.hidden = !zoomRange();
    log.setAttribute("aria-pressed", String(getState("log") === "1"));
    marks.setAttribute("aria-pressed", String(areMarksShown()));
    slide.value = getState("smooth");
    amount.textContent = getState("smooth");
    axis.querySelector("select").value = getState("x");
  };
  sync();
  return {
    nodes: [
      ...extra,
      axis,
      el("label", { class: "field" }, el("span", { text: t("smoothing") }), slide, amount),
      log,
      marks,
      reset,
    ],
    sync,
  };
}
