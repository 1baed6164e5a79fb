"""The rule of steps: which step a frame belongs to, and which attempt counts for a step.

A frame either names its step or is *open*. An open frame belongs to

1. the first commit after it in its segment; else
2. the first commit of the attempt's other segments at or after the frame's time; else
3. the step to come: the one after the highest that the attempt's rows and commits name.

Everything that reads a journal asks here. All objects only grow as frames are read, and no answer depends on how the
bytes were split into reads.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from barograph.base.arrays import Floats, Ints
from barograph.journal.format.fields import MAX_STEP, OPEN_STEP
from barograph.journal.segments.contents import RowTable, united_heads


class RowSummary(NamedTuple):
    """What is known about some rows of a segment together."""

    first: tuple[float, int, int]  # time, offset and step of the row that was written first
    highest: int  # step that a row names; OPEN_STEP if none does
    span: tuple[float, float]  # the lowest and the highest time
    open_until: float | None  # the highest time of the open rows behind the last commit

    @classmethod
    def of(cls, offsets: Ints, steps: Ints, times: Floats, last_commit: int) -> RowSummary:
        """Return the summary of some rows, at least one; ``last_commit`` is the offset of the last commit."""
        first = int(offsets.argmin())
        behind = times[(steps == OPEN_STEP) & (offsets > last_commit)]
        return cls(
            (float(times[first]), int(offsets[first]), int(steps[first])),
            int(steps.max()),
            (float(times.min()), float(times.max())),
            float(behind.max()) if len(behind) else None,
        )


class SegmentSteps:
    """The commits of one segment, and the steps that its rows name. Its reader fills it.

    Commits are kept in three arrays of plain numbers: whoever follows a run for weeks keeps all of them.
    """

    __slots__ = ("first_row", "highest", "highest_commit", "offsets", "open_until", "row_span", "steps", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.steps = array("q")
        self.times = array("d")
        self.highest = OPEN_STEP  # step that a row or a commit names; OPEN_STEP, the lowest number, if none does
        self.highest_commit: tuple[int, float] | None = None  # step and time
        self.first_row: tuple[float, int, int] | None = None  # time, offset and step of the row that was written first
        self.row_span: tuple[float, float] | None = None  # the lowest and the highest time of a row
        self.open_until: float | None = None  # the highest time of the open rows behind the last commit

    def __len__(self) -> int:
        return len(self.offsets)

    def add_commits(self, offsets: Ints, steps: Ints, times: Floats) -> None:
        """Add the segment's next commits, at least one."""
        for into, new in ((self.offsets, offsets), (self.steps, steps), (self.times, times)):
            into.frombytes(new.tobytes())
        self.open_until = None
        highest = int(steps.max())
        self.highest = max(self.highest, highest)
        # A step that is committed again counts with its later time: ``process_has_passed`` asks for a commit since a
        # restart.
        if self.highest_commit is None or highest >= self.highest_commit[0]:
            self.highest_commit = highest, float(times[np.flatnonzero(steps == highest)[-1]])

    def add_rows(self, offsets: Ints, steps: Ints, times: Floats) -> None:
        """Add rows, at least one, that were written after those before; the commits among them were added already."""
        self.add_summary(RowSummary.of(offsets, steps, times, self.offsets[-1] if self.offsets else -1))

    def add_summary(self, rows: RowSummary) -> None:
        """Add rows by what is known about them together."""
        self.highest = max(self.highest, rows.highest)
        if self.first_row is None or rows.first[1] < self.first_row[1]:
            self.first_row = rows.first
        low, high = self.row_span or rows.span
        self.row_span = min(low, rows.span[0]), max(high, rows.span[1])
        if rows.open_until is not None:
            self.open_until = max(rows.open_until, self.open_until or 0.0)

    def step_after(self, offset: int) -> int | None:
        """Return the step of the first commit after a place in the segment; None if there is none."""
        place = bisect_right(self.offsets, offset)
        return self.steps[place] if place < len(self.steps) else None

    def first(self) -> tuple[float, int, int] | None:
        """Return time, offset and step of the row or commit that was written first; the step may be open."""
        commit = (self.times[0], self.offsets[0], self.steps[0]) if self.steps else None
        found = [one for one in (commit, self.first_row) if one is not None]
        return min(found, key=lambda one: one[1], default=None)


