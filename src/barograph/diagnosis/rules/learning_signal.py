"""Rules on the learning signal: whether rewards differ, whether there is a gradient, and whether answers are whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from barograph.base.arrays import Floats
from barograph.catalogue.spec import Text
from barograph.diagnosis.rule import (
    ALMOST_ALL,
    NOTHING,
    STUCK_STEPS,
    TINY_GRADIENT,
    WINDOW,
    Case,
    Flags,
    RuleReading,
    Spell,
    UnmeasuredError,
    full_window,
    graded,
    is_learning,
    lags,
    of_reward,
    percent,
    rule,
    share_without_signal,
    spread_of,
    values_at,
)
from barograph.metrics.tracks import Levels, Track

GROUPS = ("dead_groups", "solved_none")

SPREAD = ("dead_groups", "reward_std", "reward_max", "advantage_max")


def _before_window(spell: Spell) -> int:
    """Return the first row of the window at whose end a level was reached."""
    return max(0, spell.first - WINDOW + 1)


@rule(
    "reward_constant",
    "reward",
    explains=("no_signal", "weak_signal", "zero_grad", "reward_flat"),
    persist=1,
    rows=WINDOW,
)
def reward_constant(case: Case) -> RuleReading:
    """The reward is exactly the same in all rows of a window."""
    reward = case.need("reward")
    same = np.concatenate([[False], reward.values[1:] == reward.values[:-1]])
    constant = full_window(reward.share(same, WINDOW - 1), WINDOW) >= 1.0
    dead = case.at("gradient", reward.steps) < TINY_GRADIENT
    spread = spread_of(case)
    if spread is not None:
        dead |= values_at(spread[0].steps, spread[1], reward.steps) == 0
    levels = graded(len(reward), warning=constant, critical=constant & dead)
    return RuleReading(
        reward,
        levels,
        lambda spell: {"name": reward.name, "value": float(reward.values[spell.last])},
        _before_window,
    )


def _is_solved(case: Case, track: Track) -> Flags:
    """Return whether the reward is near the top of its range after it has risen: then equal rewards are success."""

    def solved(reward: Track) -> Flags:
        start, now, top = reward.first(5), reward.median(10), np.fmax.accumulate(reward.mean(5))
        return (top > start) & (top - now <= 0.15 * (top - start))

    return of_reward(case, track.steps, solved)


def _solved(case: Case, step: int) -> Text:
    """Return how many groups are never and always solved, as a sentence; nothing where it is not logged."""
    none, whole = (float(case.at(key, np.array([step]))[0]) for key in ("solved_none", "solved_all"))
    if not np.isfinite([none, whole]).all():
        return NOTHING
    return Text(
        f" In the last row {percent(none)} of the groups have no right answer, {percent(whole)} only right ones.",
        f"最后一行中 {percent(none)} 的组全错，{percent(whole)} 的组全对。",
    )


def _equal_groups(case: Case, grade: Callable[[Track, Floats], Levels]) -> RuleReading:
    found = share_without_signal(case)
    if found is None:
        raise UnmeasuredError("no_spread")
    track, share = found
    rewards = case.at("reward", track.steps)
    return RuleReading(
        track,
        grade(track, share),
        lambda spell: {
            "share": percent(float(np.nanmax(share[spell.rows]))),
            "rows": WINDOW,
            "reward": float(rewards[spell.last]),
            "unit": Text("groups", "组") if track.key in GROUPS else Text("batches", "批次"),
            "solved": _solved(case, int(track.steps[spell.last])),
        },
        _before_window,
        (case.get("reward"),),
    )


@rule("no_signal", *SPREAD, explains=("zero_grad", "reward_flat", "weak_signal", "grad_spike"), persist=1, rows=WINDOW)
def no_signal(case: Case) -> RuleReading:
    """Almost all groups or batches have equal rewards."""

    def grade(track: Track, share: Floats) -> Levels:
        none, solved = share >= 0.9, _is_solved(case, track)
        return graded(len(track), info=none & solved, critical=none & ~solved)

    return _equal_groups(case, grade)


@rule("weak_signal", *SPREAD, explains=("reward_flat",), persist=1, rows=WINDOW)
def weak_signal(case: Case) -> RuleReading:
    """Most groups or batches have equal rewards, or about half of them have while the reward does not move."""

    def grade(track: Track, share: Floats) -> Levels:
        bad = lags(case, track.steps) & ~_is_solved(case, track)
        most, half = share >= 0.65, (share >= 0.45) & _is_stuck(case, track)
        return graded(len(track), info=most, warning=(most & bad) | half)

    return _equal_groups(case, grade)


def _is_stuck(case: Case, track: Track) -> Flags:
    """Return whether the reward has had no trend for some hundred steps; before that, it is too early to say."""
    return of_reward(
        case,
        track.steps,
        lambda reward: (reward.trend.chance > 0.05) & (reward.steps - reward.steps[0] >= STUCK_STEPS),
    )


@rule("zero_grad", "gradient", explains=("reward_flat",), persist=1, rows=WINDOW)
def zero_grad(case: Case) -> RuleReading:
    """The gradient is exactly 0 in many rows."""
    gradient = case.need("gradient")
    share = gradient.share(np.abs(gradient.finite) < TINY_GRADIENT, WINDOW)
    return RuleReading(
        gradient,
        graded(len(gradient), warning=share >= 0.4, critical=share >= 0.8),
        lambda spell: {
            "name": gradient.name,
            "share": percent(float(np.nanmax(share[spell.rows]))),
            "rows": WINDOW,
        },
        _before_window,
    )


@rule(
    "truncation",
    "truncated",
    "length_max",
    explains=("reward_constant", "no_signal", "weak_signal", "zero_grad", "reward_flat"),
)
def truncation(case: Case) -> RuleReading:
    """Many answers reach the length limit."""
    track = case.get("truncated")
    found = _all_cut(case) if track is None else (track, track.mean(10))
    if found is None:
        raise UnmeasuredError("not_logged")
    track, share = found
    learning, late = is_learning(case, track.steps), lags(case, track.steps)
    limit = np.where(late, 0.25, ALMOST_ALL)
    bad = ((share >= 0.9) & late) | ((share >= ALMOST_ALL) & ~learning)
    return RuleReading(
        track,
        graded(len(track), info=share >= 0.05, warning=share >= limit, critical=bad),
        lambda spell: {"share": percent(float(np.nanmax(share[spell.rows])))},
        beside=(case.get("length"), case.get("reward")),
    )


def _all_cut(case: Case) -> tuple[Track, Floats] | None:
    """Return the share of rows in which the shortest answer is as long as the longest, which is the limit."""
    least, most = case.get("length_min") or case.get("length"), case.get("length_max")
    if least is None or most is None:
        return None
    longest = np.fmax.accumulate(most.finite)
    cut = (values_at(least.steps, least.finite, most.steps) == most.finite) & (most.finite == longest)
    return most, most.share(cut, 10)
