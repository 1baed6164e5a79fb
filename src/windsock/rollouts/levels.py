"""From runs to tasks and from tasks to a step, each metric by its own statistic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windsock.rollouts.columns import Column
from windsock.rollouts.gathering import Frame

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Runs:
    """The values of one metric in the runs that have one, and what each is worth."""

    values: Floats
    tasks: Ints
    weights: Floats  # experiences without run ids are held together, and weigh as many runs
    times: Floats
    slots: Ints


def runs_of(frame: Frame, column: Column, failed_value: float | None = None) -> Runs:
    """Return the runs of a metric; failed ones have ``failed_value``, or are not there where that is None."""
    size = len(frame)
    values, present = column.runs(size)
    weights = np.where(frame.lone, column.counts(size), 1.0)
    if failed_value is not None:
        values, present = np.where(frame.failed, failed_value, values), present | frame.failed
    if present.all():
        return Runs(values, frame.tasks, weights, column.times(size), np.arange(size))
    slots = np.flatnonzero(present)
    return Runs(values[slots], frame.tasks[slots], weights[slots], column.times(size)[slots], slots)


def tasks_of(runs: Runs, statistic: str) -> Floats:
    """Return the value of each task that has a run, by sum, mean, max or min."""
    there = np.bincount(runs.tasks) > 0
    dense = runs.tasks if there.all() else (np.cumsum(there) - 1)[runs.tasks]
    size = int(there.sum())
    if statistic == "sum":
        return _sums(dense, runs.values, size)
    if statistic == "mean":
        return _sums(dense, runs.values * runs.weights, size) / _sums(dense, runs.weights, size)
    start, ufunc = {"max": (-np.inf, np.maximum), "min": (np.inf, np.minimum)}[statistic]
    found = np.full(size, start)
    ufunc.at(found, dense, runs.values)
    return found


def _sums(places: Ints, parts: Floats, size: int) -> Floats:
    return np.bincount(places, parts, minlength=size).astype(np.float64, copy=False)


def over_tasks(values: Floats, statistics: Iterable[str]) -> dict[str, float]:
    """Return statistics over the values of tasks, of which there is at least one; std has ddof 0, p95 is a quantile."""
    return {statistic: _statistic(values, statistic) for statistic in statistics}


def _statistic(values: Floats, statistic: str) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        if statistic == "std":
            return float(np.sqrt(np.square(values - values.mean()).mean()))
        if statistic.startswith("p"):
            return float(np.quantile(values, float(statistic[1:]) / 100))
        return float(getattr(values, statistic)())


def last_of(runs: Runs) -> float:
    """Return the value that came last of all."""
    return float(runs.values[np.argmax(runs.times)])
