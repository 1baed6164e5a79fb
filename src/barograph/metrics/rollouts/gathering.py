"""Reports of one step: a state for each run and metric, independent of the order and the process of the reports.

Reports are queued and added by the thousand, as arrays, so that a call costs a microsecond. Memory grows with tasks and
their runs, not with experiences. A column has one metric of all runs, as one state per run.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from barograph.base.arrays import Bools, Floats, Ints
from barograph.base.scalars import DIRECT, Rejection, to_float

STATISTICS = ("mean", "sum", "max", "min", "last")
"""Reductions from one level to the next."""


def suffix_of(metric: str) -> str | None:
    """Return the reduction that a key such as ``tokens:sum`` names, as Trinity reads it; None for other keys."""
    name, _, suffix = metric.rpartition(":")
    return suffix if name and suffix in STATISTICS else None


_UFUNCS = {"mean": np.add, "sum": np.add, "max": np.maximum, "min": np.minimum}
_EMPTY = {"mean": 0.0, "sum": 0.0, "max": -np.inf, "min": np.inf, "last": np.nan}


class RolloutColumn:
    """Sums, extremes or last values by run, with the number of experiences in each."""

    def __init__(self, statistic: str) -> None:
        self.statistic = statistic
        self.nonfinite = 0
        self._values: Floats = np.empty(0)
        self._counts: Floats = np.empty(0)
        self._times: Floats = np.empty(0)  # of the last value; only for the reduction "last"

    def add(self, slots: Ints, values: Floats, times: Floats) -> None:
        """Add one value for each of some runs; a run may appear several times."""
        self._merge(slots, values, np.ones(len(slots)), times)
        self.nonfinite += int(len(values) - np.isfinite(values).sum())

    def merge(self, other: RolloutColumn, slots: Ints) -> None:
        """Add the column of another process; ``slots`` maps its entries to runs of this one."""
        size = len(slots)
        present = np.flatnonzero(other.counts(size))
        self._merge(
            slots[present], other.states(size)[present], other.counts(size)[present], other.times(size)[present]
        )
        self.nonfinite += other.nonfinite

    def counts(self, size: int) -> Floats:
        """Return the number of experiences of each run."""
        self._grow(size)
        return self._counts[:size]

    def states(self, size: int) -> Floats:
        """Return each run's sum, extreme or last value."""
        self._grow(size)
        return self._values[:size]

    def times(self, size: int) -> Floats:
        """Return the arrival time of each run's last value; NaN for reductions other than ``last``."""
        if self.statistic != "last":
            return np.full(size, np.nan)
        self._grow(size)
        return self._times[:size]

    def restore(self, values: Floats, counts: Floats, times: Floats, nonfinite: int) -> None:
        """Replace the contents with unpacked arrays."""
        self._values, self._counts, self._times, self.nonfinite = values, counts, times, nonfinite

    def runs(self, size: int) -> tuple[Floats, Bools]:
        """Return the value of each run, and whether it has one."""
        present = self.counts(size) > 0
        values = self.states(size)
        if self.statistic == "mean":
            # 1 in place of 0, so that NumPy does not warn; the quotient is not used there.
            values = values / np.where(present, self.counts(size), 1.0)
        return values, present

    def _merge(self, slots: Ints, values: Floats, counts: Floats, times: Floats) -> None:
        if not len(slots):
            return
        self._grow(int(slots.max()) + 1)
        if self.statistic == "last":
            self._keep_last(slots, values, times)
        else:
            with np.errstate(invalid="ignore"):  # infinities of both signs
                # ``at`` applies every value. Fancy indexing would apply only the last of several for one run.
                _UFUNCS[self.statistic].at(self._values, slots, values)
        np.add.at(self._counts, slots, counts)

    def _keep_last(self, slots: Ints, values: Floats, times: Floats) -> None:
        """Keep the newest value of each run; of equally new ones the larger, whatever the order of merging."""
        for slot, value, at in zip(slots.tolist(), values.tolist(), times.tolist(), strict=True):
            known = self._times[slot]
            if np.isnan(known) or (at, value) > (known, self._values[slot]):
                self._values[slot], self._times[slot] = value, at

    def _grow(self, size: int) -> None:
        have = len(self._values)
        if size <= have:
            return
        # Doubled, so that the cost of copying stays proportional to the number of runs.
        more = max(size, 2 * have, 1024) - have
        self._values = np.append(self._values, np.full(more, _EMPTY[self.statistic]))
        self._counts = np.append(self._counts, np.zeros(more))
        if self.statistic == "last":
            self._times = np.append(self._times, np.full(more, np.nan))


