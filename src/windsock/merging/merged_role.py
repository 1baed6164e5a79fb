"""The merged values of one role as series, for a view that grows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from windsock.journal.columns import Attempt
from windsock.journal.coverage import COUNTED, Contributions, Progress
from windsock.journal.series import Series, joined
from windsock.merging.measured_columns import MeasuredColumns
from windsock.merging.role_merger import RoleMerger, StepValues
from windsock.model import MissingRank, Writer
from windsock.probe.ranks import Reductions


class MergedRole:
    """The merged values of one role, as a view shows them. ``update`` adds what was read since.

    Only steps that have changed are looked at again. Measured states are merged when a metric of them is asked for.
    """

    def __init__(self, vocabulary: str) -> None:
        self.is_current = False
        self._merger = RoleMerger(vocabulary)
        self._measured = MeasuredColumns(self._merger, vocabulary)
        self._writer: Writer | None = None
        self._reports: dict[int, StepValues] = {}  # by step, of those with any

    @property
    def reductions(self) -> Reductions:
        """The reductions of the ranks' rows."""
        return self._merger.reductions

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
                merger.add_sparse_states(attempt.writer, shared.segment, layout, table, start)
            for layout, table, start in shared.states:
                merger.add_states(attempt.writer, shared.segment, layout, table, start)
        merger.coverage.set_progress(attempt.writer, _progress(attempt))

    def _add_counting_ranks(self, attempts: Iterable[Attempt]) -> None:
        counted = self.reductions.counted()
        for attempt in attempts if counted else ():
            if not counted.isdisjoint(attempt.names()):
                self._merger.coverage.add_contributor(attempt.writer.rank, COUNTED)

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
        complete = self._merger.coverage.complete_until()
        return complete is not None and step <= complete

    def may_lack_counts_since(self) -> int | None:
        """Return a step before which no rank's part of the counts is missing; None if there is none."""
        return self._merger.coverage.may_lack_since(COUNTED)

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
        missing = self._merger.coverage.missing(found)
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


def _progress(attempt: Attempt) -> Progress:
    steps = attempt.steps
    return Progress(steps.passed, steps.first_step(committed=True), lambda: attempt.end, lambda: attempt.heard)
