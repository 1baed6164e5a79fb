"""Rules on the reward: whether it rises, falls or saturates, and whether another stream agrees with it."""

from __future__ import annotations

import numpy as np

from barograph.base.arrays import Floats, Ints
from barograph.diagnosis.rule import (
    STUCK_STEPS,
    Case,
    Flags,
    RuleReading,
    Spell,
    UnmeasuredError,
    after,
    graded,
    held_at,
    noise,
    rule,
    share_without_signal,
    values_at,
)
from barograph.metrics.tracks import MIN_TREND, Track, kendall_chance, rise

MIN_FLAT_ROWS, MIN_FLAT_STEPS = 40, 60
MIN_EVALUATIONS = 6
MIN_COUNTED = 4  # evaluations, where the number of answers is known
FORMAT_STEPS = 200  # in which a model may learn the format before the task


@rule("reward_flat", "reward", rows=MIN_FLAT_ROWS)
def reward_flat(case: Case) -> RuleReading:
    """The reward has no trend; a warning only where something else shows that little is learnt."""
    reward = case.need("reward")
    trend = reward.trend
    enough = after(len(reward), MIN_FLAT_ROWS) & (reward.steps - reward.steps[0] >= MIN_FLAT_STEPS)
    rose_at_once = reward.mean(10) - reward.first(5) > 3 * noise(reward.finite)
    flat = enough & (trend.chance > 0.05) & (np.abs(trend.effect) < 1.0) & ~rose_at_once
    hindered = _is_hindered(case, reward) & (reward.steps - reward.steps[0] >= STUCK_STEPS)
    thirds = max(1, len(reward) // 3)
    return RuleReading(
        reward,
        graded(len(reward), info=flat, warning=flat & hindered),
        lambda spell: {
            "name": reward.name,
            "rows": spell.last + 1,
            "start": float(np.nanmean(reward.finite[:thirds])),
            "now": float(np.nanmean(reward.finite[max(0, spell.last - thirds) : spell.last + 1])),
        },
        lambda spell: 0,
    )


def _is_hindered(case: Case, reward: Track) -> Flags:
    """Return whether cut answers or equal rewards keep the run from learning."""
    cut = case.at("truncated", reward.steps)
    signal = share_without_signal(case)
    equal = np.zeros(len(reward)) if signal is None else values_at(signal[0].steps, signal[1], reward.steps)
    found: Flags = (cut >= 0.25) | (equal >= 0.65)
    return found


@rule("reward_falling", "reward", rows=MIN_TREND)
def reward_falling(case: Case) -> RuleReading:
    """The reward falls over the run, or has lost most of what it had gained for a fifth of the run."""
    reward = case.need("reward")
    level, rows = reward.mean(10), np.arange(len(reward))
    start, best = reward.first(10), np.fmax.accumulate(level)
    margin = max(noise(reward.finite), 1e-12)
    falling = (reward.trend.chance < 0.01) & (reward.trend.effect < -1.0) & (rows >= 30)
    lost = (best - level > 0.6 * (best - start)) & (best - start > 3 * margin) & (best - level > 2 * margin)
    long_lost = _streak(lost) >= np.maximum(20, 0.2 * rows)

    def peak(spell: Spell) -> int:
        return int(np.nanargmax(level[: spell.first + 1]))

    return RuleReading(
        reward,
        graded(len(reward), critical=falling | long_lost),
        lambda spell: {
            "name": reward.name,
            "best": float(level[peak(spell)]),
            "step": int(reward.steps[peak(spell)]),
            "now": float(level[spell.last]),
        },
        peak,
    )


def _streak(condition: Flags) -> Ints:
    """Return for how many rows a condition has held without a break, at each row."""
    rows = np.arange(1, len(condition) + 1)
    broken = np.maximum.accumulate(np.where(condition, 0, rows))
    found: Ints = rows - broken
    return found


@rule("reward_saturated", "reward", rows=MIN_TREND)
def reward_saturated(case: Case) -> RuleReading:
    """The reward stays at the top of what it reached."""
    reward = case.need("reward")
    start, now, top = reward.first(5), reward.mean(20), np.fmax.accumulate(reward.finite)
    gained = top - start
    before = np.concatenate([np.full(min(20, len(now)), np.nan), now[:-20]])[: len(now)]
    near = (top - now < 0.05 * gained) & (gained > 5 * noise(reward.finite)) & (np.abs(now - before) < 0.02 * gained)
    return RuleReading(
        reward, graded(len(reward), info=near), lambda spell: {"name": reward.name, "now": float(now[spell.last])}
    )


@rule(
    "proxy_gold_gap",
    "reward",
    "validation",
    explains=("reward_saturated", "length_explosion", "truncation", "val_train_gap"),
    persist=1,
    rows=MIN_EVALUATIONS,
)
def proxy_gold_gap(case: Case) -> RuleReading:
    """The reward rises while the validation falls."""
    reward = case.need("trained_reward", "reward")
    held_out = [track for track in case.families.get("validation", ()) if len(track) >= MIN_COUNTED]
    if not held_out:
        raise UnmeasuredError("no_validation")
    readings = [_gap(reward, track, _answers(case, track)) for track in held_out]
    return max(readings, key=lambda reading: int(reading.levels.max()))


def _answers(case: Case, track: Track) -> Floats:
    """Return the number of answers behind each value of a validation that is a share; NaN where it is not known."""
    known = track.metric == "validation/score/mean" and _is_share(track)
    return case.at("evaluated", track.steps) if known else np.full(len(track), np.nan)


def _gap(reward: Track, track: Track, answers: Floats) -> RuleReading:
    rows = np.searchsorted(reward.steps, track.steps, "right")
    found = track.scheduled(
        ("gap", reward.name), lambda count: _gap_after(reward, track, rows[:count], answers), (0, 0, 0), MIN_COUNTED
    )
    lower, peaks, sure = found[:, 0], found[:, 1].astype(int), found[:, 2] > 0
    again = np.concatenate([[False], lower[:-1] > 0])  # without the number of answers, one evaluation is no evidence
    levels = np.where(sure | again, lower, 0).astype(np.int8)
    smooth = _smoothed(track.finite)

    def turning(spell: Spell) -> int:
        """Return the row of the best validation: the best beside the smoothed peak, or one that is far above it."""
        peak, best = int(peaks[spell.last]), int(np.argmax(track.finite[: spell.last + 1]))
        first = max(0, peak - 1)
        beside = first + int(np.argmax(track.finite[first : min(peak + 2, spell.last + 1)]))
        return best if track.finite[best] > 2 * smooth[peak] else beside

    return RuleReading(
        track,
        levels,
        lambda spell: {
            "reward": reward.name,
            "name": track.name,
            "best": float(track.finite[turning(spell)]),
            "step": int(track.steps[turning(spell)]),
            "now": float(smooth[spell.last]),
        },
        turning,
        (reward,),
    )


def _gap_after(reward: Track, track: Track, rows: Ints, answers: Floats) -> tuple[int, int, bool]:
    """Return the level after some evaluations, the best of them, and whether the last one alone shows a fall.

    ``rows`` are those of the reward before each evaluation.
    """
    known = track.finite[: len(rows)]
    smooth = _smoothed(known)
    peak = int(np.argmax(smooth))
    lost = smooth[peak] - float(np.median(known[-3:]))
    gained = max(smooth[peak] - smooth[0], 0.0)
    gave_back = len(rows) - 1 - peak >= 3 and lost > 0.3 * gained and lost > 2 * noise(known)
    falls = kendall_chance(known) < 0.01 and rise(known) < -1.0
    sure = _fell_for_sure(known, answers[: len(rows)])
    fell = sure or (len(rows) >= MIN_EVALUATIONS and (gave_back or falls))
    if not fell or not _holds(reward.finite[: rows[-1]], peak_row=int(rows[peak])):
        return 0, peak, False
    return (3 if sure or lost > 0.5 * max(gained, 1e-12) else 2), peak, sure


def _fell_for_sure(values: Floats, answers: Floats) -> bool:
    """Return whether the last share is below the best by five standard errors; answers to one task are alike."""
    best = int(np.argmax(values))
    errors = values * (1 - values) / answers
    return bool(values[best] - values[-1] > 5 * np.sqrt(errors[best] + errors[-1]))


def _holds(rewards: Floats, peak_row: int) -> bool:
    """Return whether the reward has risen over the run and not fallen since the best validation."""
    since = rewards[max(0, peak_row - 1) :]
    has_risen = len(rewards) >= 20 and rise(rewards) > 1.0 and kendall_chance(rewards) < 1e-3
    return has_risen and not (kendall_chance(since) < 0.01 and rise(since) < 0)


def _smoothed(values: Floats) -> Floats:
    """Return the median of each value and its neighbours; one evaluation is noisy."""
    padded = np.concatenate([values[:1], values, values[-1:]])
    found: Floats = np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0)
    return found