MAX_QUEUED = 8192  # reports
MAX_REASONS = 1000

Report = tuple[Any, Any, tuple[str, ...], tuple[Any, ...], float]
"""A queued report: task, run, the metrics' names, their values, and the time of arrival."""


class _Placed:
    """A run whose slot is known already."""

    __slots__ = ("slot",)

    def __init__(self, slot: int) -> None:
        self.slot = slot


@dataclass(frozen=True, slots=True)
class Frame:
    """State of all runs of a gathering, one entry each."""

    tasks: Ints
    observed: Bools  # it has a report
    failed: Bools  # it failed and has no report
    lone: Bools  # the experiences of a task without run ids, stored together
    runs: Floats  # number of runs in the entry

    def __len__(self) -> int:
        return len(self.tasks)


class Gathering:
    """Runs of tasks with their metrics, as states that merge.

    With ``every_run`` an experience without a run id is stored as a run of its own; otherwise such experiences of one
    task are stored together, each with the weight of a run. ``skip`` is called with values that are no numbers.
    """

    def __init__(
        self,
        statistic_of: Callable[[str], str] = lambda metric: "mean",
        every_run: bool = False,
        skip: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        self.columns: dict[str, RolloutColumn] = {}
        self.tasks: dict[str, int] = {}
        self.task_of: list[int] = []  # of each run
        self.run_ids: list[int | str | None] = []
        self.failed: set[int] = set()
        self.answers: dict[int, str] = {}
        self.reasons: Counter[str] = Counter()
        self.sealed = False
        self._last_frame: Frame | None = None
        self._statistic_of = statistic_of
        self._every_run = every_run
        self._placed_singly = {_Placed, type(None)} if every_run else {_Placed}
        self._skip = skip or (lambda rejected: None)
        self._known: dict[tuple[int, Any], int] = {}  # the slot of each run, by its task's place and its id
        self._queued: list[Report] = []
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.task_of)

    def seal(self) -> bool:
        """Accept no more reports; False if that was so already."""
        with self._lock:
            self._add_queued()
            was, self.sealed = self.sealed, True
            return not was

    def add(self, task: Any, run: Any, metrics: Mapping[str, Any], answer: Any = None) -> bool:
        """Add one experience; False, as in the other calls, if the gathering is sealed."""
        # The usual types pass without a conversion: this runs for every experience.
        task = task if type(task) is str else str(task)
        run = run if run is None or type(run) is int else _run_id(run)
        with self._lock:
            if self.sealed:
                return False
            if answer is not None:
                # An answer is stored by slot, so the run is placed now; the queued report refers to the same slot.
                slot = self._place((self._task(task), run))
                self.answers[slot] = str(answer)
                run = _Placed(slot)
            self._queued.append((task, run, tuple(metrics), tuple(metrics.values()), time.time()))
            if len(self._queued) >= MAX_QUEUED:
                self._add_queued()
        return True

    def add_columns(self, tasks: Iterable[Any], runs: Iterable[Any] | None, metrics: Mapping[str, Any]) -> bool:
        """Add many experiences: sequences with one entry each."""
        # Converted and checked before the lock is taken: a wrong column leaves no trace, and threads wait less.
        names, task_of = _distinct(tasks)
        run_names: list[Any] = listed(runs) if runs is not None else [None] * len(task_of)
        if not set(map(type, run_names)) <= {int, type(None)}:
            run_names = [None if run is None else _run_id(run) for run in run_names]
        columns = {metric: _numbers(values) for metric, values in metrics.items()}
        sizes = {"runs": len(run_names), **{metric: len(values) for metric, (values, _, _) in columns.items()}}
        wrong = {what: size for what, size in sizes.items() if size != len(task_of)}
        if wrong:
            raise ValueError(
                f"expected one entry for each of {len(task_of)} tasks, got {_amounts(wrong)}; nothing is counted"
            )
        with self._lock:
            if self.sealed:
                return False
            self._add_queued()
            slots = self._slots(self._places(names)[task_of], run_names)
            for metric, (values, kept, rejected) in columns.items():
                self._column(metric).add(slots[kept], values[kept], np.full(int(kept.sum()), time.time()))
                for reason in rejected:
                    self._skip({metric: reason})
        return True

    def fail(self, task: Any, run: Any, reason: str = "") -> bool:
        """Add a failed run. If it is also reported, before or after, it counts as observed."""
        with self._lock:
            if self.sealed:
                return False
            self._add_queued()
            place = self._task(str(task))
            # Without ids nothing says whether two failures are of one run, so each counts as another.
            self.failed.add(self._new_run(place, None) if run is None else self._place((place, _run_id(run))))
            # A reason may contain an id or a time and be new every time: only known ones are counted beyond the limit.
            if reason in self.reasons or len(self.reasons) < MAX_REASONS:
                self.reasons[reason] += 1
        return True

    def merge(self, other: Gathering) -> bool:
        """Add the gathering of another process for the same step."""
        with self._lock:
            if self.sealed:
                return False
            self._add_queued()
            places = self._places(other.tasks).tolist()
            slots = np.array(
                [
                    # Failed runs without an id stay separate; experiences without one share an entry.
                    self._new_run(places[task], None)
                    if run is None and slot in other.failed
                    else self._place((places[task], run))
                    for slot, (task, run) in enumerate(zip(other.task_of, other.run_ids, strict=True))
                ],
                np.int64,
            )
            for metric, theirs in other.columns.items():
                self._column(metric, theirs.statistic).merge(theirs, slots)
            self.failed |= {int(slots[slot]) for slot in other.failed}
            self.answers.update({int(slots[slot]): answer for slot, answer in other.answers.items()})
            self.reasons.update(other.reasons)
        return True

    def frame(self) -> Frame:
        """Return the state of all runs, queued reports included."""
        with self._lock:
            if self._last_frame is not None:
                return self._last_frame
            self._add_queued()
            size = len(self)
            observed, failed = np.zeros(size, bool), np.zeros(size, bool)
            most = np.ones(size)
            for column in self.columns.values():
                counts = column.counts(size)
                observed |= counts > 0
                # An entry without run ids is as many runs as its most frequent metric has values.
                np.maximum(most, counts, out=most)
            failed[list(self.failed)] = True
            # A run that failed and was reported later, as after a retry, is observed.
            failed &= ~observed
            if self._every_run or type(None) not in set(map(type, self.run_ids)):
                lone = np.zeros(size, bool)
            else:
                lone = np.fromiter((run is None for run in self.run_ids), bool, size) & ~failed
            frame = Frame(np.array(self.task_of, np.int64), observed, failed, lone, np.where(lone, most, 1.0))
            # Kept only from here on: nothing changes a sealed gathering.
            if self.sealed:
                self._last_frame = frame
            return frame

    def _add_queued(self) -> None:
        """Add the queued reports to the columns, those with the same metrics together."""
        # Taken out before they are added: a signal handler that calls this in between finds none to add twice.
        queued, self._queued = self._queued, []
        groups: dict[tuple[str, ...], list[Report]] = {}
        for report in queued:
            groups.setdefault(report[2], []).append(report)
        for metrics, reports in groups.items():
            names, task_of = _distinct([report[0] for report in reports])
            slots = self._slots(self._places(names)[task_of], [report[1] for report in reports])
            times = np.array([report[4] for report in reports])
            values = _matrix(metrics, reports)
            if values is None:
                self._add_mixed(metrics, reports, slots, times)
                continue
            for place, metric in enumerate(metrics):
                self._column(metric).add(slots, values[:, place], times)

    def _add_mixed(self, metrics: tuple[str, ...], reports: Sequence[Report], slots: Ints, times: Floats) -> None:
        """Add reports with some values that are not plain numbers; those that are no numbers are skipped one by one."""
        for place, metric in enumerate(metrics):
            if not isinstance(metric, str):
                self._skip({repr(metric): f"name is of type {type(metric).__name__}, not a string"})
                continue
            numbers = [to_float(report[3][place]) for report in reports]
            kept = np.array([not isinstance(number, Rejection) for number in numbers], bool)
            if kept.any():
                values = np.array([number for number in numbers if not isinstance(number, Rejection)], np.float64)
                self._column(metric).add(slots[kept], values, times[kept])
            for rejection in (number for number in numbers if isinstance(number, Rejection)):
                self._skip({metric: rejection})

    def _slots(self, tasks: Ints, runs: Sequence[Any]) -> Ints:
        """Return the slot of each report's run; ``tasks`` are indexes of tasks."""
        if self._every_run and set(map(type, runs)) == {type(None)}:
            return self._new_runs(tasks, runs)
        pairs, known = list(zip(tasks.tolist(), runs, strict=True)), self._known
        if set(map(type, runs)) & self._placed_singly:
            return np.array([self._place(pair) for pair in pairs], np.int64)
        # Bulk operations of dict and map, which run in C: a step may have a hundred thousand reports.
        new = dict.fromkeys(pairs)
        if known:
            new = {pair: None for pair in new if pair not in known}
        first = len(self)
        known.update(zip(new, range(first, first + len(new)), strict=True))
        if len(new) == len(pairs):
            return self._new_runs(tasks, runs)
        self.task_of += [task for task, _ in new]
        self.run_ids += [run for _, run in new]
        return np.fromiter(map(known.__getitem__, pairs), np.int64, len(pairs))

    def _place(self, pair: tuple[int, Any]) -> int:
        """Return the slot of a run, or of a task's experiences without run ids; a new one if there is none."""
        slot = self._known.get(pair)
        if slot is not None:
            return slot
        task, run = pair
        if type(run) is _Placed:
            return run.slot
        slot = self._new_run(task, run)
        if run is not None or not self._every_run:
            self._known[pair] = slot
        return slot

    def _places(self, tasks: Iterable[str]) -> Ints:
        known = self.tasks
        return np.array([known.setdefault(task, len(known)) for task in tasks], np.int64)

    def _task(self, task: str) -> int:
        return self.tasks.setdefault(task, len(self.tasks))

    def _new_runs(self, tasks: Ints, runs: Sequence[Any]) -> Ints:
        """Return a new slot for each of many runs."""
        first = len(self)
        self.task_of += tasks.tolist()
        self.run_ids += runs
        return np.arange(first, first + len(tasks))

    def _new_run(self, task: int, run: int | str | None) -> int:
        self.task_of.append(task)
        self.run_ids.append(run)
        return len(self.task_of) - 1

    def _column(self, metric: str, statistic: str | None = None) -> RolloutColumn:
        # The mean is the default: reward:mean and reward are one metric. Other suffixes stay in the column's name.
        if type(metric) is str and suffix_of(metric) == "mean":
            metric = metric.removesuffix(":mean")
        column = self.columns.get(metric)
        if column is None:
            column = self.columns[metric] = RolloutColumn(statistic or self._statistic_of(metric))
        return column


