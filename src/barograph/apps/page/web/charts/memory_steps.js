// The memory of one device through a step: a bar for each moment of each phase.
import { formatNumber, formatPercent, truncateStart } from "../text/format.js";
import { localized, t } from "../text/language.js";
import { cssVariable, seriesColour } from "../ui/colours.js";
import { el, svg } from "../ui/dom.js";
import { swatch } from "../ui/widgets.js";

const HEIGHT = 250;
const LEFT = 50; // of the first bar: the labels are beside it

// The picture, its legend and a summary; `data` is the response of /memory.
export function memorySteps(data, device, width) {
  const moments = data.stairs.filter((one) => one.device === device);
  const capacity = data.capacity[device] ?? null;
  const highest = Math.max(...moments.map(highestOf));
  // A capacity far above the bars would press them flat: then only the legend shows it.
  const offScale = capacity > 3 * highest;
  const top = (offScale ? highest : Math.max(capacity, highest)) || 1;
  const layout = {
    width,
    barWidth: (width - LEFT) / moments.length,
    y: (v) => HEIGHT - 6 - (v / top) * (HEIGHT - 24),
  };
  const picture = svg("svg", {
    class: "gantt",
    viewBox: `0 0 ${width} ${HEIGHT + 34}`,
    role: "img",
    "aria-label": `${t("stairs", { n: data.step })} ${device}`,
  });
  picture.append(...[0, 0.5, 1].flatMap((share) => gridLine(share * top, layout)));
  moments.forEach((one, i) => {
    picture.append(...momentBars(one, i, layout, data), ...momentLabels(moments, i, layout));
  });
  if (capacity && !offScale) {
    const style = { stroke: cssVariable("--bad"), "stroke-dasharray": "5 4" };
    picture.append(horizontalLine(LEFT, width, layout.y(capacity), { style }));
  }
  return { picture, legend: legend(data, capacity, offScale), summary: summary(data, moments, capacity) };
}

function highestOf({ max_reserved, reserved, max_allocated, allocated }) {
  return Math.max(max_reserved ?? 0, reserved ?? 0, max_allocated ?? 0, allocated ?? 0);
}

function horizontalLine(x1, x2, y, props, ...children) {
  return svg("line", { x1, x2, y1: y, y2: y, ...props }, ...children);
}

function gridLine(value, { width, y }) {
  return [
    horizontalLine(LEFT, width, y(value), { class: "grid" }),
    svg("text", { x: 0, y: y(value) + 4, text: formatNumber(Number(value.toPrecision(3))) }),
  ];
}

// Allocated and reserved memory as bars, the peak as a line above them.
function momentBars(one, i, { barWidth, y }, data) {
  const x = LEFT + i * barWidth;
  const peak = one.max_allocated ?? one.max_reserved;
  const values = [
    `${t("allocated")} ${formatNumber(one.allocated)}`,
    `${t("reserved")} ${formatNumber(one.reserved)}`,
    `${t("peak")} ${formatNumber(peak)} ${data.unit}`,
  ];
  const text = `${one.phase} · ${localized(data.moments[one.moment]) || one.moment}: ${values.join(", ")}`;
  const bar = (value, opacity) => {
    if (value === undefined || value === null) return null;
    const size = { x: x + 1, width: barWidth - 2, y: y(value), height: Math.max(0, y(0) - y(value)) };
    const style = { fill: seriesColour(0) };
    return svg("rect", { ...size, "fill-opacity": opacity, style }, svg("title", { text }));
  };
  const peakLine = () => {
    const style = { stroke: seriesColour(1), "stroke-width": 2 };
    return horizontalLine(x + 1, x + barWidth - 1, y(peak), { style }, svg("title", { text }));
  };
  return [bar(one.reserved, 0.25), bar(one.allocated, 0.85), peak === undefined ? null : peakLine()].filter(Boolean);
}

// The name of a phase at its first moment, and the names of the moments where there is space.
function momentLabels(moments, i, { barWidth }) {
  const { phase, moment } = moments[i];
  const x = LEFT + i * barWidth;
  const labels = [];
  if (i && moments[i - 1].phase !== phase) {
    labels.push(svg("line", { class: "grid", x1: x, x2: x, y1: 6, y2: HEIGHT + 20 }));
  }
  if (!i || moments[i - 1].phase !== phase) {
    const phaseWidth = barWidth * moments.filter((other) => other.phase === phase).length;
    labels.push(svg("text", { class: "name", x: x + 3, y: HEIGHT + 28, text: truncateStart(phase, phaseWidth) }));
  }
  if (barWidth > 68) {
    labels.push(svg("text", { x: x + barWidth / 2, y: HEIGHT + 11, "text-anchor": "middle", text: moment }));
  }
  return labels;
}

function legend(data, capacity, offScale) {
  const size = capacity && `${formatNumber(Number(capacity.toPrecision(4)))} ${data.unit}${offScale ? " ↑" : ""}`;
  return el(
    "div",
    { class: "legend" },
    swatch(seriesColour(0), t("allocated")),
    swatch(`color-mix(in srgb, ${seriesColour(0)} 25%, ${cssVariable("--card")})`, t("reserved")),
    swatch(seriesColour(1), t("peak")),
    capacity ? swatch(cssVariable("--bad"), `${t("capacity")} ${size}`) : null,
  );
}

// The highest peak of the step, and its share of the device.
function summary({ unit }, moments, capacity) {
  const peaks = moments.map((one) => one.max_reserved ?? one.max_allocated ?? one.reserved ?? one.allocated ?? 0);
  const peak = Math.max(...peaks);
  const text = `${t("peak")} ${formatNumber(peak)} ${unit}`;
  if (!capacity) return text;
  const size = `${formatNumber(Number(capacity.toPrecision(3)))} ${unit}`;
  return `${text} · ${t("of_capacity", { p: formatPercent(peak / capacity), c: size })}`;
}