@rule("component_tradeoff", "reward", "component", rows=MIN_TREND)
def component_tradeoff(case: Case) -> RuleReading:
    """The reward rises while one of its components falls."""
    reward, parts = case.need("reward"), case.families.get("component", ())
    if len(parts) < 2:
        raise UnmeasuredError("one_component")
    rising = (reward.trend.effect > 1) & (reward.trend.chance < 1e-3)
    readings = [_tradeoff(reward, rising, part) for part in parts]
    return max(readings, key=lambda reading: int(reading.levels.max(initial=0)))


def _tradeoff(reward: Track, rising: Flags, part: Track) -> RuleReading:
    falls = (part.trend.chance < 1e-3) & (part.trend.effect < -1.0) & after(len(part), 40)
    both = falls & held_at(reward, rising, part.steps)
    return RuleReading(
        part,
        graded(len(part), warning=both),
        lambda spell: {"reward": reward.name, "name": part.name},
        beside=(reward,),
    )


@rule("format_only_gain", "reward", "component", rows=MIN_FLAT_ROWS)
def format_only_gain(case: Case) -> RuleReading:
    """The component that differs most between answers has no trend, while others make the gain of the reward."""
    reward, parts = case.need("reward"), case.family("component", "component")
    if len(parts) < 2:
        raise UnmeasuredError("one_component")
    weights = {name: _weight(case, name, part) for name, part in parts.items()}
    main = max(weights, key=lambda name: weights[name])
    task, others = parts[main], [part for name, part in parts.items() if name != main]
    rising = (reward.trend.effect > 1) & (reward.trend.chance < 1e-3)
    still = (task.trend.chance > 0.05) & (np.abs(task.trend.effect) < 0.5)
    late = after(len(task), MIN_FLAT_ROWS) & (task.steps - task.steps[0] >= FORMAT_STEPS)
    gain = max(others, key=lambda part: float(part.mean(10)[-1] - part.first(10)))
    return RuleReading(
        task,
        graded(len(task), warning=still & late & held_at(reward, rising, task.steps)),
        lambda spell: {"reward": reward.name, "name": task.name, "other": gain.name},
        lambda spell: 0,
        (reward, gain),
    )


