"""Following a run as rows: every row once, in the order in which steps become known, from any saved cursor.

Trackers and ``barograph tail`` read this way. Steps come from ``journal.segments.steps``, as those of a view do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path

from barograph.base.model import Row, Writer
from barograph.journal.format.folder import SegmentFile, segments
from barograph.journal.read.segment_follower import START, AttemptContext, Cursor, FollowedRow, SegmentFollower
from barograph.journal.read.status import segment_status
from barograph.journal.segments.steps import process_has_passed, superseded_from

PATIENCE_SECONDS = 30.0  # for processes that are behind, or dead


class AttemptFollower:
    """Yields the rows of one attempt: of the process that began it, and of those that it forked."""

    def __init__(self, writer: Writer, schemas: dict[int, tuple[str, ...]], shared: bool = False) -> None:
        """``shared``: collect the frames that are merged over ranks too, and read rows again for that."""
        self.writer = writer
        self.segments: dict[int, SegmentFollower] = {}
        self._context = AttemptContext(schemas, shared)
        self.steps = self._context.steps

    def add(self, segment: SegmentFile, cursor: Cursor, ends: int | None) -> None:
        """Follow a further segment."""
        if segment.index not in self.segments:
            follower = self.segments[segment.index] = SegmentFollower(self._context, segment, cursor, ends)
            self.steps.add(segment.index, follower.steps)
            self._context.has_forks = len(self.segments) > 1

    @property
    def main(self) -> SegmentFollower:
        """The segment of the process that began the attempt."""
        return self.segments[min(self.segments)]

    @property
    def main_segments(self) -> list[SegmentFollower]:
        """The segments of the process that began the attempt: several where its files may not grow."""
        main = self.main
        others = [segment for segment in self.segments.values() if segment is not main]
        return [main, *(s for s in others if s.process is not None and s.process == main.process)]

    def has_passed(self, step: int, since: float = 0.0) -> bool:
        """Return whether the process that began the attempt is done with a step."""
        return process_has_passed([segment.steps for segment in self.main_segments], step, since)

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read than the last pieces."""
        return any(segment.is_behind for segment in self.segments.values())

    @property
    def is_unfinished(self) -> bool:
        """Whether frames wait for a commit."""
        return any(segment.is_unfinished for segment in self.segments.values())

    @property
    def has_ended(self) -> bool:
        """Whether the process that began the attempt has ended."""
        return segment_status(self.main.segment.path).ended

    @property
    def was_emitted(self) -> bool:
        """Whether rows of this attempt were emitted, by this follower or before it."""
        return any(segment.cursor.done for segment in self.segments.values())

    def new_rows(self, patience: float) -> list[FollowedRow]:
        """Return the rows that were completed since the last call, or the next piece of them."""
        # A process must be seen to be over before its last bytes are read: they may be a commit.
        over = {index for index, segment in self.segments.items() if segment.waits_for_commit and self._is_over(index)}
        rows: list[FollowedRow] = []
        for index in sorted(self.segments):
            rows += self.segments[index].new_rows()
        # Rule 2 asks for the first commit after a time, which is known only when no segment has older bytes to read.
        if len(self.segments) > 1 and not self.is_behind:
            for index, segment in sorted(self.segments.items()):
                # The main process names its open rows at its next commit, however long that takes.
                rows += segment.rows_by_time(index in over, patience if index else float("inf"))
        return rows

    def take_unfinished(self) -> list[FollowedRow]:
        """Return, once, the rows after the last commits."""
        return [row for _, segment in sorted(self.segments.items()) for row in segment.take_unfinished()]

    def _is_over(self, index: int) -> bool:
        """Return whether a segment gets no further commits: its process has ended, or writes a later segment."""
        # A process continues in a later segment when its file can no longer grow. The end of the main process is not
        # looked at here: take_unfinished emits its last open rows.
        segment = self.segments[index]
        process = segment.process
        continued = process is not None and any(s.process == process for n, s in self.segments.items() if n > index)
        return continued or (index > 0 and segment_status(segment.segment.path).ended)


