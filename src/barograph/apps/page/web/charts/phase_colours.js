// The colours of phases: one for each outermost phase, and shades of it for those inside it.
import { cssVariable, PALETTE_SIZE, seriesColour } from "../ui/colours.js";

const SHADES = [62, 42, 80, 30]; // percent of the colour of the phase around it
const ROUNDS = [100, 64, 84]; // percent of a colour of the palette when it is used again: far from all others

// The colours of the outermost phases, by name.
export function phaseColours(phases) {
  return new Map(phases.filter((one) => !one.part).map((one, i) => [one.name, phaseColour(i)]));
}

// The colours of all rows of a timeline, by name: those of `outermost`, and new ones for others that no phase is around.
// `names` are all phases of the run: a shade is that of its place among them, at every step.
export function timelineColours(outermost, groups, names) {
  const colours = new Map(outermost);
  let others = outermost.size;
  for (const { rows } of groups) {
    const path = [];
    for (const { name, depth } of rows) {
      path.length = depth;
      path[depth] = name;
      if (colours.has(name)) continue;
      const around = path[depth - 1];
      if (!around) colours.set(name, phaseColour(others++));
      else colours.set(name, shade(colours.get(around), Math.max(0, names.indexOf(name))));
    }
  }
  return colours;
}

// The colour of an outermost phase by its number: different ones for three times as many as the palette has.
function phaseColour(number) {
  const share = ROUNDS[Math.floor(number / PALETTE_SIZE) % ROUNDS.length];
  return share === 100 ? seriesColour(number) : paler(seriesColour(number), share);
}

function shade(colour, number) {
  return paler(colour, SHADES[number % SHADES.length]);
}

function paler(colour, share) {
  return `color-mix(in oklab, ${colour} ${share}%, ${cssVariable("--card")})`;
}
