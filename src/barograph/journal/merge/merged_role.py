"""The merged values of one role as series, for a view that grows.

Those of measured states are columns, one metric over steps; those that were asked for are kept, and computed for
new steps only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.base.model import MissingRank, Writer
from barograph.journal.merge.coverage import COUNTED, Contributions, WriterProgress
from barograph.journal.merge.measured_states import ENCODED, StateOrigin
from barograph.journal.merge.role_merger import MergedStep, RoleMerger
from barograph.journal.read.series import Series, joined

if TYPE_CHECKING:
    from barograph.journal.merge.measurements import NameGroup
    from barograph.journal.read.attempt import Attempt


class MeasuredColumn(NamedTuple):
    """The values of one metric: steps in ascending order, times, and whether the value is that of all ranks."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    times: NDArray[np.float64]
    whole: NDArray[np.bool_]

    @classmethod
    def of(cls, points: Iterable[tuple[int, float, float, bool]]) -> MeasuredColumn:
        """Return a column of points, which are in the order of their steps."""
        columns = zip(*points, strict=True)
        types = np.int64, np.float64, np.float64, np.bool_
        return cls._make(np.array(column, type) for column, type in zip(columns, types, strict=True))

    def where(self, places: NDArray[Any]) -> MeasuredColumn:
        """Return some of the points."""
        return MeasuredColumn._make(column[places] for column in self)

    def updated(self, stale: NDArray[np.int64], new: MeasuredColumn | None) -> MeasuredColumn:
        """Return the column without some steps, and with new ones."""
        kept = self
        if len(stale) and stale[0] <= self.steps[-1]:
            kept = self.where(~np.isin(self.steps, stale))
        if new is None:
            return kept
        united = MeasuredColumn._make(np.concatenate(pair) for pair in zip(kept, new, strict=True))
        if len(kept.steps) and new.steps[0] <= kept.steps[-1]:
            united = united.where(np.argsort(united.steps))
        return united


@dataclass(slots=True)
class _Group:
    """Metrics that are computed together, and the steps that have to be computed again."""

    names: NameGroup
    stale: set[int]
    columns: dict[str, MeasuredColumn] = field(default_factory=dict)  # with at least one step


