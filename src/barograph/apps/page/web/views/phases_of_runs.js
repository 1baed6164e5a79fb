// The phases of several runs side by side: seconds per step and shares of it.
import { runs } from "../data/runs.js";
import { formatPercent, formatSeconds } from "../text/format.js";
import { t } from "../text/language.js";
import { breakable } from "../ui/cut_text.js";
import { panel, table } from "../ui/widgets.js";

// `data` is a comparison of runs.
export function phasesOfRuns(data) {
  const names = data.runs.map((one) => runs.get(one.key)?.name ?? one.name);
  const rows = data.phases.map((one) => [
    breakable(one.name),
    ...one.seconds.map(
      (seconds, i) => `${formatSeconds(seconds)}${one.share[i] ? ` · ${formatPercent(one.share[i])}` : ""}`,
    ),
  ]);
  return panel(t("phase_diff"), t("per_step"), table([t("phase"), ...names], rows, "right"));
}
