"""Following segments as rows: what trackers and ``windsock tail`` need, in the order it was written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.journal import frames
from windsock.journal.folder import SegmentFile, segments
from windsock.journal.frames import OPEN_STEP, Kind
from windsock.journal.glance import segment_status
from windsock.journal.reader import Record, SegmentReader, events, read_payload
from windsock.journal.samples import decode
from windsock.model import Histogram, Row, Sample, Writer

PIECE = 4 << 20  # bytes of a segment that become rows at once: a long run has more of them than memory
BESIDE = (Kind.TEXT, Kind.HISTOGRAM)
"""Kinds of records that belong to a step as values do."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a segment was handed out: all before ``resume``, and what had a step of its own before ``done``."""

    resume: int = 0
    done: int = 0
    last_step: int = -1


BEGINNING = Place()


@dataclass(slots=True)
class _Said:
    """What one or several frames say of a step."""

    values: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.values or self.texts or self.histograms or self.samples)

    def update(self, other: _Said) -> None:
        self.values |= other.values
        self.texts |= other.texts
        self.histograms |= other.histograms
        self.samples += other.samples

    def row(self, step: int, time: float, writer: Writer) -> Row:
        return Row(step, time, self.values, writer, self.texts, self.histograms, tuple(self.samples))


@dataclass(slots=True)
class Parts:
    """What a segment says beside rows about steps that several ranks hold parts of."""

    world_size: int = 1
    committed: int | None = None  # the last step
    states: list[tuple[int, int, NDArray[np.float64]]] = field(default_factory=list)  # layout, step, vector
    records: list[Record] = field(default_factory=list)  # layouts, and what was gathered

    def take(self, reader: SegmentReader) -> None:
        """Note what a reader has read since."""
        for layout, table in reader.states.items():
            for chunk in table.chunks:
                self.states += zip([layout] * len(chunk), chunk.steps.tolist(), chunk.values, strict=True)
        for _, step, _ in reader.commits:
            self.committed = step if self.committed is None else max(step, self.committed)
        for event in events(reader.records):
            if event.get("event") == "start":
                self.world_size = int(event.get("world_size", 1))
        self.records += [record for record in reader.records if record.kind in (Kind.LAYOUT, Kind.GATHERED)]


class Follower:
    """Yields the rows of one segment as they are appended; open rows unite when their step is committed.

    ``place`` can be saved at any time, and another follower goes on from there: every row comes once, and it is the
    same row whenever it is read, so that a tracker knows one that is offered again.
    """

    def __init__(
        self,
        path: Path,
        writer: Writer,
        ends: int | None = None,
        place: Place = BEGINNING,
        schemas: dict[int, tuple[str, ...]] | None = None,
        parts: Parts | None = None,
    ) -> None:
        """``ends``: of what is there already, read only so many bytes at the beginning and at the end.

        ``parts`` collects what is said beside rows, where somebody wants it.
        """
        self.path = path
        self.parts = parts
        self.place = place
        self._reader = SegmentReader(path, schemas)
        if ends is not None:
            self._reader.read_ends(ends)
        self._writer = writer
        self._open = _Said()
        self._samples_of: dict[int, list[Sample]] = {}
        self._open_time = 0.0
        self._open_since: int | None = None  # where the first row lies whose step is not named yet
        self.reached = self._reader.offset
        self.is_behind = False  # whether the last piece was not the last

    def new_rows(self) -> list[Row]:
        """Return the rows that were completed since the last call, or the next piece of them."""
        self._reader.poll(PIECE)
        self.is_behind = self._reader.offset - self.reached >= PIECE
        self.reached = self._reader.offset
        rows = list(self._rows())
        if self.parts is not None:
            self.parts.take(self._reader)
        self._reader.forget()
        if self.reached > self.place.resume:
            resume = self.reached if self._open_since is None else self._open_since
            self.place = Place(resume, max(self.reached, self.place.done), self.place.last_step)
        return rows

    def take_unfinished(self) -> list[Row]:
        """Return, once, what was logged after the last commit, as the step that would come next."""
        rows = list(self._take_open(self.place.last_step + 1, self._open_time))
        self.place = Place(self.place.done, self.place.done, self.place.last_step)
        return rows

    def _take_open(self, step: int, time: float) -> Iterator[Row]:
        """Yield what a commit of this step ends; samples of another one are rows of their own."""
        self._open.samples += self._samples_of.pop(step, [])
        for other, samples in self._samples_of.items():
            yield _Said(samples=samples).row(other, time, self._writer)
        if self._open:
            yield self._open.row(step, time, self._writer)
        self._open, self._samples_of, self._open_since = _Said(), {}, None

    def _rows(self) -> Iterator[Row]:
        for offset, step, time, said in self._in_order():
            if said is None:
                yield from self._take_open(step, time)
            elif step == OPEN_STEP or said.samples:  # samples are written where a step is committed, before that
                self._keep_open(offset, step, time, said)
                continue
            elif offset >= self.place.done:
                yield said.row(step, time, self._writer)
            self.place = Place(self.place.resume, self.place.done, max(self.place.last_step, step))

    def _keep_open(self, offset: int, step: int, time: float, said: _Said) -> None:
        if self._open_since is None:
            self._open_since = offset
        self._open_time = time
        if said.samples:
            self._samples_of.setdefault(step, []).extend(said.samples)
        else:
            self._open.update(said)

    def _in_order(self) -> Iterator[tuple[int, int, float, _Said | None]]:
        """Yield what is new, and commits as saying nothing, in the order of the file."""
        found: list[tuple[int, int, float, _Said | None]] = [
            (offset, step, time, None) for offset, step, time in self._reader.commits
        ]
        found += self._values()
        found += self._records()
        found += self._samples()
        resume = self.place.resume
        yield from sorted((one for one in found if one[0] >= resume), key=lambda one: one[0])

    def _values(self) -> Iterator[tuple[int, int, float, _Said]]:
        for schema, table in self._reader.tables.items():
            names = self._reader.schemas.get(schema)
            if names is None or len(names) != table.width:
                continue
            for chunk in table.chunks:
                if chunk.offsets[-1] < self.place.resume:
                    continue
                columns = (chunk.offsets.tolist(), chunk.steps.tolist(), chunk.times.tolist(), chunk.values.tolist())
                for offset, step, time, values in zip(*columns, strict=True):
                    if offset >= self.place.resume:
                        yield offset, step, time, _Said(dict(zip(names, values, strict=True)))

    def _records(self) -> Iterator[tuple[int, int, float, _Said]]:
        for record in self._reader.records:
            if record.kind in BESIDE and record.offset >= self.place.resume:
                try:
                    fields = frames.parse_record(record.payload)
                    step = OPEN_STEP if fields["step"] is None else int(fields["step"])
                    yield record.offset, step, float(fields["time"]), _said_by(record.kind, fields)
                except (ValueError, KeyError, TypeError):
                    continue  # the view tells of damage

    def _samples(self) -> Iterator[tuple[int, int, float, _Said]]:
        wanted = [frame for frame in self._reader.samples if frame.offset >= self.place.resume and frame.kept]
        if not wanted:
            return
        fd = os.open(self.path, os.O_RDONLY)
        try:
            for frame in wanted:
                with suppress(ValueError):  # the view tells of damage
                    records = frames.parse_samples(read_payload(fd, frame.offset))
                    samples = [decode(record, frame.step, frame.time) for record in records]
                    yield frame.offset, frame.step, frame.time, _Said(samples=samples)
        finally:
            os.close(fd)


