"""Reductions of per-rank rows: mean, maximum with its rank, and minimum of every time; the largest memory peak.

Every rank writes its own times and memory as rows, and those need no merging before a division. A reader reduces them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.spec import CatalogueError
from windsock.journal.series import Series
from windsock.probe.names import Names

Floats = NDArray[np.float64]

REDUCTIONS = ("mean", "max", "min", "slowest")
LARGEST = ("memory/step/max_allocated", "memory/step/max_reserved", "memory/host/used")


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction, and the metric that it reduces."""

    metric: str
    how: str


def reduction(name: str, vocabulary: str) -> Reduction | None:
    """Return the reduction that a name means where several ranks wrote; None if it is one rank's own value."""
    metric, _, how = name.rpartition("/ranks/")
    if metric.startswith("time/") and how in REDUCTIONS:
        return Reduction(metric, how)
    return Reduction(name, "max") if name in largest_over_ranks(vocabulary) else None


@cache
def largest_over_ranks(vocabulary: str) -> frozenset[str]:
    """Return the names of which the largest over the ranks is shown, in a vocabulary."""
    try:
        return frozenset(Names(vocabulary).named((id, (), 0.0) for id in LARGEST))
    except CatalogueError:  # a vocabulary that the catalogue does not have
        return frozenset()


def is_reduced(name: str, vocabulary: str) -> bool:
    """Return whether a metric is reduced over ranks."""
    return name.startswith("time/") or name in largest_over_ranks(vocabulary)


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
        columns = np.searchsorted(steps, by_rank[rank].steps)
        values[row, columns] = by_rank[rank].values
        times[columns] = np.maximum(times[columns], by_rank[rank].times)
    return Series(name, steps, _reduce(values, ranks, how), times, writer)


def reduced_values(
    by_rank: Mapping[int, Mapping[str, float]], of_several: Iterable[str], vocabulary: str
) -> dict[str, float]:
    """Reduce the values of one step; times only where several ranks wrote them, in this or another step."""
    ranks = sorted(by_rank)
    names = list(dict.fromkeys(name for rank in ranks for name in by_rank[rank]))
    if not names:
        return {}
    # One matrix for all names: a few calls of NumPy for a step, instead of several for each name.
    values = np.array([[by_rank[rank].get(name, np.nan) for name in names] for rank in ranks])
    largest, timed = largest_over_ranks(vocabulary), set(of_several)
    reduced = {how: dict(zip(names, _reduce(values, np.array(ranks), how).tolist(), strict=True)) for how in REDUCTIONS}
    found = {name: reduced["max"][name] for name in names if name in largest}
    for name in (name for name in names if name.startswith("time/") and name in timed):
        found |= {f"{name}/ranks/{how}": reduced[how][name] for how in REDUCTIONS}
    return found


def _reduce(values: Floats, ranks: NDArray[np.int64], how: str) -> Floats:
    """Reduce columns over ranks. NaN is a rank that has not got to the step; where all are NaN, so is the result."""
    absent = np.isnan(values)
    if how == "slowest":
        return np.asarray(ranks[np.where(absent, -np.inf, values).argmax(axis=0)], np.float64)
    counts = (~absent).sum(axis=0)
    if how == "mean":
        with np.errstate(invalid="ignore"):
            sums = np.where(absent, 0.0, values).sum(axis=0)
            return np.asarray(np.where(counts, sums / np.maximum(counts, 1), np.nan), np.float64)
    # Filled by hand: np.nanmax and np.nanmin warn where no rank has a value.
    fill, reduce = (-np.inf, np.max) if how == "max" else (np.inf, np.min)
    return np.asarray(np.where(counts, reduce(np.where(absent, fill, values), axis=0), np.nan), np.float64)
