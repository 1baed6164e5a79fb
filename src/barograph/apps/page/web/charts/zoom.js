// The zoomed range of the x axis, in the URL.
import { getState, setState } from "../data/url_state.js";

export function zoomRange() {
  const range = [getState("from"), getState("to")];
  return range.includes("") ? null : range.map(Number);
}

export function setZoom(range) {
  setState(range ? { from: rounded(range[0]), to: rounded(range[1]) } : { from: "", to: "" });
}

function rounded(end) {
  return getState("x") === "step" ? Math.round(end * 10) / 10 : end;
}
