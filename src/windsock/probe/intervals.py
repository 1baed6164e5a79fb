"""Stretches of time that may overlap: how long any of them runs, and how long two or more do."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[float, float]


def clipped(intervals: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """Return what of the intervals lies between two moments."""
    return [(max(a, start), min(b, end)) for a, b in intervals if min(b, end) > max(a, start)]


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals that cover the same time, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    """Return how long any of the intervals runs."""
    return sum(end - start for start, end in united(intervals))


def overlap(lanes: Iterable[Iterable[Interval]]) -> float:
    """Return how long two or more lanes run at once."""
    changes = sorted(
        (moment, change) for lane in lanes for a, b in united(lane) for moment, change in ((a, 1), (b, -1))
    )
    total, running, before = 0.0, 0, 0.0
    for moment, change in changes:
        if running > 1:
            total += moment - before
        running, before = running + change, moment
    return total