def _weight(case: Case, name: str, part: Track) -> float:
    """Return how much a component differs between answers: its deviation, else the range of its means."""
    deviation = case.family("component_std", "component").get(name)
    if deviation is not None:
        return deviation.first(len(deviation))
    return float(np.nanmax(part.finite) - np.nanmin(part.finite))


@rule("val_train_gap", "reward", "validation", persist=2, rows=MIN_EVALUATIONS)
def val_train_gap(case: Case) -> RuleReading:
    """The reward rises and the validation does not: what is learnt holds for the training prompts only."""
    reward = case.need("reward")
    held_out = [track for track in case.families.get("validation", ()) if len(track) >= MIN_EVALUATIONS]
    if not held_out:
        raise UnmeasuredError("no_validation")
    same = [track for track in held_out if _is_share(track) and _is_share(reward)]
    if not same:
        raise UnmeasuredError("other_scale", reward=reward.name, name=held_out[0].name)
    readings = [_widening(reward, track) for track in same]
    return max(readings, key=lambda reading: int(reading.levels.max(initial=0)))


def _is_share(track: Track) -> bool:
    return bool(np.nanmin(track.finite) >= 0 and np.nanmax(track.finite) <= 1)


def _widening(reward: Track, track: Track) -> RuleReading:
    """Judge the distance of training and validation, which are both shares."""
    # Not a number for an evaluation before the first step of the training.
    gap = values_at(reward.steps, reward.mean(10), track.steps) - track.finite
    levels = track.scheduled(
        ("widening", reward.name), lambda rows: (_wider(gap[:rows], track.finite[:rows]),), (0,), MIN_EVALUATIONS
    )
    return RuleReading(
        track,
        levels[:, 0].astype(np.int8),
        lambda spell: {
            "reward": reward.name,
            "name": track.name,
            "start": percent_points(gap[np.isfinite(gap)][0]),
            "now": percent_points(gap[spell.last]),
        },
        lambda spell: 0,
        (reward,),
    )


def _wider(gap: Floats, validation: Floats) -> int:
    """Return the level after some evaluations, of which ``gap`` is the distance to the training."""
    gap = gap[np.isfinite(gap)]
    wider = float(np.median(gap[-3:]) - np.median(gap[:3])) if len(gap) else 0.0
    if wider <= 0.1 or kendall_chance(gap) >= 0.01:
        return 0
    still = kendall_chance(validation) > 0.05 or rise(validation) < 0
    return 2 if wider > 0.2 and still else 1


def percent_points(difference: float) -> str:
    """Return a difference of shares in percentage points."""
    return f"{100 * difference:+.0f}"
