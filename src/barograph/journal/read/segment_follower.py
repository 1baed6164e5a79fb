"""Following one segment as rows: open frames are united when their step can no longer change.

A follower goes on from a saved cursor, and emits every row once. It does not look back, as a view does: a row that
was emitted stays as it is.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.base.files.compression import Budget
from barograph.base.model import Histogram, Row, Sample, Writer
from barograph.journal.format import frames
from barograph.journal.format.fields import MAX_STEP, OPEN_STEP
from barograph.journal.format.folder import SegmentFile
from barograph.journal.format.frames import Kind
from barograph.journal.format.samples import decode
from barograph.journal.segments.contents import Record, RowChunk, Rows
from barograph.journal.segments.framing import read_payload
from barograph.journal.segments.reader import SegmentReader, decoded, events, sparse_records
from barograph.journal.segments.steps import AttemptSteps

PIECE = 4 << 20  # bytes of a segment that become rows at once: a long run has more of them than memory
MAX_STEPS_BACK = 1000  # steps behind the newest for which values are remembered, to compare and merge late ones
MAX_OPEN_GROUPS = 1000  # of a segment; then neighbours are united
STEP_RECORDS = (Kind.TEXT, Kind.HISTOGRAM)
SHARED_RECORDS = (Kind.LAYOUT, Kind.GATHERED)
"""Kinds of records that belong to a step as values do."""

Position = tuple[float, int]
"""The order of values in an attempt: the time where it has several segments (else 0.0), and the offset."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a segment was emitted. Delivery state files contain it as a list of its fields."""

    resume: int = 0  # open frames before it were emitted
    done: int = 0  # frames that name their step were emitted before it
    last_step: int = -1
    by_time: int = 0  # open frames from ``resume`` to here were emitted under a commit of another segment
    merged: int | None = None  # states before it are in rows that were emitted; None: those before ``done``

    @property
    def merged_to(self) -> int:
        """The offset before which states are in rows that were emitted."""
        return self.done if self.merged is None else self.merged


START = Cursor()


@dataclass(slots=True)
class StepContents:
    """The contents of one or several frames of a step."""

    values: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    positions: dict[str, Position] = field(default_factory=dict)  # of the values, where they are needed

    def __bool__(self) -> bool:
        return bool(self.values or self.texts or self.histograms or self.samples)

    def add(self, other: StepContents) -> None:
        """Add the contents of later frames."""
        self.values |= other.values
        self.texts |= other.texts
        self.histograms |= other.histograms
        self.samples += other.samples

    def row(self, step: int, time: float, writer: Writer) -> Row:
        """Return the contents as a row."""
        return Row(step, time, self.values, writer, self.texts, self.histograms, tuple(self.samples))


class FollowedRow(NamedTuple):
    """A row, the place that completed it, and whether it is new or was emitted before the cursor was saved."""

    row: Row
    segment: str
    offset: int
    is_new: bool


class _Frame(NamedTuple):
    offset: int
    step: int  # OPEN_STEP: open
    time: float
    contents: StepContents | None  # None: a commit


@dataclass(slots=True)
class _OpenGroup:
    """Neighbouring open frames of a segment that have the same step, whatever it will be."""

    offset: int  # of the last frame
    time: float
    position: Position
    contents: StepContents
    positions: dict[str, Position] | None = None  # of the values, where the group has several frames
    commit: tuple[int, float] | None = None  # of another segment, at the last look
    emitted: bool = False

    def located(self) -> dict[str, Position]:
        """Return the positions of the values."""
        if self.positions is None:
            return dict.fromkeys(self.contents.values, self.position)
        return self.positions

    def add(self, later: _OpenGroup) -> None:
        """Add the frames of the next group."""
        self.positions = self.located() | later.located()
        self.contents.add(later.contents)
        self.offset, self.time, self.commit = later.offset, later.time, later.commit