def _run_id(run: Any) -> int | str:
    """Return the id of a run: an int, also for a string of digits, or a string."""
    # One process may send 3 and another "3" for the same run. "03" stays a string: it is another name.
    text = str(run)
    return int(text) if text.isascii() and text.isdecimal() and str(int(text)) == text else text


def _matrix(metrics: tuple[str, ...], reports: Sequence[Report]) -> Floats | None:
    """Return the values of reports with the same metrics; None if some are not plain numbers."""
    if not all(type(metric) is str for metric in metrics):
        return None
    # Types are checked first: NumPy would turn a string that looks like a number into one.
    if not set(map(type, chain.from_iterable(report[3] for report in reports))) <= DIRECT:
        return None
    flat = chain.from_iterable(report[3] for report in reports)
    try:
        return np.fromiter(flat, np.float64, len(reports) * len(metrics)).reshape(len(reports), len(metrics))
    except OverflowError:  # an integer too large
        return None


def _distinct(tasks: Iterable[Any]) -> tuple[list[str], Ints]:
    """Return the distinct names of tasks in order of appearance, and the index of each entry's name."""
    if isinstance(tasks, np.ndarray) and tasks.ndim == 1 and tasks.dtype.kind in "iu" and len(tasks):
        begins = np.append(True, tasks[1:] != tasks[:-1])
        firsts = tasks[begins]
        if (firsts[1:] > firsts[:-1]).all():  # sorted, as np.repeat leaves them: no dict is needed
            return [str(first) for first in firsts.tolist()], np.cumsum(begins) - 1
    given = listed(tasks)
    # As keys of a dict 1, 1.0 and True are equal; as names of tasks they are not.
    if set(map(type, given)) not in ({int}, {str}):
        given = [str(task) for task in given]
    found = {task: place for place, task in enumerate(dict.fromkeys(given))}
    return [str(task) for task in found], np.fromiter(map(found.__getitem__, given), np.int64, len(given))


def listed(values: Iterable[Any]) -> list[Any]:
    """Return a sequence, array or tensor as a list of plain values."""
    as_list = getattr(values, "tolist", None)
    return as_list() if callable(as_list) else list(values)


def _numbers(values: Any) -> tuple[Floats, Bools, list[Rejection]]:
    """Return a column's numbers, a mask of the entries that are numbers, and why others are not; None is no value."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64).ravel(), np.ones(values.size, bool), []
    entries = listed(values)
    if set(map(type, entries)) <= DIRECT:
        return np.array(entries, np.float64), np.ones(len(entries), bool), []
    numbers = [to_float(entry) for entry in entries]
    kept = np.array([not isinstance(number, Rejection) for number in numbers], bool)
    rejected = [n for n, entry in zip(numbers, entries, strict=True) if isinstance(n, Rejection) and entry is not None]
    return np.array([np.nan if isinstance(n, Rejection) else n for n in numbers], np.float64), kept, rejected


def _amounts(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{size} {what}" for what, size in sizes.items())
