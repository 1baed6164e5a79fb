// Marks on a plot where findings begin or something happened: a line for each, and heads that say what.
import { findingKey, shownMarks } from "../data/marks.js";
import { runs, selectedRuns } from "../data/runs.js";
import { localized, t } from "../text/language.js";
import { cssVariable } from "../ui/colours.js";
import { el } from "../ui/dom.js";
import { addTooltip } from "../ui/tooltip.js";
import { stateLink } from "../ui/widgets.js";

const NEAR = 9; // pixels: heads that are closer share one
const SEVERITIES = ["critical", "warning", "info"];

export function severityWord(severity) {
  return { critical: "bad", warning: "watch" }[severity] ?? "unknown";
}

// The marks within the range of an axis, each with its place on it.
export function marksWithin(axis, [first, last]) {
  const placed = shownMarks().map((mark) => ({ ...mark, x: mark.from[axis] }));
  return placed.filter(({ x }) => x !== undefined && x >= first && x <= last).sort((a, b) => a.x - b.x);
}

// Marks whose places are near each other, as groups; `placeOf` returns the place of a mark in pixels.
export function nearGroups(marks, placeOf) {
  const groups = [];
  for (const mark of marks) {
    const place = placeOf(mark);
    const group = groups.at(-1);
    if (group && place - group.place < NEAR) group.marks.push(mark);
    else groups.push({ place, marks: [mark] });
  }
  return groups;
}

export function worst(marks) {
  const rank = (mark) => SEVERITIES.indexOf(mark.severity) + (mark.is_open ? 0 : SEVERITIES.length);
  return marks.reduce((a, b) => (rank(b) < rank(a) ? b : a));
}

function colourOf({ severity, is_open }) {
  return cssVariable(is_open && severity !== "info" ? `--${severityWord(severity)}` : "--quiet");
}

// A dashed line for each mark, from the top of the plot to its bottom.
export function drawMarkLines(ctx, marks, scale, { top, height }) {
  ctx.save();
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.lineWidth = devicePixelRatio;
  for (const mark of marks) {
    ctx.strokeStyle = colourOf(mark);
    ctx.globalAlpha = mark.is_open ? 0.8 : 0.4;
    ctx.beginPath();
    ctx.moveTo(scale.x(mark.x), top);
    ctx.lineTo(scale.x(mark.x), top + height);
    ctx.stroke();
  }
  ctx.restore();
}

// The stretch of a finding, behind the curves, and its first step; one that is open lasts to the end of the plot.
export function drawStretch(ctx, mark, axis, scale, { top, left, width, height }) {
  const begin = scale.x(mark.from[axis]);
  const start = Math.max(left, begin);
  const end = mark.is_open
    ? left + width
    : Math.min(left + width, Math.max(begin + devicePixelRatio, scale.x(mark.to[axis])));
  if (!(end > start)) return;
  ctx.save();
  ctx.fillStyle = cssVariable("--card"); // a tint over the healthy band would be of a colour that means nothing
  ctx.fillRect(start, top, end - start, height);
  ctx.fillStyle = colourOf(mark);
  ctx.globalAlpha = 0.12;
  ctx.fillRect(start, top, end - start, height);
  ctx.globalAlpha = 1;
  if (begin >= left) ctx.fillRect(begin, top, devicePixelRatio, height);
  ctx.restore();
}

// The heads above the lines: links with a tooltip, so that they are reached with the keyboard too.
export function markHeads(groups) {
  return groups.map(({ place, marks }) => {
    const first = worst(marks);
    const { kind, severity, is_open } = first;
    const options = {
      class: `mark-head ${kind ? "moment" : is_open ? severityWord(severity) : "over"}`,
      style: { left: `${place}px` },
      "aria-label": marks.map(markText).join("; "),
    };
    const head = kind
      ? el("span", { ...options, role: "img" })
      : stateLink({ tab: "findings", finding: findingKey(first) }, options);
    head.addEventListener("mousedown", (event) => event.stopPropagation()); // else the plot starts a zoom
    return addTooltip(head, () => [runName(), ...marks.map((mark) => el("p", { text: markText(mark) }))]);
  });
}

// Whose findings are marked, where the chart has several runs.
function runName() {
  const [first, ...others] = selectedRuns();
  return others.length ? el("strong", { text: runs.get(first).name }) : "";
}

function markText({ kind, step, text, title, onset, is_open }) {
  if (kind) return [t(`moment_${kind}`), t("at_step", { n: step }), text].filter(Boolean).join(" · ");
  return `${localized(title)} · ${t("since_step", { n: onset })}${is_open ? "" : ` · ${t("over")}`}`;
}
