"""One metric over steps, and its buckets at any zoom.

A plot has fewer points than a long series. Neighbouring points are put into buckets, and of each bucket the true
minimum, maximum and last value are kept, with the number of points and of those that are NaN or infinite: a spike of
one step is seen at every zoom. A pyramid of coarser and coarser buckets makes that cheap for series of any length.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from barograph.base.arrays import Floats, Ints
from barograph.base.model import Writer

FEW_POINTS = 64
FANOUT = 16  # how many buckets of one level make one of the next


@dataclass(frozen=True, slots=True)
class Buckets:
    """A series in buckets; each covers the steps from ``first_step`` to ``last_step``, both included.

    ``min`` and ``max`` are over the finite values, and NaN for a bucket without any; ``last`` is the last value,
    finite or not.
    """

    first_step: Ints
    last_step: Ints
    min: Floats
    max: Floats
    last: Floats
    count: Ints
    nonfinite: Ints

    def __len__(self) -> int:
        return len(self.count)

    @property
    def first(self) -> Ints:
        """The old name of ``first_step``, until 0.3."""
        warnings.warn("Buckets.first is now first_step; the old name works until 0.3", DeprecationWarning, stacklevel=2)
        return self.first_step


@dataclass(frozen=True, slots=True)
class _Level:
    """Extremes and counts of neighbouring points. Without a finite point the minimum is +inf and the maximum -inf."""

    min: Floats
    max: Floats
    nonfinite: Ints

    @classmethod
    def from_values(cls, values: Floats) -> _Level:
        # One NaN would become the extreme of its whole bucket in minimum.reduceat, and hide a spike beside it.
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

    def absorb(self, index: int, values: Floats) -> None:
        """Merge further points into one bucket."""
        if len(values):
            more = _Level.from_values(values)
            self.min[index] = min(self.min[index], more.min.min())
            self.max[index] = max(self.max[index], more.max.max())
            self.nonfinite[index] += more.nonfinite.sum()


@dataclass(slots=True)
class Series:
    """One metric of one writer: steps in ascending order, with the value and the time of each."""

    name: str
    steps: Ints
    values: Floats
    times: Floats
    writer: Writer | None = None
    _pyramid: list[_Level] = field(default_factory=list, repr=False)  # from level 1 on; level 0 is the points

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> float:
        """The newest value; NaN for an empty series."""
        return float(self.values[-1]) if len(self.values) else float("nan")

    def without(self, steps: Collection[int | None]) -> Series:
        """Return the series without some steps."""
        if not steps:
            return self
        kept = ~np.isin(self.steps, [step for step in steps if step is not None])
        return Series(self.name, self.steps[kept], self.values[kept], self.times[kept], self.writer)

    def before(self, limit: int | None) -> Series:
        """Return the points whose step is below a limit; all of them if it is None."""
        if limit is None:
            return self
        stop = int(np.searchsorted(self.steps, limit))
        return Series(self.name, self.steps[:stop], self.values[:stop], self.times[:stop], self.writer)

    def since(self, step: int | None) -> Series:
        """Return the points from a step on; all of them if it is None."""
        if step is None:
            return self
        start = int(np.searchsorted(self.steps, step))
        return Series(self.name, self.steps[start:], self.values[start:], self.times[start:], self.writer)

    def zoom(self, lo: int | None = None, hi: int | None = None, max_points: int = 1000) -> Buckets:
        """Return the steps from ``lo`` to ``hi``, both included, in at most ``max_points`` buckets.

        If there are no more points than that, each has a bucket of its own.
        """
        if max_points < 1:
            raise ValueError(f"max_points must be at least 1, got {max_points}")
        start = 0 if lo is None else int(np.searchsorted(self.steps, lo, "left"))
        stop = len(self.steps) if hi is None else int(np.searchsorted(self.steps, hi, "right"))
        if stop <= start:
            return Buckets(*(np.empty(0, kind) for kind in (int, int, float, float, float, int, int)))
        return self.grouped(start, stop, -(-(stop - start) // max_points))

    def grouped(self, start: int, stop: int, size: int, skip: int = 0) -> Buckets:
        """Put the points from ``start`` up to ``stop``, at least one, into buckets of about ``size`` points.

        With a power of two, all but the first and the last have exactly that size, however long the series grows. The
        first ``skip`` buckets are left out, which must not be all.
        """
        level = _level_of(start, stop, size)
        if skip:
            edges = bucket_edges(start, stop, size, skip)
            start = edges[0]
            if stop - start <= FEW_POINTS:
                return self._few_buckets(edges)
        return self._buckets(start, stop, size, level)

    def _few_buckets(self, edges: list[int]) -> Buckets:
        """Return the buckets between edges as ``_buckets`` does; of few points this takes a fifth of the time."""
        begin = edges[0]
        steps, values = self.steps[begin : edges[-1]].tolist(), self.values[begin : edges[-1]].tolist()
        whole, real = [], []
        for start, stop in itertools.pairwise(edge - begin for edge in edges):
            finite = [value for value in values[start:stop] if math.isfinite(value)]
            whole.append((steps[start], steps[stop - 1], stop - start, stop - start - len(finite)))
            real.append((min(finite, default=math.nan), max(finite, default=math.nan), values[stop - 1]))
        first_step, last_step, count, nonfinite = np.array(whole).T
        low, high, last = np.array(real).T
        return Buckets(first_step, last_step, low, high, last, count, nonfinite)

    def _buckets(self, start: int, stop: int, size: int, level: int) -> Buckets:
        """Group the buckets of one level of the pyramid into buckets of about ``size`` points.

        Only buckets that are completely between ``start`` and ``stop`` are grouped; the few points before and after
        them are added to the first and the last group.
        """
        grain = FANOUT**level
        begin, end = -(-start // grain), stop // grain
        # Buckets of a level are counted from the first point, not from start: they stay as they are while it grows.
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
            return _Level.from_values(self.values[begin:end])
        grain = FANOUT**level
        if len(self._pyramid) < level and (end - begin) * grain * FANOUT < len(self.values):
            points = _Level.from_values(self.values[begin * grain : end * grain])  # few: the pyramid is of all
            return points.grouped(np.arange(0, len(points.min), grain))
        while len(self._pyramid) < level:
            below = self._pyramid[-1] if self._pyramid else _Level.from_values(self.values)
            self._pyramid.append(below.grouped(np.arange(0, len(below.min), FANOUT)))
        return self._pyramid[level - 1].cut(begin, end)


def bucket_count(start: int, stop: int, size: int) -> int:
    """Return how many buckets ``Series.grouped`` makes."""
    grain: int = FANOUT ** _level_of(start, stop, size)
    return -(-(stop // grain - -(-start // grain)) // -(-size // grain))


def bucket_edges(start: int, stop: int, size: int, skip: int) -> list[int]:
    """Return where the buckets of ``Series.grouped`` begin, without the first ``skip``, at least one; and the end."""
    grain: int = FANOUT ** _level_of(start, stop, size)
    width = -(-size // grain) * grain
    return [*range(-(-start // grain) * grain + skip * width, stop // grain * grain, width), stop]


def _level_of(start: int, stop: int, size: int) -> int:
    """Return the coarsest level of a pyramid for buckets of a size."""
    level = 0
    # Twice, so that at least one bucket of the level is completely between start and stop.
    while 2 * FANOUT ** (level + 1) <= min(size, stop - start):
        level += 1
    return level


def joined(name: str, pieces: list[Series]) -> Series:
    """Join series of one metric; if several have a step, the last one's value counts."""
    if not pieces:
        return Series(name, np.empty(0, np.int64), np.empty(0), np.empty(0))
    steps, values, times = (np.concatenate([getattr(p, part) for p in pieces]) for part in ("steps", "values", "times"))
    order = np.argsort(steps, kind="stable")  # stable: of equal steps, the later piece's stays last
    steps = steps[order]
    keep = np.append(steps[1:] != steps[:-1], True)[: len(steps)]  # append makes one entry even for no steps
    return Series(name, steps[keep], values[order][keep], times[order][keep], pieces[-1].writer)
