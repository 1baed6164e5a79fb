"""One metric over steps, and honest pictures of it at any zoom.

A picture with fewer points than the series puts neighbouring points into buckets and keeps, of each bucket, the
true minimum, maximum and last value, how many points it holds and how many of them are NaN or infinite. A pyramid
of coarser and coarser buckets makes that cheap for series of any length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windsock.model import Writer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FANOUT = 16  # how many buckets of one level make one of the next


@dataclass(frozen=True, slots=True)
class Buckets:
    """A series as so many buckets; each covers the steps from ``first`` to ``last_step``, both included.

    ``min`` and ``max`` are over the finite values, and NaN where a bucket has none; ``last`` is the last value as
    it is, finite or not.
    """

    first: Ints
    last_step: Ints
    min: Floats
    max: Floats
    last: Floats
    count: Ints
    nonfinite: Ints

    def __len__(self) -> int:
        return len(self.count)


@dataclass(frozen=True, slots=True)
class _Level:
    """Extremes and counts of neighbouring points. Of no finite point the minimum is +inf and the maximum -inf."""

    min: Floats
    max: Floats
    nonfinite: Ints

    @classmethod
    def of(cls, values: Floats) -> _Level:
        finite = np.isfinite(values)
        low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
        return cls(low, high, (~finite).astype(np.int64))

    def grouped(self, starts: Ints) -> _Level:
        return _Level(
            np.minimum.reduceat(self.min, starts),
            np.maximum.reduceat(self.max, starts),
            np.add.reduceat(self.nonfinite, starts),
        )

    def cut(self, start: int, stop: int) -> _Level:
        return _Level(self.min[start:stop], self.max[start:stop], self.nonfinite[start:stop])

    def absorb(self, place: int, values: Floats) -> None:
        """Merge further points into the bucket at ``place``."""
        if len(values):
            more = _Level.of(values)
            self.min[place] = min(self.min[place], more.min.min())
            self.max[place] = max(self.max[place], more.max.max())
            self.nonfinite[place] += more.nonfinite.sum()


@dataclass(slots=True)
class Series:
    """One metric of one writer: steps in ascending order, a value for each, and when it was logged."""

    name: str
    steps: Ints
    values: Floats
    times: Floats
    writer: Writer | None = None
    _pyramid: list[_Level] = field(default_factory=list, repr=False)  # level 1 and up; level 0 are the points

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> float:
        """The newest value; NaN for an empty series."""
        return float(self.values[-1]) if len(self.values) else float("nan")

    def before(self, limit: int | None) -> Series:
        """Return the points whose step is below a limit; all of them where there is none."""
        if limit is None:
            return self
        stop = int(np.searchsorted(self.steps, limit))
        return Series(self.name, self.steps[:stop], self.values[:stop], self.times[:stop], self.writer)

    def zoom(self, lo: int | None = None, hi: int | None = None, max_points: int = 1000) -> Buckets:
        """Show the steps from ``lo`` to ``hi``, both included, in at most ``max_points`` buckets.

        Where there are no more points than that, each is its own bucket and everything is exact.
        """
        if max_points < 1:
            raise ValueError(f"max_points must be at least 1, got {max_points}")
        start = 0 if lo is None else int(np.searchsorted(self.steps, lo, "left"))
        stop = len(self.steps) if hi is None else int(np.searchsorted(self.steps, hi, "right"))
        if stop <= start:
            return Buckets(*(np.empty(0, kind) for kind in (int, int, float, float, float, int, int)))
        return self.grouped(start, stop, -(-(stop - start) // max_points))

    def grouped(self, start: int, stop: int, size: int) -> Buckets:
        """Put the points from ``start`` up to ``stop``, of which there must be one, into buckets of about ``size``.

        With a power of two they are of just that size, but for the first and the last, whatever comes behind them.
        """
        level = 0
        while 2 * FANOUT ** (level + 1) <= min(size, stop - start):
            level += 1
        return self._buckets(start, stop, size, level)

    def _buckets(self, start: int, stop: int, size: int, level: int) -> Buckets:
        """Make buckets of about ``size`` points out of those of a level of the pyramid.

        The buckets of the level that lie wholly between ``start`` and ``stop`` are grouped; the few points before
        and after them join the first and the last group.
        """
        grain = FANOUT**level
        begin, end = -(-start // grain), stop // grain
        starts = np.arange(0, end - begin, -(-size // grain))
        merged = self._level(level, begin, end).grouped(starts)
        merged.absorb(0, self.values[start : begin * grain])
        merged.absorb(-1, self.values[end * grain : stop])
        edges = (starts + begin) * grain
        edges[0] = start
        ends = np.append(edges[1:], stop)
        empty = merged.min > merged.max
        return Buckets(
            self.steps[edges],
            self.steps[ends - 1],
            np.where(empty, np.nan, merged.min),
            np.where(empty, np.nan, merged.max),
            self.values[ends - 1],
            ends - edges,
            merged.nonfinite,
        )

    def _level(self, level: int, begin: int, end: int) -> _Level:
        if level == 0:
            return _Level.of(self.values[begin:end])
        while len(self._pyramid) < level:
            below = self._pyramid[-1] if self._pyramid else _Level.of(self.values)
            self._pyramid.append(below.grouped(np.arange(0, len(below.min), FANOUT)))
        return self._pyramid[level - 1].cut(begin, end)


def joined(name: str, pieces: list[Series]) -> Series:
    """Put the branches that count one after the other; of a step that several have, the last one's stays."""
    if not pieces:
        return Series(name, np.empty(0, np.int64), np.empty(0), np.empty(0))
    steps, values, times = (np.concatenate([getattr(p, part) for p in pieces]) for part in ("steps", "values", "times"))
    order = np.argsort(steps, kind="stable")
    steps = steps[order]
    keep = np.append(steps[1:] != steps[:-1], True)[: len(steps)]
    return Series(name, steps[keep], values[order][keep], times[order][keep], pieces[-1].writer)
