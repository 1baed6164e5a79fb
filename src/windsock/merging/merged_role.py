"""The merged values of one role as series, for a view that grows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from windsock.journal.columns import Attempt
from windsock.journal.coverage import COUNTED, Contributions, Progress
from windsock.journal.series import Series, joined
from windsock.merging.role_merger import RoleMerger
from windsock.model import MissingRank, Writer
from windsock.probe.ranks import Reductions


class MergedRole:
    """The merged values of one role, as a view shows them. ``update`` adds what was read since."""

    def __init__(self, vocabulary: str) -> None:
        self.is_current = False
        self._merger = RoleMerger(vocabulary)
        self._writer: Writer | None = None
        self._names: dict[str, None] = {}
        self._values: dict[int, dict[str, float]] = {}  # by step, of those with any
        self._withheld: dict[str, list[int]] = {}  # name to the steps that have no value

    @property
    def reductions(self) -> Reductions:
        """The reductions of the ranks' rows."""
        return self._merger.reductions

    @property
    def unread(self) -> Mapping[str, int]:
        """The reasons why contributions could not be merged, with their numbers."""
        return self._merger.unread

    def update(self, attempts: Sequence[Attempt], limits: Mapping[Writer, int | None]) -> None:
        """Merge what the role's attempts have read since the last call."""
        merger = self._merger
        for attempt in attempts:
            merger.add_rank(attempt.writer.rank)
            for segment, records, states in attempt.new_shared():
                for record in records:
                    merger.add_record(attempt.writer, record, segment)
                for layout, step, time, vector in states:
                    merger.add_state(attempt.writer, step, time, layout, vector, segment)
            merger.coverage.set_progress(attempt.writer, _progress(attempt))
        merger.supersede(limits)
        merger.update_coverage()
        self._writer = attempts[0].writer
        before, self._values, self._withheld = self._values, {}, {}
        for step in merger.steps():
            if values := merger.values(step):
                self._values[step] = values
                if values is not before.get(step):  # merged again
                    self._names |= dict.fromkeys(values)
            for name in merger.withheld(step):
                self._withheld.setdefault(name, []).append(step)
        self.is_current = True

    def names(self) -> Iterable[str]:
        """Return the names of the merged metrics."""
        return self._names

    def doubtful_names(self) -> set[str]:
        """Return the names that have no value in some step, or may not, because the share of a rank is missing."""
        return {*self._withheld, *self.reductions.counted()}

    def replaced(self, series: Series) -> Series:
        """Return a series with the merged values where a step has them, and without the steps that lack a rank."""
        name = series.name
        steps = [step for step, values in self._values.items() if name in values]
        if steps:
            merged = Series(
                name,
                np.array(steps, np.int64),
                np.array([self._values[step][name] for step in steps], np.float64),
                np.array([self._merger.time(step) for step in steps], np.float64),
                self._writer,
            )
            # The last piece counts: the merged value replaces the first rank's own where a step has both.
            series = joined(name, [series, merged])
        return series.without(self._withheld.get(name, ()))

    def missing(self, role: str) -> Iterator[MissingRank]:
        """Yield the shares of ranks that steps lack."""
        for step, shares in sorted(self._merger.missing.items()):
            for share, reasons in sorted(shares.items()):
                for rank, reason in sorted(reasons.items()):
                    yield MissingRank(role, rank, step, "/".join(filter(None, share)), reason, self._merger.time(step))

    def missing_counts(self, role: str, by_rank: Mapping[int, Series], total: Series) -> list[MissingRank]:
        """Return the ranks whose part of a sum over ranks is missing, by step."""
        for rank, series in by_rank.items():
            if len(series):
                self._merger.coverage.add_contributor(rank, COUNTED)
        steps = {rank: set(series.steps.tolist()) for rank, series in by_rank.items()}
        times = dict(zip(total.steps.tolist(), total.times.tolist(), strict=True))
        found = Contributions(
            total.steps.tolist(),
            lambda step: {COUNTED: {rank for rank, known in steps.items() if step in known}},
            times.__getitem__,
            self._merger.counts,
        )
        missing = self._merger.coverage.missing(found)
        return [
            MissingRank(role, rank, step, COUNTED[0], reason, times[step])
            for step, shares in sorted(missing.items())
            for rank, reason in shares[COUNTED].items()
        ]


def _progress(attempt: Attempt) -> Progress:
    steps = attempt.steps
    return Progress(steps.passed, steps.first_step(committed=True), lambda: attempt.end, lambda: attempt.heard)