@dataclass(slots=True)
class SharedFrames:
    """The frames of a segment that are merged with those of other ranks, as they were read."""

    states: list[tuple[int, int, int, float, NDArray[np.float64]]] = field(default_factory=list)
    """Offset, layout, step, time and vector."""
    records: list[Record] = field(default_factory=list)
    """Layouts, rollout states and sparse states."""
    events: list[Record] = field(default_factory=list)

    def take(self, reader: SegmentReader) -> None:
        """Add the frames that a reader has read."""
        for layout, table in reader.states.items():
            for chunk in table.chunks:
                heads = chunk.offsets.tolist(), [layout] * len(chunk), chunk.steps.tolist(), chunk.times.tolist()
                self.states += zip(*heads, chunk.values, strict=True)
        records = [*reader.records.of(*SHARED_RECORDS), *sparse_records(reader.sparse_states)]
        self.records += sorted(records, key=lambda record: record.offset)
        self.events += [record for record in reader.records if record.kind == Kind.EVENT]

    def clear(self) -> None:
        """Forget the frames."""
        self.states.clear()
        self.records.clear()
        self.events.clear()


class NewestPositions:
    """The positions of the values that were emitted, by step.

    Rows are not emitted in the order in which they were written: an open row comes with its commit. A view shows
    the value that was written last, so a value that comes after a newer one of its step is left out.
    """

    def __init__(self) -> None:
        self._by_step: dict[int, dict[str, Position]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_step)

    def leave_out_older(self, step: int, contents: StepContents) -> None:
        """Remove the values of a step that are older than those emitted."""
        known = self._by_step.get(step)
        if known:
            older = [name for name, at in contents.positions.items() if at < known.get(name, at)]
            for name in older:
                del contents.values[name], contents.positions[name]

    def add(self, step: int, positions: Mapping[str, Position]) -> None:
        """Note values of a step; the steps that were noted first are forgotten."""
        known = self._by_step.setdefault(step, {})
        for name, position in positions.items():
            known[name] = max(position, known.get(name, position))
        if len(self._by_step) > MAX_STEPS_BACK:
            del self._by_step[next(iter(self._by_step))]

    def clear(self) -> None:
        """Forget all."""
        self._by_step.clear()


@dataclass(slots=True)
class AttemptContext:
    """What the followers of one attempt's segments share."""

    schemas: dict[int, tuple[str, ...]]
    collects_shared: bool = False  # whether the frames that are merged over ranks are wanted too
    has_forks: bool = False  # whether there are several segments, whose frames are ordered by time
    steps: AttemptSteps = field(default_factory=AttemptSteps)
    newest: NewestPositions = field(default_factory=NewestPositions)

    @property
    def replays(self) -> bool:
        """Whether frames before the cursor are read again, to know what later ones are merged or compared with."""
        return self.has_forks or self.collects_shared