def _said_by(kind: int, fields: dict[str, Any]) -> _Said:
    name = str(fields["name"])
    if kind == Kind.TEXT:
        return _Said(texts={name: str(fields["text"])})
    return _Said(histograms={name: Histogram.of_record(fields)})


class RunFollower:
    """Yields the rows of all writers of a run, those that join later included; with ``only``, those of one."""

    def __init__(self, folder: Path, places: Mapping[str, Place] | None = None, only: Writer | None = None) -> None:
        self._folder = folder
        self._only = only
        self._places = dict(places or {})
        self._followers: dict[SegmentFile, Follower] = {}
        self._schemas: dict[int, tuple[str, ...]] = {}  # of all: a further part may begin in the middle of things

    def new_rows(self) -> list[Row]:
        """Return what was completed since the last call, or the next piece of it, by time; none: it was all."""
        for segment in segments(self._folder):
            if segment not in self._followers and self._only in (None, segment.writer):
                place = self._places.get(segment.path.name, BEGINNING)
                self._followers[segment] = self._follow(segment, place)
        while True:
            before = self._reached()
            rows = self._next_piece()
            if rows or self._reached() == before:
                return sorted(rows, key=lambda row: row.time)

    def _reached(self) -> int:
        return sum(follower.reached for follower in self._followers.values())

    def _next_piece(self) -> list[Row]:
        """Read on in every segment, but in none whose writer's earlier one is not read to its end."""
        rows: list[Row] = []
        behind: set[tuple[str, int]] = set()
        for segment in sorted(self._followers):
            follower = self._followers[segment]
            who = segment.writer.role, segment.writer.rank
            if who not in behind:
                rows += follower.new_rows()
                if follower.is_behind:
                    behind.add(who)
        return rows

    def _follow(self, segment: SegmentFile, place: Place) -> Follower:
        return Follower(segment.path, segment.writer, None, place, self._schemas)

    def take_unfinished(self) -> list[Row]:
        """Return, once, what the writers that have ended logged after their last commits."""
        ended = (f for segment, f in self._followers.items() if segment_status(segment.path).ended)
        return [row for follower in ended for row in follower.take_unfinished()]

    def places(self) -> dict[str, Place]:
        """Return how far each segment was handed out."""
        return {segment.path.name: follower.place for segment, follower in self._followers.items()}
