// The phases of steps as stacked bars, with a legend.
import { formatPercent, formatSeconds } from "../text/format.js";
import { t } from "../text/language.js";
import { cssVariable } from "../ui/colours.js";
import { swatch } from "../ui/widgets.js";
import { phaseColours } from "./phase_colours.js";

// Show the seconds of phases over steps, or with `share` their shares of the step.
export function drawPhases(bars, time, share, legend) {
  const totals = time.steps.map((_, i) => time.step_seconds[i] ?? phaseSum(time, i));
  const scaled = (values) => (share ? values.map((v, i) => (totals[i] ? (v ?? 0) / totals[i] : 0)) : values);
  const shown = time.phases.filter((phase) => !phase.part);
  const colours = phaseColours(time.phases);
  const layers = shown.map((phase) => ({
    name: phase.name,
    fill: colours.get(phase.name),
    values: scaled(phase.seconds),
    share: phase.share,
  }));
  layers.push({ name: t("unaccounted"), fill: cssVariable("--hair-strong"), values: scaled(time.unaccounted ?? []) });
  bars.setData({
    steps: time.steps,
    ends: time.steps_end,
    layers,
    totals: share ? [] : totals,
    isSeconds: !share,
    format: share ? (v) => `${(100 * v).toFixed(0)}%` : formatSeconds,
  });
  legend.replaceChildren(
    ...layers.map(({ fill, name, share }) => swatch(fill, `${name}${share ? ` ${formatPercent(share)}` : ""}`)),
  );
}

function phaseSum(time, i) {
  return time.phases.reduce((sum, phase) => sum + (phase.part ? 0 : (phase.seconds[i] ?? 0)), 0);
}