class SegmentFollower:
    """Yields the rows of one segment as they are appended; open frames are united when their step is known.

    ``cursor`` can be saved at any time, and another follower goes on from there: every row comes once, and it is the
    same row whenever it is read, so that a tracker recognises one that is delivered again.
    """

    def __init__(self, attempt: AttemptContext, segment: SegmentFile, cursor: Cursor, ends: int | None) -> None:
        self.segment = segment
        self.cursor = replace(cursor, merged=None)
        self.shared = SharedFrames()
        self.start_event: dict[str, Any] | None = None
        self.is_behind = False  # whether there is more to read than the last piece
        self._attempt = attempt
        self._begin = cursor
        self._reader = SegmentReader(segment.path, attempt.schemas)
        if ends is not None:
            self._reader.read_ends(ends)
        self.steps = self._reader.steps
        self.reached = self._reader.offset
        self._commits_read = 0
        self._last_step = cursor.last_step
        self._replayed = StepContents()  # open frames that were emitted before the cursor was saved
        self._groups: list[_OpenGroup] = []  # open frames since the segment's last commit
        self._samples: dict[int, list[Sample]] = {}  # by step
        self._open_since: int | None = None  # offset of the first frame that waits for a commit
        self._patient_since: float | None = None  # when a commit of another segment was first seen
        self._out_of_patience = False
        self._sample_budget = Budget()

    @property
    def name(self) -> str:
        """The segment's file name, by which cursors are kept."""
        return self.segment.path.name

    @property
    def process(self) -> tuple[Any, ...] | None:
        """The process that writes the segment: machine, pid and start time; None if that is not known."""
        event = self.start_event
        return None if event is None else (event.get("machine"), event.get("pid"), event.get("born"))

    @property
    def is_unfinished(self) -> bool:
        """Whether frames wait for a commit."""
        return self._open_since is not None

    @property
    def waits_for_commit(self) -> bool:
        """Whether open frames could be emitted under another segment's commit, unless this one commits them."""
        return any(group.commit is not None and not group.emitted for group in self._groups)

    @property
    def unread_bytes(self) -> int:
        """The bytes that were not read yet, neither now nor by the one who saved the cursor."""
        known = max(0, self._begin.done - self.reached)  # read again, to know what rows after them belong to
        return max(0, self._reader.unread_bytes() - known)

    def new_rows(self) -> list[FollowedRow]:
        """Return the rows that were completed since the last call, or the next piece of them."""
        self._reader.poll(PIECE)
        self.is_behind = self._reader.offset - self.reached >= PIECE
        self.reached = self._reader.offset
        if self.start_event is None:
            self.start_event = next((e for e in events(self._reader.records) if e.get("event") == "start"), None)
        rows = list(self._completed())
        if self._attempt.collects_shared:
            self.shared.take(self._reader)
        # The contents are in rows or groups now. A follower of a long run must not keep what it has passed on.
        self._reader.forget()
        self._move_cursor()
        return rows

    def rows_by_time(self, is_over: bool, patience: float) -> Iterator[FollowedRow]:
        """Yield open frames under the commits of other segments, where this segment will not commit them itself.

        That is so when its process is over. One that lives and has not committed for long is not waited for either:
        should it commit after all, its frames are emitted once more, under the step that they then have. A commit
        must have been there at the last look too: by now, all segments were read up to its time.
        """
        ready = is_over or self._is_out_of_patience(patience)
        known: list[tuple[_OpenGroup, tuple[int, float]]] = []
        for group in (group for group in self._groups if not group.emitted):
            commit = self._attempt.steps.commit_by_time(self.segment.index, group.time)
            # Later groups wait too: the cursor has one offset for them, so they are emitted in the order of the file.
            if commit is None or commit != group.commit or not ready:
                group.commit = commit
                break
            known.append((group, commit))
        yield from self._emit_groups(known)
        if known:
            self.cursor = replace(self.cursor, by_time=known[-1][0].offset + 1)
        self._unite_groups()

    def take_unfinished(self) -> Iterator[FollowedRow]:
        """Yield, once, the frames after the last commit: no other will come."""
        steps, index = self._attempt.steps, self.segment.index
        upcoming = steps.upcoming
        waiting = [group for group in self._groups if not group.emitted]
        last = waiting[-1].time if waiting else 0.0
        yield from self._emit_groups(
            (group, steps.commit_by_time(index, group.time) or (upcoming, last)) for group in waiting
        )
        yield from self._other_samples(0.0)
        self._groups.clear()
        self._open_since = None
        # Another follower must not emit these open frames again under a later commit.
        self.cursor = replace(self.cursor, resume=self.cursor.done)

    def _emit_groups(self, groups: Iterable[tuple[_OpenGroup, tuple[int, float]]]) -> Iterator[FollowedRow]:
        """Yield one row for the neighbouring groups of a commit."""
        for (step, at), pairs in itertools.groupby(groups, key=lambda pair: pair[1]):
            contents = StepContents(samples=self._samples.pop(step, []))
            for group, _ in pairs:
                contents.add(group.contents)
                contents.positions |= group.located()
                group.emitted = True
                offset = group.offset
            yield from self._emit(step, at, contents, offset)

    def _is_out_of_patience(self, patience: float) -> bool:
        """Return whether open frames have waited long for this segment's own commit; later ones wait no longer."""
        if not self.waits_for_commit:
            self._patient_since = None
            return self._out_of_patience
        if self._patient_since is None:
            self._patient_since = time.monotonic()
        self._out_of_patience |= time.monotonic() - self._patient_since >= patience
        return self._out_of_patience

    def _move_cursor(self) -> None:
        # Open frames are read again from the first that waits. Frames after it that name their step were emitted
        # already: ``done`` tells them apart.
        if self.reached > self.cursor.resume:
            resume = self.reached if self._open_since is None else self._open_since
            done = max(self.reached, self.cursor.done)
            self.cursor = replace(self.cursor, resume=resume, done=done, last_step=self._last_step)

    def _completed(self) -> Iterator[FollowedRow]:
        if not self._attempt.has_forks:
            self._unite_groups()
        for frame in self._new_frames():
            if frame.contents is None:
                yield from self._commit(frame)
            elif frame.contents.samples:  # a step's samples are written before its commit, and come with its row
                self._samples.setdefault(frame.step, []).extend(frame.contents.samples)
                self._open_since = frame.offset if self._open_since is None else self._open_since
                continue
            elif frame.step == OPEN_STEP:
                self._add_open(frame.offset, frame.time, frame.contents)
                continue
            else:
                yield from self._named(frame.offset, frame.step, frame.time, frame.contents)
            self._last_step = max(self._last_step, frame.step)

    def _add_open(self, offset: int, time: float, contents: StepContents) -> None:
        position = self._position(time, offset)
        if offset < self._begin.resume:
            self._replayed.add(contents)
            self._replayed.positions |= dict.fromkeys(contents.values, position)
            return
        self._open_since = offset if self._open_since is None else self._open_since
        self._groups.append(_OpenGroup(offset, time, position, contents, emitted=offset < self._begin.by_time))

    def _commit(self, frame: _Frame) -> Iterator[FollowedRow]:
        """Yield the open frames under the step of their commit; samples of other steps are rows of their own."""
        contents = self._groups[0].contents if self._groups else StepContents()
        for group in self._groups[1:]:
            contents.add(group.contents)
        if self._attempt.has_forks or self._attempt.newest:
            contents.positions = {name: at for group in self._groups for name, at in group.located().items()}
        contents.samples += self._samples.pop(frame.step, [])
        self._groups.clear()
        self._open_since = self._patient_since = None
        self._out_of_patience = False
        if self._replayed:
            yield from self._emit(frame.step, frame.time, self._replayed, frame.offset, is_new=False)
            self._replayed = StepContents()
        yield from self._other_samples(frame.time)
        if contents:
            yield from self._emit(frame.step, frame.time, contents, frame.offset)
        # In one segment positions are kept only for open frames that a later row has overtaken, and none is left now.
        if not self._attempt.has_forks:
            self._attempt.newest.clear()

    def _other_samples(self, time: float) -> Iterator[FollowedRow]:
        for step, samples in self._samples.items():
            row = StepContents(samples=samples).row(step, time or samples[-1].time, self.segment.writer)
            yield FollowedRow(row, self.name, self.reached, True)
        self._samples = {}

    def _named(self, offset: int, step: int, time: float, contents: StepContents) -> Iterator[FollowedRow]:
        is_new = offset >= self._begin.done
        if self._attempt.has_forks or self._groups:
            contents.positions = dict.fromkeys(contents.values, self._position(time, offset))
            yield from self._emit(step, time, contents, offset, is_new)
        elif is_new or self._attempt.replays:
            yield FollowedRow(contents.row(step, time, self.segment.writer), self.name, offset, is_new)

    def _emit(
        self, step: int, time: float, contents: StepContents, offset: int, is_new: bool = True
    ) -> Iterator[FollowedRow]:
        """Yield a row of what is newer than the values of the step that were emitted before."""
        newest = self._attempt.newest
        newest.leave_out_older(step, contents)
        if self._attempt.has_forks:
            newest.add(step, contents.positions)
        elif self._groups:  # in one segment, only a row that names its step can overtake an open one
            waiting = {name for group in self._groups for name in group.contents.values}
            newest.add(step, {name: at for name, at in contents.positions.items() if name in waiting})
        if contents:
            yield FollowedRow(contents.row(step, time, self.segment.writer), self.name, offset, is_new)

    def _position(self, time: float, offset: int) -> Position:
        return (time if self._attempt.has_forks else 0.0), offset

    def _unite_groups(self) -> None:
        """Unite neighbouring groups: where only this segment's next commit can name their step, or they are many."""
        united: list[_OpenGroup] = []
        many = len(self._groups) > MAX_OPEN_GROUPS
        for group in self._groups:
            last = united[-1] if united else None
            alike = last is not None and group.emitted == last.emitted
            if last is not None and alike and (group.emitted or not self._attempt.has_forks or many):
                last.add(group)
            else:
                united.append(group)
        self._groups = united

    def _new_frames(self) -> list[_Frame]:
        """Return the frames that were read, in the order of the file."""
        # The reader sorts frames by kind and schema. The place in the file decides which commit names an open frame.
        found = [*self._commits(), *self._values(), *self._records(), *self._sample_frames()]
        return sorted(found, key=lambda frame: frame.offset)

    @property
    def _oldest_replayed(self) -> int:
        """The step from which frames are read again that were emitted before the cursor was saved."""
        return self._begin.last_step - MAX_STEPS_BACK if self._attempt.replays else MAX_STEP

    def _commits(self) -> Iterator[_Frame]:
        steps, first, oldest = self.steps, self._commits_read, self._oldest_replayed
        self._commits_read = len(steps)
        for number in range(first, len(steps)):
            if steps.offsets[number] >= self._begin.resume or steps.steps[number] >= oldest:
                yield _Frame(steps.offsets[number], steps.steps[number], steps.times[number], None)

    def _values(self) -> Iterator[_Frame]:
        for schema, table in self._reader.tables.items():
            names = self._reader.schemas.get(schema)
            if names is None or len(names) != table.width:
                continue
            for chunk in map(self._wanted, table.chunks):
                heads = chunk.offsets.tolist(), chunk.steps.tolist(), chunk.times.tolist()
                for offset, step, at, values in zip(*heads, chunk.values.tolist(), strict=True):
                    yield _Frame(offset, step, at, StepContents(dict(zip(names, values, strict=True))))

    def _wanted(self, chunk: Rows) -> Rows:
        """Return the rows that are new, or near enough to the cursor to be read again."""
        if chunk.offsets[0] >= self._begin.resume:
            return chunk
        wanted = chunk.offsets >= self._begin.resume
        if self._attempt.replays:
            wanted |= (
                self._attempt.steps.resolve(self.segment.index, chunk.offsets, chunk.steps, chunk.times)
                >= self._oldest_replayed
            )
        return RowChunk(chunk.offsets[wanted], chunk.steps[wanted], chunk.times[wanted], chunk.values[wanted])

    def _records(self) -> Iterator[_Frame]:
        new = (record for record in self._reader.records if record.offset >= self._begin.resume)
        for record, fields in decoded(new, *STEP_RECORDS):  # the view reports damage
            step = OPEN_STEP if fields.get("step") is None else fields["step"]
            yield _Frame(record.offset, step, fields.get("time", 0.0), _record_contents(record.kind, fields))

    def _sample_frames(self) -> Iterator[_Frame]:
        wanted = [frame for frame in self._reader.samples if frame.offset >= self._begin.resume and frame.kept]
        if not wanted:
            return
        fd = os.open(self.segment.path, os.O_RDONLY)
        try:
            for frame in wanted:
                with suppress(ValueError):  # the view reports damage
                    records = frames.parse_samples(read_payload(fd, frame.offset), self._sample_budget)
                    samples = [decode(record, frame.step, frame.time) for record in records]
                    yield _Frame(frame.offset, frame.step, frame.time, StepContents(samples=samples))
        finally:
            os.close(fd)


def _record_contents(kind: int, fields: dict[str, Any]) -> StepContents:
    name = fields["name"]
    if kind == Kind.TEXT:
        return StepContents(texts={name: fields["text"]})
    return StepContents(histograms={name: Histogram.of_record(fields)})
