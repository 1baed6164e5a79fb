// The timeline of one step.
import { formatNumber, formatSeconds, textWidth, truncateStart } from "../text/format.js";
import { t } from "../text/language.js";
import { el, svg } from "../ui/dom.js";
import { addTooltip } from "../ui/tooltip.js";
import { secondTicks } from "./ticks.js";

const ROW = 24;
const LETTER = 6.5; // pixels
const MAX_TOLD = 12; // spans of a row that its tooltip lists

// One row per phase, by writer. Onload and offload are lower and lighter than the execution between them.
export function timelinePicture(timeline, colours, width) {
  const nameWidth = widthOfNames(timeline, width);
  const duration = timeline.end - timeline.start || 1;
  const x = (v) => nameWidth + (Math.max(0, v) / duration) * (width - nameWidth - 10);
  const count = timeline.groups.reduce((sum, group) => sum + group.rows.length + 1, 0);
  const height = count * ROW + 22;
  const picture = svg("svg", {
    class: "gantt",
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    "aria-label": t("one_step", { n: timeline.step }),
  });
  appendGrid(picture, x, duration, width, height);
  let y = 0;
  for (const group of timeline.groups) {
    picture.append(svg("text", { x: 0, y: y + 16, text: group.host ? `${group.host} · ${group.title}` : group.title }));
    y += ROW;
    for (const row of group.rows) {
      picture.append(timelineRow(row, { x, y, width, nameWidth, fill: colours.get(row.name) }));
      y += ROW;
    }
  }
  return picture;
}

// Room for the longest name, up to two fifths of the picture.
function widthOfNames(timeline, width) {
  const widths = timeline.groups.flatMap((group) => group.rows.map((row) => textWidth(row.name) + row.depth * 10));
  return Math.min(0.4 * width, Math.max(0.2 * width, ...widths.map((one) => one + 8)));
}

// The name, the bars and the seconds of a row, with a tooltip that lists its spans.
function timelineRow(row, { x, y, width, nameWidth, fill }) {
  const name = truncateStart(row.name, nameWidth - row.depth * 10);
  const texts = row.spans.map((span) => spanText(span));
  const node = svg(
    "g",
    { role: "img", "aria-label": `${row.name}: ${formatSeconds(row.seconds)}` },
    svg("rect", { class: "row", x: 0, y, width, height: ROW }),
    svg("text", { class: "name", x: 8 + row.depth * 10, y: y + 15, text: name }),
    row.spans.flatMap((span) => spanBars(span, x, y, fill)),
    secondsLabel(row, x, y, width, nameWidth),
  );
  return addTooltip(node, () => [
    el("strong", { text: `${row.name}: ${formatSeconds(row.seconds)}` }),
    ...texts.slice(0, MAX_TOLD).map((text) => el("p", { text })),
    texts.length > MAX_TOLD ? el("p", { text: t("more_spans", { n: texts.length - MAX_TOLD }) }) : "",
  ]);
}

// The seconds of a row, after its last bar, or before its first where there is no space.
function secondsLabel(row, x, y, width, nameWidth) {
  const text = formatSeconds(row.seconds);
  const space = text.length * LETTER + 8;
  const start = Math.min(...row.spans.map((span) => x(span.start)));
  const end = Math.max(...row.spans.map((span) => x(span.end)));
  if (end + space < width) return svg("text", { class: "seconds", x: end + 5, y: y + 16, text });
  const anchor = { "text-anchor": "end", y: y + 16, text };
  if (start - space > nameWidth) return svg("text", { class: "seconds", x: start - 5, ...anchor });
  return svg("text", { class: "seconds inside", x: end - 5, ...anchor });
}

function appendGrid(picture, x, duration, width, height) {
  for (const tick of secondTicks(duration, width < 600 ? 4 : 9)) {
    picture.append(
      svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: height - 18 }),
      svg("text", {
        x: Math.min(x(tick), width - 2),
        y: height - 5,
        "text-anchor": tick === 0 ? "start" : x(tick) > width - 30 ? "end" : "middle",
        text: formatSeconds(tick),
      }),
    );
  }
}

function spanText(span) {
  const parts = ["onload", "execute", "offload"].filter((name) => span[name] !== null && span[name] !== undefined);
  const tokens = span.tokens ? [t("tokens_count", { n: formatNumber(span.tokens) })] : [];
  const times = parts.map((name) => `${t(name)} ${formatSeconds(span[name])}`);
  return [formatSeconds(Math.max(0, span.end - span.start)), ...times, ...tokens].join(" · ");
}

function spanBars(span, x, y, fill) {
  const duration = Math.max(0, span.end - span.start);
  const load = Math.min(duration, span.onload ?? 0);
  const unload = Math.min(duration - load, span.offload ?? 0);
  const bar = (from, to, light) =>
    to > from &&
    svg("rect", {
      x: x(from),
      y: light ? y + 8 : y + 4,
      width: Math.max(1, x(to) - x(from)),
      height: light ? 8 : 16,
      rx: 2,
      class: `${span.failed ? "failed" : ""} ${span.open ? "open" : ""}`,
      "fill-opacity": light ? 0.4 : 1,
      style: { fill },
    });
  return [
    bar(span.start, span.start + load, true),
    bar(span.start + load, span.end - unload, false),
    bar(span.end - unload, span.end, true),
  ].filter(Boolean);
}
