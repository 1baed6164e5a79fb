"""What several rules need: signals that can be judged, and whether the run learns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windsock.diagnosis.case import Case, values_at
from windsock.diagnosis.rule import Unmeasured, unmeasured
from windsock.diagnosis.tracks import Floats, Ints, Track

Flags = NDArray[np.bool_]

MIN_DEAD_ROWS = 20  # in which a sensor does not move
RISING_EFFECT = 0.5  # of the reward, in units of its noise
RISING_CHANCE = 0.001


def living(case: Case, key: str) -> Track | Unmeasured:
    """Return a signal that is logged and moves, or why it cannot be judged."""
    track = case.get(key)
    if track is None:
        return unmeasured("not_logged")
    return unmeasured("dead", name=track.name, value=float(track.values[0])) if is_dead(case, track) else track


def is_dead(case: Case, track: Track) -> bool:
    """Return whether a sensor never moves while the reward does: it is not computed, or cannot move by design."""
    reward = case.get("reward")
    return len(track) >= MIN_DEAD_ROWS and track.is_constant and reward is not None and not reward.is_constant


def is_learning(case: Case, steps: Ints) -> Flags:
    """Return whether the reward had clearly risen, at each step."""
    reward = case.get("reward")
    if reward is None:
        return np.zeros(len(steps), bool)
    rising = (reward.trend.effect > RISING_EFFECT) & (reward.trend.chance < RISING_CHANCE)
    return held_at(reward, rising, steps)


def is_falling(case: Case, steps: Ints) -> Flags:
    """Return whether the reward had clearly fallen, at each step."""
    reward = case.get("reward")
    if reward is None:
        return np.zeros(len(steps), bool)
    return held_at(reward, (reward.trend.effect < -1.0) & (reward.trend.chance < 0.01), steps)


def held_at(track: Track, condition: Flags, steps: Ints) -> Flags:
    """Return whether a condition on the rows of a track held at the last of them, at each step."""
    found: Flags = values_at(track.steps, condition.astype(np.float64), steps) == 1
    return found


def full_window(values: Floats, rows: int) -> Floats:
    """Return a rolling statistic without the first rows, whose windows are not full."""
    found = values.copy()
    found[: min(rows - 1, len(found))] = np.nan
    return found


def after(rows: int, start: int) -> Flags:
    """Return which of some rows come after the first ``start``."""
    return np.arange(rows) >= start


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
