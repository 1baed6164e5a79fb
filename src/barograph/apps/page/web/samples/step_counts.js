// Samples of one prompt counted by step, as the server does it: step_counts.py.
import { toNumber } from "../text/format.js";

// How many samples each step has, their mean reward and the share that is solved; null where it is not known.
export function stepCounts(all) {
  const steps = [...new Set(all.map((one) => one.step))].sort((a, b) => a - b);
  const groups = steps.map((step) => all.filter((one) => one.step === step));
  return {
    steps,
    samples: groups.map((group) => group.length),
    reward: groups.map((group) => mean(group.map(totalReward))),
    solved: groups.map((group) => mean(group.map(isSolved))),
    share: mean(all.map(isSolved)),
  };
}

// The reward; without a total the only component.
function totalReward({ reward, rewards }) {
  const parts = Object.values(rewards ?? {});
  return toNumber(reward ?? (parts.length === 1 ? parts[0] : null));
}

// 1 for a sample that is right, by its answer or, without one, by a reward above 0; 0 for others; NaN if unknown.
function isSolved(sample) {
  const { columns, answer, reference } = sample;
  if (typeof columns?.correct === "boolean" || Number.isFinite(columns?.correct)) return Number(columns.correct > 0);
  if ((answer ?? null) !== null && (reference ?? null) !== null) return Number(answer === reference);
  const reward = totalReward(sample);
  return Number.isNaN(reward) ? reward : Number(reward > 0);
}

function mean(values) {
  const known = values.filter((value) => !Number.isNaN(value));
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

// At most `count` of the steps at even distances, with the first, the last and the one in view.
export function shownSteps(steps, inView, count) {
  if (steps.length <= count) return steps;
  const shown = Array.from({ length: count }, (_, i) => steps[Math.round((i / (count - 1)) * (steps.length - 1))]);
  if (shown.includes(inView) || !steps.includes(inView)) return shown;
  const inner = shown.slice(1, -1);
  const nearest = inner.reduce((best, step) => (Math.abs(step - inView) < Math.abs(best - inView) ? step : best));
  return shown.map((step) => (step === nearest ? inView : step));
}
