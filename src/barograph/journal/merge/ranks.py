"""Reductions of per-rank rows over the ranks of a role.

Every rank writes its own times, memory and counts as rows, and those need no merging before a division. A reader
reduces them: times to mean, maximum with its rank, and minimum; memory peaks to the largest; counts and rates to their
sum. Whoever writes counts declares them in an event: a name alone does not tell that its values are parts of a whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats
from barograph.base.model import Writer
from barograph.catalogue.spec import CatalogueError
from barograph.journal.read.series import Series
from barograph.metrics.probe_values import Names

REDUCTIONS = ("mean", "max", "min", "slowest")
LARGEST = ("memory/step/max_allocated", "memory/step/max_reserved", "memory/host/used")
COUNTS = ("sum", "total")
"""Reductions of counts: the sum of a step's values, and the sum of totals, in which a rank that wrote none keeps its
last one."""


@dataclass(frozen=True, slots=True)
class RankReduction:
    """A reduction, and the metric that it reduces."""

    metric: str
    how: str


@cache
def largest_over_ranks(vocabulary: str) -> frozenset[str]:
    """Return the names of which the largest over the ranks is shown, in a vocabulary."""
    try:
        return frozenset(Names(vocabulary).named((id, (), 0.0) for id in LARGEST))
    except CatalogueError:  # a vocabulary that the catalogue does not have
        return frozenset()


class Reductions:
    """The reductions of one role's metrics: those of times and memory, and the declared ones of counts."""

    def __init__(self, vocabulary: str) -> None:
        self._largest = largest_over_ranks(vocabulary)
        self._counted: dict[str, str] = {}

    def declare(self, names: Iterable[str], how: str) -> None:
        """Add metrics that a rank counts: parts of a whole."""
        if how in COUNTS:
            self._counted.update(dict.fromkeys(names, how))

    def counted(self) -> Set[str]:
        """Return the names of the counts."""
        return self._counted.keys()

    def is_counted(self, name: str) -> bool:
        """Return whether the values of ranks add up."""
        return name in self._counted

    def is_total(self, name: str) -> bool:
        """Return whether the metric is a total since the beginning of the run."""
        return self._counted.get(name) == "total"

    def is_reduced(self, name: str) -> bool:
        """Return whether a metric is reduced over ranks."""
        return name.startswith("time/") or name in self._largest or name in self._counted

    def of(self, name: str) -> RankReduction | None:
        """Return the reduction that a name means where several ranks wrote; None if it is one rank's own value."""
        metric, _, how = name.rpartition("/ranks/")
        if metric.startswith("time/") and how in REDUCTIONS:
            return RankReduction(metric, how)
        if name in self._counted:
            return RankReduction(name, self._counted[name])
        return RankReduction(name, "max") if name in self._largest else None

    def values(self, by_rank: Mapping[int, Mapping[str, float]], of_several: Iterable[str]) -> dict[str, float]:
        """Reduce the values of one step; times only where several ranks wrote them, in this or another step."""
        ranks = sorted(by_rank)
        names = list(dict.fromkeys(name for rank in ranks for name in by_rank[rank]))
        if not names:
            return {}
        # One matrix for all names: a few calls of NumPy for a step, instead of several for each name.
        values = np.array([[by_rank[rank].get(name, np.nan) for name in names] for rank in ranks])
        reduced = {
            how: dict(zip(names, _reduce(values, np.array(ranks), how).tolist(), strict=True))
            for how in (*REDUCTIONS, "sum")
        }
        found = {name: reduced["max"][name] for name in names if name in self._largest}
        found |= {name: reduced["sum"][name] for name in names if name in self._counted}
        timed = set(of_several)
        for name in (name for name in names if name.startswith("time/") and name in timed):
            found |= {f"{name}/ranks/{how}": reduced[how][name] for how in REDUCTIONS}
        return found


class Totals:
    """The totals that ranks wrote, by step: a rank that wrote none in a step keeps its last one."""

    def __init__(self) -> None:
        self._written: dict[str, dict[int, list[tuple[int, Writer, float]]]] = {}  # by name and rank, in order of step

    def add(self, name: str, writer: Writer, step: int, value: float) -> None:
        """Add a total of a rank."""
        written = self._written.setdefault(name, {}).setdefault(writer.rank, [])
        place = bisect_right(written, step, key=itemgetter(0))
        written.insert(place, (step, writer, value))

    def forget_before(self, step: int) -> None:
        """Forget the totals of earlier steps except the last one of each rank."""
        for by_rank in self._written.values():
            for written in by_rank.values():
                del written[: max(bisect_left(written, step, key=itemgetter(0)) - 1, 0)]

    def fill(self, by_rank: dict[int, dict[str, float]], step: int, counts: Callable[[Writer, int], bool]) -> None:
        """Add the last totals of the ranks that have none in a step in which another has one."""
        for name in {name for values in by_rank.values() for name in values if name in self._written}:
            for rank, written in self._written[name].items():
                if name not in by_rank.get(rank, ()):
                    until = written[: bisect_right(written, step, key=itemgetter(0))]
                    kept = next((value for at, writer, value in reversed(until) if counts(writer, at)), None)
                    if kept is not None:
                        by_rank.setdefault(rank, {})[name] = kept


def names_over_ranks(names: Iterable[str]) -> Iterator[str]:
    """Yield the names of the reductions of the times among some metrics that several ranks wrote."""
    for name in names:
        if name.startswith("time/"):
            yield from (f"{name}/ranks/{how}" for how in REDUCTIONS)


def reduced_series(name: str, how: str, by_rank: Mapping[int, Series]) -> Series | None:
    """Reduce step by step over the ranks that have the step; None if none has any. It is the first rank's series."""
    writer = by_rank[min(by_rank)].writer
    by_rank = {rank: series for rank, series in by_rank.items() if len(series)}
    if not by_rank:
        return None
    ranks = np.array(sorted(by_rank))
    steps = np.unique(np.concatenate([series.steps for series in by_rank.values()]))
    values = np.full((len(ranks), len(steps)), np.nan)
    times = np.zeros(len(steps))
    for row, rank in enumerate(ranks.tolist()):
        series = by_rank[rank]
        columns = np.searchsorted(steps, series.steps)
        values[row, columns] = series.values
        times[columns] = np.maximum(times[columns], series.times)
        if how == "total":
            last = np.searchsorted(series.steps, steps, side="right") - 1
            values[row] = np.where(last < 0, np.nan, series.values[np.maximum(last, 0)])
    return Series(name, steps, _reduce(values, ranks, "sum" if how in COUNTS else how), times, writer)


def _reduce(values: Floats, ranks: NDArray[np.int64], how: str) -> Floats:
    """Reduce columns over ranks. NaN is a rank that has not got to the step; where all are NaN, so is the result."""
    absent = np.isnan(values)
    if how == "slowest":
        return np.asarray(ranks[np.where(absent, -np.inf, values).argmax(axis=0)], np.float64)
    counts = (~absent).sum(axis=0)
    if how in ("mean", "sum"):
        with np.errstate(invalid="ignore"):
            sums = np.where(absent, 0.0, values).sum(axis=0)
            results = sums if how == "sum" else sums / np.maximum(counts, 1)
            return np.asarray(np.where(counts, results, np.nan), np.float64)
    # Filled by hand: np.nanmax and np.nanmin warn where no rank has a value.
    fill, reduce = (-np.inf, np.max) if how == "max" else (np.inf, np.min)
    return np.asarray(np.where(counts, reduce(np.where(absent, fill, values), axis=0), np.nan), np.float64)
