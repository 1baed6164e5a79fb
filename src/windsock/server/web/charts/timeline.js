// The timeline of one step.
import { formatNumber, formatSeconds, truncateStart } from "../text/format.js";
import { t } from "../text/language.js";
import { seriesColour } from "../ui/colours.js";
import { svg } from "../ui/dom.js";

const ROW = 24;

// One row per phase, by writer. Onload and offload are lower and lighter than the execution between them.
export function timelinePicture(timeline, colours, width) {
  const nameWidth = width < 600 ? 110 : 190;
  const duration = timeline.end - timeline.start || 1;
  const x = (v) => nameWidth + (Math.max(0, v) / duration) * (width - nameWidth - 10);
  const count = timeline.groups.reduce((sum, group) => sum + group.rows.length + 1, 0);
  const height = count * ROW + 22;
  const picture = svg("svg", {
    class: "gantt",
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": t("one_step", { n: timeline.step }),
  });
  appendGrid(picture, x, duration, width < 600 ? 2 : 5, height);
  let y = 0;
  for (const group of timeline.groups) {
    picture.append(svg("text", { x: 0, y: y + 16, text: group.title }));
    y += ROW;
    for (const row of group.rows) {
      picture.append(
        svg(
          "text",
          { class: "name", x: 8 + row.depth * 10, y: y + 15, text: truncateStart(row.name, nameWidth) },
          svg("title", { text: row.name }),
        ),
      );
      const fill = seriesColour(colours.get(row.name) ?? 7);
      for (const span of row.spans) picture.append(...spanBars(span, row, x, y, fill));
      y += ROW;
    }
  }
  return picture;
}

function appendGrid(picture, x, duration, ticks, height) {
  for (let i = 0; i <= ticks; i++) {
    const tickX = x((duration * i) / ticks);
    picture.append(
      svg("line", { class: "grid", x1: tickX, x2: tickX, y1: 0, y2: height - 18 }),
      svg("text", {
        x: tickX,
        y: height - 5,
        "text-anchor": i === ticks ? "end" : i ? "middle" : "start",
        text: formatSeconds((duration * i) / ticks),
      }),
    );
  }
}

// The bars of a span, with one text for all.
function spanBars(span, row, x, y, fill) {
  const duration = Math.max(0, span.end - span.start);
  const load = Math.min(duration, span.onload ?? 0);
  const unload = Math.min(duration - load, span.offload ?? 0);
  const parts = ["onload", "execute", "offload"].map((name) => `${t(name)} ${formatSeconds(span[name])}`);
  const tokens = span.tokens ? [`${formatNumber(span.tokens)} tokens`] : [];
  const text = [`${row.name}: ${formatSeconds(duration)}`, ...parts, ...tokens].join(" · ");
  const bar = (from, to, light) =>
    to > from &&
    svg(
      "rect",
      {
        x: x(from),
        y: light ? y + 8 : y + 4,
        width: Math.max(1, x(to) - x(from)),
        height: light ? 8 : 16,
        rx: 2,
        class: `${span.failed ? "failed" : ""} ${span.open ? "open" : ""}`,
        "fill-opacity": light ? 0.4 : 1,
        style: { fill },
      },
      svg("title", { text }),
    );
  return [
    bar(span.start, span.start + load, true),
    bar(span.start + load, span.end - unload, false),
    bar(span.end - unload, span.end, true),
  ].filter(Boolean);
}