class RunFollower:
    """Yields the rows of all writers of a run, including those that join later; with ``only``, those of one writer.

    ``ends``: of the segments that are there, read only so many bytes at the beginning and at the end.
    """

    merges_ranks = False

    def __init__(
        self,
        folder: Path,
        cursors: Mapping[str, Cursor] | None = None,
        only: Writer | None = None,
        *,
        ends: int | None = None,
        patience: float | None = None,
    ) -> None:
        self._folder = folder
        self._only = only
        self._ends = ends
        self._patience = PATIENCE_SECONDS if patience is None else patience
        self._begin = dict(cursors or {})
        self._attempts: dict[Writer, AttemptFollower] = {}
        self._schemas: dict[int, tuple[str, ...]] = {}  # of all: a further segment may begin in the middle of a step

    def new_rows(self) -> list[Row]:
        """Return the rows that were completed since the last call, or the next piece of them; none: it was all."""
        for segment in segments(self._folder):
            if self._only in (None, segment.writer):
                self._attempt(segment.writer).add(segment, self._begin.get(segment.path.name, START), self._ends)
        while True:
            before = self._bytes_read()
            rows = self._next_piece()
            # A piece may have open frames or events only. To the caller an empty list means that all was read.
            if rows or self._bytes_read() == before:
                return rows

    def take_unfinished(self) -> list[Row]:
        """Return, once, the rows that the writers which have ended logged after their last commits."""
        ended = (attempt for _, attempt in sorted(self._attempts.items()) if attempt.has_ended)
        return [row for attempt in ended for row in self._taken(attempt.take_unfinished())]

    def cursors(self) -> dict[str, Cursor]:
        """Return how far each segment was emitted."""
        return {segment.name: segment.cursor for segment in self._segment_followers()}

    def unread_bytes(self) -> int:
        """Return the number of bytes of the followed segments that were not read yet."""
        # Copies: another thread than the one that follows may ask.
        attempts = list(self._attempts.values())
        return sum(segment.unread_bytes for attempt in attempts for segment in list(attempt.segments.values()))

    def _attempt(self, writer: Writer) -> AttemptFollower:
        if writer not in self._attempts:
            self._attempts[writer] = AttemptFollower(writer, self._schemas, self.merges_ranks)
        return self._attempts[writer]

    def _segment_followers(self) -> Iterator[SegmentFollower]:
        for attempt in self._attempts.values():
            yield from attempt.segments.values()

    def _bytes_read(self) -> int:
        return sum(segment.reached for segment in self._segment_followers())

    def _by_rank(self) -> dict[tuple[str, int], list[AttemptFollower]]:
        """Return the attempts of each role and rank, oldest first."""
        found: dict[tuple[str, int], list[AttemptFollower]] = {}
        for writer in sorted(self._attempts):
            found.setdefault((writer.role, writer.rank), []).append(self._attempts[writer])
        return found

    def _next_piece(self) -> list[Row]:
        """Read on in every segment and return the new rows, by time, each rank's in the order emitted."""
        sequences = [self._rows_of_rank(attempts) for attempts in self._by_rank().values()]
        # A sort by time would move a superseded row behind the newer one where a clock was set back; merge keeps the
        # order within each sequence.
        return list(heapq.merge(*sequences, key=lambda row: row.time))

    def _rows_of_rank(self, attempts: list[AttemptFollower]) -> list[Row]:
        """Read on in the attempts of one role and rank.

        An attempt is read to its end before the next: what a newer attempt supersedes must not come after it. Rows
        that an older attempt writes later still, and that are superseded, are left out.
        """
        before = [attempt.was_emitted for attempt in attempts]
        found: list[list[Row]] = []
        for number, attempt in enumerate(attempts):
            rows = self._taken(attempt.new_rows(self._patience))
            if attempt.is_behind:
                found.append(rows)
                break
            if number < len(attempts) - 1 and attempt.is_unfinished and attempt.has_ended:
                rows += self._taken(attempt.take_unfinished())  # a newer attempt runs: no commit will come
            found.append(rows)
        # Only an attempt that was emitted before this call limits the older ones: what comes in one call is in the
        # order of attempts, and a tracker keeps the last value of a step.
        firsts = [a.steps.first_step(committed=True) if old else None for a, old in zip(attempts, before, strict=True)]
        limits = superseded_from(firsts)
        return [
            row for rows, limit in zip(found, limits, strict=False) for row in rows if limit is None or row.step < limit
        ]

    def _taken(self, rows: list[FollowedRow]) -> list[Row]:
        """Return the new rows. All of them can be looked at here."""
        return [row.row for row in rows if row.is_new]