class AttemptSteps:
    """The steps of one attempt's frames, by the commits of all its segments."""

    def __init__(self) -> None:
        self._segments: dict[int, SegmentSteps] = {}
        self._by_time: dict[int, tuple[int, Floats, Ints]] = {}  # of the other segments: count, times, steps

    def add(self, index: int, segment: SegmentSteps) -> None:
        """Add a segment of the attempt."""
        self._segments[index] = segment

    @property
    def version(self) -> tuple[int, int]:
        """A pair that changes whenever the step of an open frame may have changed."""
        return sum(map(len, self._segments.values())), self.upcoming

    @property
    def upcoming(self) -> int:
        """The step to come."""
        highest = max([-1, *(segment.highest for segment in self._segments.values())])
        return min(highest, MAX_STEP - 1) + 1  # stays in int64

    @property
    def passed(self) -> int | None:
        """The last step that the attempt is done with: it was committed, or without commits, a later one was named."""
        committed = self.highest_commit
        if committed is not None:
            return committed
        named = max((segment.highest for segment in self._segments.values()), default=OPEN_STEP)
        return None if named == OPEN_STEP else named - 1

    def step_of(self, index: int, offset: int, time: float) -> int:
        """Return the step of an open frame, by all three rules."""
        step = self._segments[index].step_after(offset)
        if step is not None:
            return step
        found = self.commit_by_time(index, time)
        return self.upcoming if found is None else found[0]

    def commit_by_time(self, index: int, time: float) -> tuple[int, float] | None:
        """Return step and time of the other segments' first commit at or after a time, by rule 2; None if none is."""
        times, steps = self._other_commits(index)
        place = int(np.searchsorted(times, time))
        return (int(steps[place]), float(times[place])) if place < len(times) else None

    def settled(self, index: int, offsets: Ints, steps: Ints) -> int:
        """Return how many of a segment's frames, in the order of their offsets, have steps that cannot change.

        They name their step, or have a commit behind them in their segment.
        """
        commits = self._segments[index].offsets
        unsettled = (steps == OPEN_STEP) & (offsets > commits[-1] if commits else True)
        return int(unsettled.argmax()) if unsettled.any() else len(steps)

    def resolve(self, index: int, offsets: Ints, steps: Ints, times: Floats) -> Ints:
        """Return the steps of a segment's frames, with those of open ones filled in."""
        open_frames = np.flatnonzero(steps == OPEN_STEP)
        if not len(open_frames):
            return steps
        steps = steps.copy()
        segment = self._segments[index]
        # Only the commits behind the first open frame matter: who follows a run has few of them left.
        first = bisect_left(segment.offsets, int(offsets[open_frames].min()))
        at = np.searchsorted(np.array(segment.offsets[first:], np.int64), offsets[open_frames])
        # The appended entry is for rows after the last commit, which rules 2 and 3 resolve below.
        steps[open_frames] = np.append(np.array(segment.steps[first:], np.int64), OPEN_STEP)[at]
        rest = open_frames[at == len(segment) - first]
        if len(rest):
            other_times, other_steps = self._other_commits(index)
            steps[rest] = np.append(other_steps, self.upcoming)[np.searchsorted(other_times, times[rest])]
        return steps

    @property
    def highest_commit(self) -> int | None:
        """The highest step that was committed."""
        return max((s.highest_commit[0] for s in self._segments.values() if s.highest_commit), default=None)

    def last_step(self) -> int | None:
        """Return the highest step of all rows and commits."""
        for index, segment in self._segments.items():
            # Open rows that a commit gives their step have none that is higher than that of a commit.
            if segment.open_until is not None and self.commit_by_time(index, segment.open_until) is None:
                return self.upcoming
        highest = max((segment.highest for segment in self._segments.values()), default=OPEN_STEP)
        return None if highest == OPEN_STEP else highest

    def row_span(self) -> tuple[float, float] | None:
        """Return the lowest and the highest time of a row."""
        spans = [segment.row_span for segment in self._segments.values() if segment.row_span is not None]
        return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None

    def commits(self) -> list[tuple[int, float]]:
        """Return step and time of every commit, in the order of time."""
        found = [pair for s in self._segments.values() for pair in zip(s.times, s.steps, strict=True)]
        return [(step, time) for time, step in sorted(found)]

    def first_step(self, committed: bool = False) -> int | None:
        """Return the step that was logged or committed first, which is where the attempt takes over.

        With ``committed``, None is returned as long as rule 3 alone would name it: the step to come may change.
        """
        found = [(*first, index) for index, s in self._segments.items() if (first := s.first()) is not None]
        if not found:
            return None
        time, offset, step, index = min(found)  # by time: offsets of different segments cannot be compared
        if step != OPEN_STEP:
            return step
        if committed and self._segments[index].step_after(offset) is None and self.commit_by_time(index, time) is None:
            return None
        return self.step_of(index, offset, time)

    def _other_commits(self, index: int) -> tuple[Floats, Ints]:
        """Return times and steps of the commits of all segments but one, in the order of time."""
        others = [segment for number, segment in self._segments.items() if number != index]
        count = sum(map(len, others))
        known = self._by_time.get(index)
        if known is None or known[0] != count:  # commits are only added, so their number tells a change
            times = np.concatenate([np.empty(0), *(np.array(s.times, np.float64) for s in others)])
            steps = np.concatenate([np.empty(0, np.int64), *(np.array(s.steps, np.int64) for s in others)])
            # Ties are ordered by step, so that the answer does not depend on the order in which segments were read.
            order = np.lexsort((steps, times))
            known = self._by_time[index] = count, times[order], steps[order]
        return known[1], known[2]


