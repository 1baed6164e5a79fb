"""What several rules need: signals that can be judged, and whether the run learns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.spec import Text
from windsock.diagnosis.case import Case, values_at
from windsock.diagnosis.rule import Spell, Unmeasured, unmeasured
from windsock.diagnosis.tracks import Floats, Ints, Track

Flags = NDArray[np.bool_]

MIN_DEAD_ROWS = 20  # in which a sensor does not move
MIN_MOVES = 5  # rows in which an update must have moved a signal
MIN_LAG = 30  # rows of the reward before which it is too early to miss a rise
ALMOST_ALL = 0.97  # of the answers: a run may learn although many are cut
RISING_EFFECT = 0.5  # of the reward, in units of its noise
RISING_CHANCE = 0.001


def living(case: Case, key: str) -> Track | Unmeasured:
    """Return a signal that is logged and moves, or why it cannot be judged."""
    track = case.get(key)
    if track is None:
        return unmeasured("not_logged")
    return unmeasured("dead", name=track.name, value=float(track.values[0])) if is_dead(case, track) else track


def unmoved(case: Case, track: Track, value: float) -> Unmeasured | None:
    """Return why a signal says nothing that only several updates of a batch can move; None if it moves."""
    if len(track) < MIN_MOVES or not track.is_constant or track.values[0] != value:
        return None
    updates = case.settings.updates_per_batch
    if updates is None:
        return unmeasured("one_update", name=track.name, value=value)
    reason = "one_update_set" if updates.value == 1 else "unmoved"
    return unmeasured(reason, name=track.name, value=value, updates=updates.value, settings=updates.settings)


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


def lags(case: Case, steps: Ints) -> Flags:
    """Return whether the reward should have risen by now and has not, at each step."""
    reward = case.get("reward")
    rows = np.full(len(steps), MIN_LAG) if reward is None else np.searchsorted(reward.steps, steps, "right")
    found: Flags = (rows >= MIN_LAG) & ~is_learning(case, steps)
    return found


def is_falling(case: Case, steps: Ints) -> Flags:
    """Return whether the reward had clearly fallen, at each step."""
    reward = case.get("reward")
    if reward is None:
        return np.zeros(len(steps), bool)
    return held_at(reward, (reward.trend.effect < -1.0) & (reward.trend.chance < 0.01), steps)


def has_lost(case: Case, steps: Ints) -> Flags:
    """Return whether the reward has lost half of what it had clearly gained, at each step."""
    reward = case.get("reward")
    if reward is None:
        return np.zeros(len(steps), bool)
    level, start = reward.mean(10), reward.first(5)
    best = np.fmax.accumulate(level)
    return held_at(reward, (best - level > 0.5 * (best - start)) & (best - start > 3 * noise(reward.finite)), steps)


def noise(values: Floats) -> float:
    """Return the standard deviation of single rows around their neighbours."""
    differences = np.diff(values)
    differences = differences[np.isfinite(differences)]
    return float(np.std(differences) / np.sqrt(2)) if len(differences) else 0.0


def held_at(track: Track, condition: Flags, steps: Ints) -> Flags:
    """Return whether a condition on the rows of a track held at the last of them, at each step."""
    found: Flags = values_at(track.steps, condition.astype(np.float64), steps) == 1
    return found


def began(condition: Flags, spell: Spell) -> int:
    """Return the row since which a weaker condition has held without a break until the spell."""
    broken = np.flatnonzero(~condition[: spell.first])
    return int(broken[-1]) + 1 if len(broken) else 0


def full_window(values: Floats, rows: int) -> Floats:
    """Return a rolling statistic without the first rows, whose windows are not full."""
    found = values.copy()
    found[: min(rows - 1, len(found))] = np.nan
    return found


def after(rows: int, start: int) -> Flags:
    """Return which of some rows come after the first ``start``."""
    return np.arange(rows) >= start


NOTHING = Text("", "")


def sign_note(case: Case, key: str, en: str, zh: str) -> Text:
    """Return a sentence about a coefficient that is negative, and so rewards what it should limit; else nothing."""
    track = case.get(key)
    value = np.nan if track is None else track.first(len(track))
    if track is None or not value < 0:
        return NOTHING
    return Text(f" {track.name} is {value:.3g}: {en}.", f"{track.name} 为 {value:.3g}：{zh}。")


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