class MeasuredColumns:
    """The columns of a role's measured metrics. Those that were asked for are kept, and computed for new steps only."""

    def __init__(self, merger: RoleMerger, vocabulary: str) -> None:
        self._merger = merger
        self._vocabulary = vocabulary
        self._version: tuple[int, int] | None = None  # of the layouts
        self._ordered: list[str] = []  # all names that there may be
        self._groups: dict[frozenset[str], _Group] = {}
        self._by_name: dict[str, _Group] = {}
        self._steps: set[int] = set()  # that have states to merge
        self._unread: dict[int, frozenset[str]] = {}  # names that have no value, because a state cannot be read

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (self._steps or self._unread or self._groups)

    def change(self, steps: Iterable[int]) -> None:
        """Note that steps have changed."""
        changed = set(steps)
        for step in changed:
            share = self._merger.measured_share(step)
            (self._steps.discard if share.states is None else self._steps.add)(step)
            self._unread.pop(step, None)
            if share.withheld:
                self._unread[step] = share.withheld
        for group in self._groups.values():
            group.stale |= changed

    def names(self) -> list[str]:
        """Return the names that have a value in some step."""
        self._compute_all()
        found = {
            name for group in self._groups.values() for name, column in group.columns.items() if column.whole.any()
        }
        return [name for name in self._ordered if name in found]

    def withheld_names(self) -> set[str]:
        """Return the names that have no value in some step."""
        self._compute_all()
        found = {name for names in self._unread.values() for name in names}
        for group in self._groups.values():
            found |= {name for name, column in group.columns.items() if not column.whole.all()}
        return found

    def unread_steps(self, name: str) -> list[int]:
        """Return the steps without a value because a state cannot be read."""
        return [step for step, names in self._unread.items() if name in names]

    def column(self, name: str) -> MeasuredColumn | None:
        """Return the values of a metric; None if there are none."""
        self._update_groups()
        group = self._by_name.get(name)
        if group is None:
            return None
        if group.stale:
            self._compute([group])
        return group.columns.get(name)

    def _update_groups(self) -> None:
        """Group the states again if there are new layouts; groups that have not changed keep their values."""
        measured = self._merger.measured
        if measured.version == self._version or not self._steps:
            return
        self._version = measured.version
        from barograph.journal.merge.measurements import name_groups, ordered_names

        states = measured.names()
        found = name_groups(states, self._vocabulary, measured.alike())
        self._groups = {one.states: self._groups.get(one.states) or _Group(one, set(self._steps)) for one in found}
        self._by_name = {name: group for group in self._groups.values() for name in group.names.names}
        self._ordered = ordered_names(states, self._vocabulary)

    def _compute_all(self) -> None:
        """Compute what is stale of all groups; those that lack the same steps together."""
        self._update_groups()
        alike: dict[frozenset[int], list[_Group]] = {}
        for group in self._groups.values():
            if group.stale:
                alike.setdefault(frozenset(group.stale), []).append(group)
        for groups in alike.values():
            self._compute(groups)

    def _compute(self, groups: list[_Group]) -> None:
        """Compute the stale steps of some groups, which have the same ones."""
        stale = np.array(sorted(groups[0].stale), np.int64)
        states = frozenset().union(*(group.names.states for group in groups))
        points = self._points(states, [step for step in stale.tolist() if step in self._steps])
        for group in groups:
            group.stale = set()
            for name in [name for name in group.names.names if name in points or name in group.columns]:
                known = group.columns.pop(name, None)
                new = MeasuredColumn.of(sorted(points[name])) if name in points else None
                column = new if known is None else known.updated(stale, new)
                if column is not None and len(column.steps):
                    group.columns[name] = column

    def _points(self, names: frozenset[str], steps: list[int]) -> dict[str, list[tuple[int, float, float, bool]]]:
        """Return the values that follow from some states in some steps: step, value, time, whether of all ranks."""
        from barograph.metrics.batch.values import finished

        merger = self._merger
        shares = [merger.measured_share(step) for step in steps]
        states = [share.states for share in shares if share.states is not None]  # all have them
        found: dict[str, list[tuple[int, float, float, bool]]] = {}
        for numbers, merged in merger.measured.merged(states, names):
            for row, number in enumerate(numbers):
                step, is_whole = steps[number], shares[number].is_whole
                time = merger.time(step)
                values = finished({name: rows[row] for name, rows in merged.items()}, self._vocabulary)
                for name, value in values.items():
                    found.setdefault(name, []).append((step, value, time, is_whole))
        return found