def process_has_passed(segments: Sequence[SegmentSteps], step: int, since: float = 0.0) -> bool:
    """Return whether a process is done with a step: it has committed it, or a later one, at or after a time.

    ``segments`` are all of the process: it continues in another one when its file may not grow. A process that never
    commits is done with a step when one of its rows names a later one.
    """
    commits = [segment.highest_commit for segment in segments if segment.highest_commit is not None]
    if not commits:
        return any(segment.highest > step for segment in segments)
    highest, at = max(commits)
    return highest >= step and at >= since


def superseded_from(first_steps: Sequence[int | None]) -> list[int | None]:
    """Return, for each attempt of one role and rank, the step from which newer attempts supersede it.

    ``first_steps`` are the attempts' first steps, oldest attempt first; None where an attempt has none yet.
    """
    limits: list[int | None] = []
    lowest: int | None = None
    for first in reversed(first_steps):
        limits.append(lowest)
        lowest = first if lowest is None else lowest if first is None else min(first, lowest)
    return limits[::-1]


class GrowingArray:
    """A one-dimensional array. When its room is full it is doubled, so that an entry is copied about once."""

    __slots__ = ("_count", "_room")

    def __init__(self, dtype: DTypeLike) -> None:
        self._room: NDArray[Any] = np.empty(0, dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def extend(self, values: NDArray[Any]) -> None:
        """Append entries. Arrays that were returned before keep their contents."""
        count = self._count + len(values)
        if count > len(self._room):
            # More than there is now: pages that are not written to take no memory.
            room = np.empty(2 * count, self._room.dtype)
            room[: self._count] = self.array
            self._room = room
        self._room[self._count : count] = values
        self._count = count

    @property
    def array(self) -> NDArray[Any]:
        """The entries, which cannot be changed."""
        found = self._room[: self._count]
        found.flags.writeable = False
        return found

    def followed_by(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the entries and some more."""
        return np.concatenate([self.array, values]) if len(values) else self.array


class _Heads(NamedTuple):
    """Offsets, steps and times of some rows."""

    offsets: Ints
    steps: Ints
    times: Floats

    def slice(self, start: int, stop: int | None = None) -> _Heads:
        return _Heads._make(column[start:stop] for column in self)

    def followed_by(self, other: _Heads) -> _Heads:
        return _Heads._make(map(np.concatenate, zip(self, other, strict=True)))


NO_ROWS = _Heads(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


class ResolvedRows:
    """Steps, times and offsets of a table's rows, with open steps filled in.

    The step of a row is settled if the row names it, or if its segment has a commit behind the row. Those are kept;
    the few rows behind the last commit are looked at again when there are new commits.
    """

    def __init__(self, index: int, table: RowTable) -> None:
        self._index = index
        self._table = table
        self._offsets, self._steps = GrowingArray(np.int64), GrowingArray(np.int64)  # of settled rows
        self._times = GrowingArray(np.float64)
        self._last = OPEN_STEP  # step of the last one
        self._settled_ascend = True
        self._open = NO_ROWS  # as they were written
        self._resolved = NO_ROWS  # the same rows with their steps
        self._version: tuple[int, ...] | None = None
        self.ascending = True  # every step once and in order: the columns can be used as they are

    def __len__(self) -> int:
        return len(self._steps) + len(self._resolved.steps)

    @property
    def is_settled(self) -> bool:
        """Whether the step of no row can change any more."""
        return not len(self._open.steps)

    @property
    def steps(self) -> Ints:
        """The steps."""
        return self._steps.followed_by(self._resolved.steps)

    @property
    def times(self) -> Floats:
        """The times."""
        return self._times.followed_by(self._resolved.times)

    @property
    def offsets(self) -> Ints:
        """The offsets."""
        return self._offsets.followed_by(self._resolved.offsets)

    def update(self, steps: AttemptSteps) -> None:
        """Add the rows that were read since, and fill in the steps of open ones again if there are new commits."""
        count = len(self._table)
        # A commit gives open rows their step after they were read: the number of rows alone does not tell a change.
        version = (count, *steps.version)
        if version == self._version:
            return
        self._version = version
        if count > len(self):
            self._open = self._open.followed_by(_Heads(*united_heads(list(self._table.since(len(self))))))
        if not len(self._open.steps):
            return
        settled = steps.settled(self._index, self._open.offsets, self._open.steps)
        resolved = self._open._replace(steps=steps.resolve(self._index, *self._open))
        self._settle(resolved.slice(0, settled))
        self._open, self._resolved = self._open.slice(settled), resolved.slice(settled)
        self.ascending = self._settled_ascend and _ascends(self._resolved.steps, self._last)

    def _settle(self, rows: _Heads) -> None:
        for column, values in zip((self._offsets, self._steps, self._times), rows, strict=True):
            column.extend(values)
        self._settled_ascend = self._settled_ascend and _ascends(rows.steps, self._last)
        if len(rows.steps):
            self._last = int(rows.steps[-1])


def _ascends(steps: Ints, last: int) -> bool:
    """Return whether steps ascend, from one behind the last one before them."""
    return not len(steps) or (int(steps[0]) > last and bool((steps[1:] > steps[:-1]).all()))
