"""Rows with the values of all ranks: what a tracker receives for a step is what a view shows.

The first rank of a role writes its own values. Those of the other ranks are merged into its row of the step, which
waits until all ranks are past the step, but not longer than some patience. A contribution that arrives later still is
delivered as a further row of the step.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from barograph.base.model import Row, Writer
from barograph.journal.merge.coverage import WriterProgress
from barograph.journal.merge.role_merger import RoleMerger
from barograph.journal.read.follower import AttemptFollower, RunFollower
from barograph.journal.read.segment_follower import MAX_STEPS_BACK, Cursor, FollowedRow, SegmentFollower
from barograph.journal.read.status import End, segment_end, segment_heard
from barograph.journal.segments.steps import superseded_from

STATUS_SECONDS = 0.5  # between two looks at whether a process lives

StepKey = tuple[str, int]
"""A role and a step."""


@dataclass(slots=True)
class _Batch:
    """Rows that were read together, when, and the cursors after them."""

    rows: list[Row]
    since: float
    cursors: dict[str, Cursor]


@dataclass(slots=True)
class _StepDelivery:
    """What the tracker has of the merged values of a step, and what it lacks."""

    delivered: dict[str, float] = field(default_factory=dict)
    own: dict[str, tuple[Writer, float]] = field(default_factory=dict)  # of the first rank, replaced by merged ones
    undelivered: dict[str, int] = field(default_factory=dict)  # segment to offset of its first such contribution
    since: float = 0.0

    def add(self, segment: str, offset: int) -> None:
        """Note a contribution that no row has yet."""
        if not self.undelivered:
            self.since = time.monotonic()
        self.undelivered[segment] = min(offset, self.undelivered.get(segment, offset))

    def add_own(self, row: Row, names: Iterable[str]) -> None:
        """Note the first rank's own values: they count again if other ranks' contributions are superseded."""
        self.own |= {name: (row.writer, row.values[name]) for name in names if name in row.values}


class MergedFollower(RunFollower):
    """Yields the rows of a run, with the values of all ranks in those of the first."""

    def __init__(
        self,
        folder: Path,
        cursors: Mapping[str, Cursor] | None = None,
        only: Writer | None = None,
        *,
        vocabulary: str = "roll",
        ends: int | None = None,
        patience: float | None = None,
    ) -> None:
        super().__init__(folder, cursors, only, ends=ends, patience=patience)
        self.merges_ranks = only is None
        self._vocabulary = vocabulary
        self._mergers: dict[str, RoleMerger] = {}  # by role
        self._deliveries: dict[StepKey, _StepDelivery] = {}
        self._superseded: set[StepKey] = set()  # steps that lost contributions to a newer attempt
        self._reread: list[Row] = []  # that an earlier follower has emitted
        self._batches: list[_Batch] = []
        self._emitted = dict(cursors or {})
        self._newest: dict[str, dict[int, AttemptFollower]] = {}  # attempts, by role and rank
        self._ends_seen: dict[Path, tuple[float, End]] = {}

    def new_rows(self) -> list[Row]:
        """Return the rows that are complete, in the order in which they were read."""
        rows = super().new_rows()
        # Without rows that wait, an empty batch moves the cursor over events and states.
        if rows or not self._batches:
            self._batches.append(_Batch(rows, time.monotonic(), super().cursors()))
        found = [self._with_merged(row) for row in self._ready()]
        found += self._corrections()
        return found

    @property
    def waits(self) -> bool:
        """Whether rows wait for other ranks."""
        return any(batch.rows for batch in self._batches)

    @property
    def waiting_rows(self) -> int:
        """The number of rows that were read and wait for other ranks."""
        return sum(len(batch.rows) for batch in list(self._batches))

    def take_unfinished(self) -> list[Row]:
        """Return, once, the rows after the last commits of the writers that have ended, and the last corrections."""
        rows = [self._with_merged(row) for row in super().take_unfinished()]
        self._add_own_values()
        self._supersede(committed=False)
        self._update_coverage()
        for role, step in self._superseded:
            self._delivery(role, step).add("", 0)
        rows += self._corrections(final=True)
        self._superseded.clear()
        self._emitted = super().cursors()
        return rows

    def cursors(self) -> dict[str, Cursor]:
        """Return how far each segment was emitted. Rows that wait were not."""
        merged = {name: cursor.merged_to for name, cursor in self._begin.items()}
        for segment in self._segment_followers():
            merged[segment.name] = max(segment.reached, merged.get(segment.name, 0))
        for delivery in self._deliveries.values():
            for name, offset in delivery.undelivered.items():
                merged[name] = min(offset, merged.get(name, offset))
        return {name: replace(cursor, merged=merged.get(name)) for name, cursor in self._emitted.items()}

    # Contributions.

    def _next_piece(self) -> list[Row]:
        for writer in sorted(self._attempts):
            self._newest.setdefault(writer.role, {})[writer.rank] = self._attempts[writer]
        self._forget_old_steps()
        rows = super()._next_piece()
        self._add_shared_frames()
        self._add_own_values()
        return rows

    def _taken(self, rows: list[FollowedRow]) -> list[Row]:
        if self.merges_ranks:
            self._add_events()
            for row, segment, offset, is_new in rows:
                if self._merger(row.writer.role).add_values(row.writer, row.step, row.time, row.values):
                    self._note(row.writer, row.step, segment, offset, is_new)
                if not is_new:
                    self._reread.append(row)
        return super()._taken(rows)

    def _add_own_values(self) -> None:
        """Note the first rank's own values in rows that were read again."""
        # Not before the states of the same piece were added: without them it is not known which rows are merged.
        for row in filter(self._is_merged, self._reread):
            self._delivery(row.writer.role, row.step).add_own(row, row.values)
        self._reread.clear()

    def _merger(self, role: str) -> RoleMerger:
        if role not in self._mergers:
            self._mergers[role] = RoleMerger(self._vocabulary)
        return self._mergers[role]

    def _note(self, writer: Writer, step: int, segment: str, offset: int, is_new: bool = False) -> None:
        """Note a contribution that is not in a row that was emitted before the cursor was saved."""
        begin = self._begin.get(segment)
        if is_new or begin is None or offset >= begin.merged_to:
            self._delivery(writer.role, step).add(segment, offset)

    def _delivery(self, role: str, step: int) -> _StepDelivery:
        return self._deliveries.setdefault((role, step), _StepDelivery())

    def _add_events(self) -> None:
        """Add events before rows: a count is declared before its first value."""
        for segment in self._segment_followers():
            events, segment.shared.events = segment.shared.events, []
            for record in events:
                self._merger(segment.segment.writer.role).add_record(segment.segment.writer, record)

    def _add_shared_frames(self) -> None:
        if not self.merges_ranks:
            return
        self._add_events()
        for segment in self._segment_followers():
            writer, name, shared = segment.segment.writer, segment.name, segment.shared
            index = segment.segment.index
            merger = self._merger(writer.role)
            merger.add_rank(writer.rank)
            for record in shared.records:
                step = merger.add_record(writer, record, index)
                if step is not None:
                    self._note(writer, step, name, record.offset)
            for offset, layout, step, at, vector in shared.states:
                if merger.add_state(writer, step, at, layout, vector, index):
                    self._note(writer, step, name, offset)
            shared.clear()
        self._supersede(committed=True)
        self._update_coverage()

    def _update_coverage(self) -> None:
        for writer, attempt in self._attempts.items():
            self._merger(writer.role).coverage.set_progress(writer, self._progress(attempt))
        for merger in self._mergers.values():
            merger.update_coverage()

    def _progress(self, attempt: AttemptFollower) -> WriterProgress:
        steps, main = attempt.steps, attempt.main
        first = steps.first_step(committed=True)
        return WriterProgress(steps.passed, first, lambda: self._end_of(main), lambda: segment_heard(main.segment.path))

    def _supersede(self, committed: bool) -> None:
        limits: dict[str, dict[Writer, int | None]] = {}
        for (role, _), attempts in self._by_rank().items():
            firsts = [attempt.steps.first_step(committed) for attempt in attempts]
            pairs = zip((attempt.writer for attempt in attempts), superseded_from(firsts), strict=True)
            limits.setdefault(role, {}).update(pairs)
        for role, merger in self._mergers.items():
            of_role = limits.get(role, {})
            values_before = {step: merger.values(step) for step in merger.superseded_steps(of_role)}
            merger.supersede(of_role)
            for step, before in values_before.items():
                delivery = self._delivery(role, step)
                if not delivery.undelivered:  # a row before the cursor had those values
                    delivery.delivered = delivery.delivered or before
                self._superseded.add((role, step))

    # Waiting for ranks.

    def _ready(self) -> Iterator[Row]:
        while self._batches:
            batch = self._batches[0]
            patient = time.monotonic() - batch.since < self._patience
            if patient and any(self._waits_for_rank(row) for row in batch.rows):
                return
            self._batches.pop(0)
            self._emitted = batch.cursors
            yield from batch.rows

    def _waits_for_rank(self, row: Row) -> bool:
        if not self._is_merged(row):
            return False
        return self._lacks_a_rank(row.writer.role, row.step)

    def _is_merged(self, row: Row) -> bool:
        """Return whether a row gets values of other ranks: it is the first rank's, of a step with contributions."""
        role = row.writer.role
        return (
            self.merges_ranks and row.step in self._mergers.get(role, ()) and row.writer.rank == min(self._newest[role])
        )

    def _first_rank(self, role: str) -> AttemptFollower:
        """Return the newest attempt of a role's first rank."""
        newest = self._newest[role]
        return newest[min(newest)]

    def _lacks_a_rank(self, role: str, step: int) -> bool:
        """Return whether a rank may still contribute to a step.

        After a restart of the first rank, the others are expected to restart too: what they committed before does not
        count, and one that ended before is waited for if there are to be as many ranks again.
        """
        newest = self._newest[role]
        start = self._first_rank(role).main.start_event or {}
        since, world_size = float(start.get("time", 0.0)), int(start.get("world_size") or 1)
        if len(newest) == 1 and world_size == 1:
            return False
        if all(self._has_ended(attempt.main) for attempt in newest.values()):
            return False
        missing = set(range(world_size)) - newest.keys()
        return bool(missing) or not all(
            self._is_past(attempt, step, since, rank < world_size) for rank, attempt in newest.items()
        )

    def _is_past(self, attempt: AttemptFollower, step: int, since: float, is_expected: bool) -> bool:
        if attempt.has_passed(step, since):
            return True
        main = attempt.main
        times = [segment.steps.times[-1] for segment in attempt.main_segments if len(segment.steps)]
        last = max(times, default=float((main.start_event or {}).get("time", 0.0)))
        return self._has_ended(main) and (last >= since or not is_expected)

    def _has_ended(self, segment: SegmentFollower) -> bool:
        return self._end_of(segment) != "running"

    def _end_of(self, segment: SegmentFollower) -> End:
        """Return whether a segment's process has ended; reading that costs a little, so it is not done all the time."""
        path, now = segment.segment.path, time.monotonic()
        checked, end = self._ends_seen.get(path, (-STATUS_SECONDS, "running"))
        if end == "running" and now - checked >= STATUS_SECONDS:
            end = segment_end(path)
            self._ends_seen[path] = now, end
        return end

    # Merged values.

    def _with_merged(self, row: Row) -> Row:
        """Return a row with the values of all ranks, if it is the first rank's."""
        if not self._is_merged(row):
            return row
        merger = self._mergers[row.writer.role]
        merged, withheld = merger.values(row.step), merger.withheld(row.step)
        delivery = self._delivery(row.writer.role, row.step)
        if not merged and not withheld and not delivery.delivered:  # a role with one rank, say
            delivery.undelivered = {}
            return row
        # Also names that were delivered before and are not merged now: a restart may have superseded what made them.
        names = merged.keys() | delivery.delivered.keys() | withheld
        delivery.add_own(row, names)
        values = {name: merged.get(name, value) for name, value in row.values.items() if name not in withheld}
        if delivery.undelivered:
            values |= {name: value for name, value in merged.items() if not _same(delivery.delivered.get(name), value)}
            if not withheld:  # otherwise a correction follows when the step is complete
                delivery.undelivered = {}
        delivery.delivered = delivery.delivered | {name: values[name] for name in names if name in values}
        return replace(row, values=values)

    def _corrections(self, final: bool = False) -> list[Row]:
        """Return rows for the steps whose merged values changed after the first rank's rows were emitted."""
        # A correction must not come before the row that it corrects.
        if self.waits and not final:
            return []
        found = []
        for (role, step), delivery in list(self._deliveries.items()):
            lacks = step in self._mergers[role].missing
            if delivery.undelivered and (final or (not lacks and self._is_final(role, step, delivery.since))):
                delivery.undelivered = {}
                values = self._changed_values(role, step, delivery)
                if values:
                    writer = self._first_rank(role).writer
                    found.append(Row(step, self._mergers[role].time(step), values, writer))
        return found

    def _is_final(self, role: str, step: int, since: float) -> bool:
        """Return whether the first rank's rows of a step were emitted, and no rank is waited for."""
        first = self._first_rank(role)
        if not first.has_passed(step) and not self._has_ended(first.main):
            return False
        return time.monotonic() - since >= self._patience or not self._lacks_a_rank(role, step)

    def _changed_values(self, role: str, step: int, delivery: _StepDelivery) -> dict[str, float]:
        merger = self._mergers[role]
        withheld = merger.withheld(step)
        expected = {
            name: delivery.own[name][1]
            for name in delivery.own
            if name not in withheld and merger.counts(delivery.own[name][0], step)
        }
        expected |= merger.values(step)
        changed = {name: value for name, value in expected.items() if not _same(delivery.delivered.get(name), value)}
        delivery.delivered = delivery.delivered | changed
        return changed

    def _forget_old_steps(self) -> None:
        """Forget steps that are so far behind the first rank's that nothing is waited for: a late evaluation, say."""
        for role in self._newest if self.merges_ranks else ():
            names = [segment.name for segment in self._first_rank(role).segments.values()]
            last = max((self._emitted[name].last_step for name in names if name in self._emitted), default=-1)
            self._merger(role).forget_before(last - MAX_STEPS_BACK)
        for key in [key for key in self._deliveries if key[1] not in self._mergers[key[0]]]:
            del self._deliveries[key]


def _same(delivered: float | None, value: float) -> bool:
    """Return whether a value was delivered; NaN is the same as NaN."""
    return delivered == value or (delivered is not None and delivered != delivered and value != value)
