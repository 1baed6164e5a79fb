"""Intervals of time that may overlap: clipping, union, total length and overlap."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[float, float]


def clip(intervals: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """Return the parts of the intervals between ``start`` and ``end``."""
    return [(max(a, start), min(b, end)) for a, b in intervals if min(b, end) > max(a, start)]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals that cover the same time, sorted."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    """Return the length of the intervals' union."""
    return sum(end - start for start, end in union(intervals))


def overlap(lanes: Iterable[Iterable[Interval]]) -> float:
    """Return how long two or more lanes are active at once."""
    changes = sorted((moment, change) for lane in lanes for a, b in union(lane) for moment, change in ((a, 1), (b, -1)))
    # At one moment, ends (-1) sort before starts (1): touching intervals do not overlap.
    total, running, before = 0.0, 0, 0.0
    for moment, change in changes:
        if running > 1:
            total += moment - before
        running, before = running + change, moment
    return total
