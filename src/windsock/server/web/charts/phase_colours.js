// The colours of phases: one for each outermost phase, and shades of it for those inside it.
import { cssVariable, seriesColour } from "../ui/colours.js";

const SHADES = [62, 42, 80, 30]; // percent of the colour of the phase around it

// The colours of the outermost phases, by name.
export function phaseColours(phases) {
  return new Map(phases.filter((one) => !one.part).map((one, i) => [one.name, seriesColour(i)]));
}

// The colours of all rows of a timeline, by name: those of `outermost`, and new ones for others that no phase is around.
export function timelineColours(outermost, groups) {
  const colours = new Map(outermost);
  const inside = new Map(); // how many phases are inside one
  let others = outermost.size;
  for (const { rows } of groups) {
    const path = [];
    for (const { name, depth } of rows) {
      path.length = depth;
      path[depth] = name;
      if (colours.has(name)) continue;
      const around = path[depth - 1];
      if (!around) colours.set(name, seriesColour(others++));
      else {
        const number = inside.get(around) ?? 0;
        inside.set(around, number + 1);
        colours.set(name, shade(colours.get(around), number));
      }
    }
  }
  return colours;
}

function shade(colour, number) {
  return `color-mix(in oklab, ${colour} ${SHADES[number % SHADES.length]}%, ${cssVariable("--card")})`;
}
