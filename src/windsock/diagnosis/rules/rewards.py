"""Rules on the reward: whether it rises, falls or saturates, and whether another stream agrees with it."""

from __future__ import annotations

import numpy as np

from windsock.diagnosis.case import Case, values_at
from windsock.diagnosis.rule import Reading, Spell, Unmeasured, graded, rule, unmeasured
from windsock.diagnosis.rules.learning_signal import STUCK_STEPS, share_without_signal
from windsock.diagnosis.rules.shared import Flags, after, held_at
from windsock.diagnosis.tracks import Floats, Ints, Track, kendall_chance, rise

MIN_FLAT_ROWS, MIN_FLAT_STEPS = 40, 60
MIN_EVALUATIONS = 6


def _noise(values: Floats) -> float:
    """Return the standard deviation of single rows around their neighbours."""
    differences = np.diff(values)
    differences = differences[np.isfinite(differences)]
    return float(np.std(differences) / np.sqrt(2)) if len(differences) else 0.0


@rule("reward_flat", "reward", rows=MIN_FLAT_ROWS)
def reward_flat(case: Case) -> Reading | Unmeasured:
    """The reward has no trend; a warning only where something else shows that little is learnt."""
    reward = case.get("reward")
    if reward is None:
        return unmeasured("not_logged")
    trend = reward.trend
    enough = after(len(reward), MIN_FLAT_ROWS) & (reward.steps - reward.steps[0] >= MIN_FLAT_STEPS)
    rose_at_once = reward.mean(10) - reward.first(5) > 3 * _noise(reward.finite)
    flat = enough & (trend.chance > 0.05) & (np.abs(trend.effect) < 1.0) & ~rose_at_once
    hindered = _is_hindered(case, reward) & (reward.steps - reward.steps[0] >= STUCK_STEPS)
    thirds = max(1, len(reward) // 3)
    return Reading(
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


@rule("reward_falling", "reward")
def reward_falling(case: Case) -> Reading | Unmeasured:
    """The reward falls over the run, or has lost most of what it had gained for a fifth of the run."""
    reward = case.get("reward")
    if reward is None:
        return unmeasured("not_logged")
    level, rows = reward.mean(10), np.arange(len(reward))
    start, best = reward.first(10), np.fmax.accumulate(level)
    margin = max(_noise(reward.finite), 1e-12)
    falling = (reward.trend.chance < 0.01) & (reward.trend.effect < -1.0) & (rows >= 30)
    lost = (best - level > 0.6 * (best - start)) & (best - start > 3 * margin) & (best - level > 2 * margin)
    long_lost = _streak(lost) >= np.maximum(20, 0.2 * rows)

    def peak(spell: Spell) -> int:
        return int(np.nanargmax(level[: spell.first + 1]))

    return Reading(
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


@rule("reward_saturated", "reward")
def reward_saturated(case: Case) -> Reading | Unmeasured:
    """The reward stays at the top of what it reached."""
    reward = case.get("reward")
    if reward is None:
        return unmeasured("not_logged")
    start, now, top = reward.first(5), reward.mean(20), np.fmax.accumulate(reward.finite)
    gained = top - start
    before = np.concatenate([np.full(min(20, len(now)), np.nan), now[:-20]])[: len(now)]
    near = (top - now < 0.05 * gained) & (gained > 5 * _noise(reward.finite)) & (np.abs(now - before) < 0.02 * gained)
    return Reading(
        reward, graded(len(reward), info=near), lambda spell: {"name": reward.name, "now": float(now[spell.last])}
    )


@rule(
    "proxy_gold_gap",
    "reward",
    "validation",
    explains=("reward_saturated", "length_explosion", "truncation"),
    persist=2,
    rows=MIN_EVALUATIONS,
)
def proxy_gold_gap(case: Case) -> Reading | Unmeasured:
    """The reward rises while the validation falls."""
    reward = case.get("trained_reward") or case.get("reward")
    held_out = [track for track in case.families.get("validation", ()) if len(track) >= MIN_EVALUATIONS]
    if reward is None:
        return unmeasured("not_logged")
    if not held_out:
        return unmeasured("no_validation")
    readings = [_gap(reward, track) for track in held_out]
    return max(readings, key=lambda reading: int(reading.levels.max()))


def _gap(reward: Track, track: Track) -> Reading:
    rows = np.searchsorted(reward.steps, track.steps, "right")
    found = track.scheduled(
        ("gap", reward.name), lambda count: _gap_after(reward, track, rows[:count]), (0, 0), MIN_EVALUATIONS
    )
    levels, peaks = found[:, 0].astype(np.int8), found[:, 1].astype(int)
    smooth = _smoothed(track.finite)
    return Reading(
        track,
        levels,
        lambda spell: {
            "reward": reward.name,
            "name": track.name,
            "best": float(smooth[peaks[spell.last]]),
            "step": int(track.steps[peaks[spell.last]]),
            "now": float(smooth[spell.last]),
        },
        lambda spell: int(peaks[spell.last]),
        (reward,),
    )


def _gap_after(reward: Track, track: Track, rows: Ints) -> tuple[int, int]:
    """Return the level after some evaluations and the best of them; ``rows`` are those of the reward before each."""
    known = track.finite[: len(rows)]
    smooth = _smoothed(known)
    peak = int(np.argmax(smooth))
    lost = smooth[peak] - float(np.median(known[-3:]))
    gained = max(smooth[peak] - smooth[0], 0.0)
    gave_back = len(rows) - 1 - peak >= 3 and lost > 0.3 * gained and lost > 2 * _noise(known)
    falls = kendall_chance(known) < 0.01 and rise(known) < -1.0
    if not (gave_back or falls) or not _holds(reward.finite[: rows[-1]], peak_row=int(rows[peak])):
        return 0, peak
    return (3 if lost > 0.5 * max(gained, 1e-12) else 2), peak


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


@rule("component_tradeoff", "reward", "component", rows=40)
def component_tradeoff(case: Case) -> Reading | Unmeasured | None:
    """The reward rises while one of its components falls."""
    reward, parts = case.get("reward"), case.families.get("component", ())
    if reward is None:
        return unmeasured("not_logged")
    if len(parts) < 2:
        return unmeasured("one_component")
    rising = (reward.trend.effect > 1) & (reward.trend.chance < 1e-3)
    readings = [_tradeoff(reward, rising, part) for part in parts]
    return max(readings, key=lambda reading: int(reading.levels.max(initial=0)))


def _tradeoff(reward: Track, rising: Flags, part: Track) -> Reading:
    falls = (part.trend.chance < 1e-3) & (part.trend.effect < -1.0) & after(len(part), 40)
    both = falls & held_at(reward, rising, part.steps)
    return Reading(
        part,
        graded(len(part), warning=both),
        lambda spell: {"reward": reward.name, "name": part.name},
        beside=(reward,),
    )
