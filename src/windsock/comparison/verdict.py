"""Whether one group of runs beats another, at the last common step and over all common steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from windsock.comparison.curves import Curve, area, common_steps, last_value
from windsock.comparison.intervals import Interval, difference_interval, mean_interval

MIN_SEEDS = 3
"""Runs that each group needs: two give an interval too, but no idea of whether it can be trusted."""
Word = Literal["better", "worse", "higher", "lower", "undecided", "too few", "nothing"]
WORDS: dict[str, tuple[Word, Word]] = {"higher": ("better", "worse"), "lower": ("worse", "better")}


@dataclass(frozen=True, slots=True)
class Measure:
    """A group by one number of each of its runs, and how it differs from the group that it is compared with."""

    values: tuple[float, ...]
    mean: Interval
    difference: Interval | None = None
    word: Word | None = None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """A group of runs by its values at the last common step, and by the areas under its curves."""

    last: Measure
    area: Measure


@dataclass(frozen=True, slots=True)
class Comparison:
    """Groups of runs compared with the first of them, over the steps that all runs cover."""

    steps: tuple[float, float] | None
    groups: dict[str, GroupResult]


def compare_groups(groups: Mapping[str, Sequence[Curve]], direction: str = "none") -> Comparison:
    """Compare groups of curves with the first one; ``direction`` is which values are better: higher, lower or none."""
    steps = common_steps([curve for curves in groups.values() for curve in curves])
    lasts = {name: [last_value(one, steps[1]) if steps else float("nan") for one in groups[name]] for name in groups}
    areas = {name: [area(one, *steps) if steps else float("nan") for one in groups[name]] for name in groups}
    base = next(iter(groups), None)
    found = {
        name: GroupResult(
            *(_measure(values[name], None if name == base else values[base], direction) for values in (lasts, areas))
        )
        for name in groups
        if base is not None
    }
    return Comparison(steps, found)


def _measure(values: Sequence[float], base: Sequence[float] | None, direction: str) -> Measure:
    mean = mean_interval(values)
    if base is None:
        return Measure(tuple(values), mean)
    difference = difference_interval(values, base)
    return Measure(tuple(values), mean, difference, judged(difference, direction))


def judged(difference: Interval, direction: str = "none") -> Word:
    """Return what an interval of a difference says: it decides where it does not contain 0."""
    if difference.count == 0:
        return "nothing"
    if difference.count < MIN_SEEDS or not difference.is_known:
        return "too few"
    if difference.low <= 0.0 <= difference.high:
        return "undecided"
    above, below = WORDS.get(direction, ("higher", "lower"))
    return above if difference.mean > 0 else below