class MergedRole:
    """The merged values of one role, as a view shows them. ``update`` adds what was read since.

    Only steps that have changed are looked at again. Measured states are merged when a metric of them is asked for.
    """

    def __init__(self, vocabulary: str) -> None:
        self.is_current = False
        self._merger = RoleMerger(vocabulary)
        self.reductions, self.coverage = self._merger.reductions, self._merger.coverage
        self._measured = MeasuredColumns(self._merger, vocabulary)
        self._writer: Writer | None = None
        self._reports: dict[int, MergedStep] = {}  # by step, of those with any

    @property
    def unread(self) -> Mapping[str, int]:
        """The reasons why contributions could not be merged, with their numbers."""
        return self._merger.unread

    def update(
        self, attempts: Sequence[Attempt], changed: Iterable[Attempt], limits: Mapping[Writer, int | None]
    ) -> None:
        """Merge what the attempts that have ``changed`` have read since the last call; ``attempts`` are all."""
        merger, changed = self._merger, list(changed)
        known = len(merger.reductions.counted())
        for attempt in changed:
            merger.add_rank(attempt.writer.rank)
        for attempt in changed:
            self._add(attempt)
        self._add_counting_ranks(attempts if len(merger.reductions.counted()) > known else changed)
        merger.supersede(limits)
        merger.update_coverage()
        self._writer = attempts[0].writer
        steps = merger.take_changed()
        for step in steps:
            found = merger.report_values(step)
            if found.values or found.withheld:
                self._reports[step] = found
            else:
                self._reports.pop(step, None)
        self._measured.change(steps)
        self.is_current = True

    def _add(self, attempt: Attempt) -> None:
        merger = self._merger
        for shared in attempt.new_shared():
            for event in shared.events:
                merger.add_event(attempt.writer, event)
            for record in shared.records:
                merger.add_record(attempt.writer, record, shared.segment)
            for layout, table, start in shared.sparse_states:
                merger.add_states(StateOrigin(attempt.writer, shared.segment, layout, ENCODED), table, start)
            for layout, table, start in shared.states:
                merger.add_states(StateOrigin(attempt.writer, shared.segment, layout, table.width), table, start)
        merger.coverage.set_progress(attempt.writer, _progress(attempt))

    def _add_counting_ranks(self, attempts: Iterable[Attempt]) -> None:
        counted = self.reductions.counted()
        for attempt in attempts if counted else ():
            if not counted.isdisjoint(attempt.names()):
                self.coverage.add_contributor(attempt.writer.rank, COUNTED)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to merge: then ``replaced`` returns every series as it is."""
        return not self._reports and self._measured.is_empty

    def names(self) -> Iterable[str]:
        """Return the names of the merged metrics."""
        of_reports = [name for _, found in sorted(self._reports.items()) for name in found.values]
        return dict.fromkeys([*of_reports, *self._measured.names()])

    def doubtful_names(self) -> set[str]:
        """Return the names that have no value in some step, because the share of a rank is missing."""
        of_reports = {name for found in self._reports.values() for name in found.withheld}
        return of_reports | self._measured.withheld_names()

    def has_all_counts(self, step: int) -> bool:
        """Return whether no rank's part of the counts of a step can be missing."""
        complete = self.coverage.complete_until()
        return complete is not None and step <= complete

    def replaced(self, series: Series) -> Series:
        """Return a series with the merged values where a step has them, and without the steps that lack a rank."""
        name = series.name
        pieces = [series]
        withheld = [step for step, found in self._reports.items() if name in found.withheld]
        of_reports = [step for step, found in sorted(self._reports.items()) if name in found.values]
        if of_reports:
            values = [self._reports[step].values[name] for step in of_reports]
            times = [self._merger.time(step) for step in of_reports]
            pieces.append(Series(name, np.array(of_reports), np.array(values), np.array(times), self._writer))
        measured = self._measured.column(name)
        if measured is not None:
            whole = measured if measured.whole.all() else measured.where(measured.whole)
            pieces.append(Series(name, whole.steps, whole.values, whole.times, self._writer))
            withheld += measured.steps[~measured.whole].tolist()
        withheld += self._measured.unread_steps(name)
        # The last piece counts: the merged value replaces the first rank's own where a step has both.
        return joined(name, pieces).without(withheld) if len(pieces) > 1 else series.without(withheld)

    def missing(self, role: str) -> Iterator[MissingRank]:
        """Yield the shares of ranks that steps lack."""
        for step, shares in sorted(self._merger.missing.items()):
            for share, reasons in sorted(shares.items()):
                for rank, reason in sorted(reasons.items()):
                    yield MissingRank(role, rank, step, "/".join(filter(None, share)), reason, self._merger.time(step))

    def missing_counts(self, role: str, by_rank: Mapping[int, Series], total: Series) -> list[MissingRank]:
        """Return the ranks whose part of a sum over ranks is missing, by step."""
        steps = total.steps.tolist()
        found = Contributions(
            steps,
            lambda step: {COUNTED: {rank for rank, series in by_rank.items() if _has(series, step)}},
            lambda step: float(total.times[_place(total, step)]),
            self._merger.limit,
        )
        missing = self.coverage.missing(found)
        return [
            MissingRank(role, rank, step, COUNTED[0], reason, found.time(step))
            for step, shares in sorted(missing.items())
            for rank, reason in shares[COUNTED].items()
        ]


def _place(series: Series, step: int) -> int:
    return int(np.searchsorted(series.steps, step))


def _has(series: Series, step: int) -> bool:
    place = _place(series, step)
    return place < len(series) and int(series.steps[place]) == step


def _progress(attempt: Attempt) -> WriterProgress:
    steps = attempt.steps
    return WriterProgress(steps.passed, steps.first_step(committed=True), lambda: attempt.end, lambda: attempt.heard)
