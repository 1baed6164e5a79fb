"""What the ranks' own values come to: mean, maximum with its rank, and minimum of every time; the largest of peaks.

Every rank writes its own times and memory as rows, which need no merging before a division. So nothing travels for
this: whoever reads the run looks at all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.spec import CatalogueError
from windsock.journal.series import Series
from windsock.probe.names import Names

Floats = NDArray[np.float64]

HOWS = ("mean", "max", "min", "slowest")
LARGEST = ("memory/step/max_allocated", "memory/step/max_reserved", "memory/host/used")


@dataclass(frozen=True, slots=True)
class Reduction:
    """Which values are reduced, and how."""

    of: str
    how: str


def reduction(name: str, vocabulary: str) -> Reduction | None:
    """Tell what a name stands for where several ranks wrote; None where it is one rank's."""
    base, _, how = name.rpartition("/ranks/")
    if base.startswith("time/") and how in HOWS:
        return Reduction(base, how)
    return Reduction(name, "max") if name in _largest(vocabulary) else None


@cache
def _largest(vocabulary: str) -> frozenset[str]:
    try:
        return frozenset(Names(vocabulary).named((id, (), 0.0) for id in LARGEST))
    except CatalogueError:  # somebody else's words
        return frozenset()


def names_over_ranks(names: Iterable[str]) -> Iterator[str]:
    """Yield what can be asked for beside the times that several ranks wrote."""
    for name in names:
        if name.startswith("time/"):
            yield from (f"{name}/ranks/{how}" for how in HOWS)


def reduced(name: str, reduction: Reduction, pieces: Mapping[int, Series]) -> Series | None:
    """Reduce step by step over the ranks that have the step; None where none has any."""
    pieces = {rank: series for rank, series in pieces.items() if len(series)}
    if not pieces:
        return None
    ranks = np.array(sorted(pieces))
    steps = np.unique(np.concatenate([series.steps for series in pieces.values()]))
    values = np.full((len(ranks), len(steps)), np.nan)
    times = np.zeros(len(steps))
    for row, rank in enumerate(ranks.tolist()):
        places = np.searchsorted(steps, pieces[rank].steps)
        values[row, places] = pieces[rank].values
        times[places] = np.maximum(times[places], pieces[rank].times)
    writer = pieces[int(ranks[0])].writer
    return Series(name, steps, _over(values, ranks, reduction.how), times, writer)


def _over(values: Floats, ranks: NDArray[np.int64], how: str) -> Floats:
    """Reduce over ranks; a rank that has not got to a step has no say in it, and every step has one that has."""
    if how == "slowest":
        return np.asarray(ranks[np.where(np.isnan(values), -np.inf, values).argmax(axis=0)], np.float64)
    reduce: Any = {"mean": np.nanmean, "max": np.nanmax, "min": np.nanmin}[how]
    return np.asarray(reduce(values, axis=0), np.float64)
