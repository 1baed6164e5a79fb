// The sparkline of a run's reward.
import { toNumber } from "../text/format.js";
import { seriesColour } from "../ui/colours.js";
import { svg } from "../ui/dom.js";

// A vertical stroke per bucket, from its minimum to its maximum.
export function sparkline(reward, colour) {
  const width = 66;
  const height = 22;
  const picture = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const low = (reward?.spark.min ?? []).map(toNumber);
  const high = reward?.spark.max?.map(toNumber) ?? low; // left out where they are the same
  const finite = [...low, ...high].filter(Number.isFinite);
  if (!finite.length) return picture;
  const bottom = Math.min(...finite);
  const span = Math.max(...finite) - bottom || 1;
  const x = (i) => (low.length === 1 ? width / 2 : 2 + (i / (low.length - 1)) * (width - 4));
  const y = (v) => height - 3 - ((v - bottom) / span) * (height - 6);
  let text = "";
  low.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    text += `${text ? "L" : "M"}${x(i).toFixed(1)} ${y(high[i]).toFixed(1)}L${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  picture.append(svg("path", { d: text, style: { stroke: seriesColour(colour) } }));
  return picture;
}
