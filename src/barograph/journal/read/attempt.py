"""Columns of one attempt: the rows of all its segments, each under its step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from barograph.base.arrays import Floats, Ints
from barograph.base.model import Damage, Status, Writer
from barograph.journal.format.folder import SegmentFile
from barograph.journal.format.frames import Kind
from barograph.journal.read.series import Series
from barograph.journal.read.spans import AttemptSpans, SpanPart, Texts
from barograph.journal.read.status import End, SignsOfLife, end_of, process_of, status_of
from barograph.journal.segments.contents import Record, RowTable, SampleFrame
from barograph.journal.segments.reader import SegmentReader, decoded, events
from barograph.journal.segments.steps import AttemptSteps, GrowingArray, ResolvedRows

SHARED_KINDS = (Kind.LAYOUT, Kind.GATHERED)
EVENT_BEGIN = bytes((Kind.EVENT,)) + b'{"event":"'
SHARED_EVENTS = tuple(
    EVENT_BEGIN + name + b'"' for name in (b"alone", b"shared", b"open_report", b"gather_failed", b"counts")
)
MAX_KEPT = 4 << 20  # values of a segment's columns


@dataclass(slots=True)
class _Segment:
    """One segment of the attempt, with what was found out about it so far."""

    index: int
    reader: SegmentReader
    resolved: dict[int, ResolvedRows] = field(default_factory=dict)  # by schema
    indexed: dict[int, int] = field(default_factory=dict)  # schemas whose names are known, with their first offset
    process: tuple[Any, ...] | None = None  # that writes it
    events: list[dict[str, Any]] = field(default_factory=list)  # without heartbeats
    signs: SignsOfLife = field(default_factory=SignsOfLife)  # of its events
    heartbeats: list[dict[str, Any]] = field(default_factory=list)
    heartbeat_offset: int = -1  # of the last one
    searched: int = 0  # records, for events
    shared_records: int = 0  # records and states that ``new_shared`` has yielded
    shared_states: dict[int, int] = field(default_factory=dict)  # by layout
    shared_sparse: dict[int, int] = field(default_factory=dict)
    columns: dict[tuple[int, int], GrowingArray] = field(default_factory=dict)  # by schema and column
    kept: int = 0  # values of these columns
    asked: set[tuple[int, int]] = field(default_factory=set)  # columns that were asked for

    def column(self, schema: int, number: int) -> Floats:
        """Return a column of a table. One that is asked for again is kept, so that only what is new is read."""
        table, key = self.reader.tables[schema], (schema, number)
        if key not in self.asked:
            self.asked.add(key)
            return table.column(number)
        kept = self.columns.setdefault(key, GrowingArray(np.float64))
        if len(kept) < len(table):
            self.kept += len(table) - len(kept)
            kept.extend(table.column(number, len(kept)))
            if self.kept > MAX_KEPT:
                self.columns, self.kept = {key: kept}, len(kept)
        return kept.array.copy()

    def read_events(self) -> None:
        """Decode the events that were read since the last call."""
        records = self.reader.records
        if self.searched < len(records):
            found = list(events(records[self.searched :]))
            self.searched = len(records)
            self.process = self.process or process_of(found)
            self.events += found
            self.signs.add(found)
        if self.reader.heartbeats and self.reader.heartbeats[-1].offset != self.heartbeat_offset:
            self.heartbeats = list(events(self.reader.heartbeats))
            self.heartbeat_offset = self.reader.heartbeats[-1].offset
            self.signs.add(self.heartbeats)

    def rows(self, schema: int, steps: AttemptSteps) -> ResolvedRows:
        """Return the rows of one table."""
        found = self.resolved.get(schema)
        if found is None:
            found = self.resolved[schema] = ResolvedRows(self.index, self.reader.tables[schema])
        found.update(steps)
        return found


@dataclass(slots=True)
class Shared:
    """What a segment has for merging over ranks since it was asked last."""

    segment: int
    records: list[Record]  # layouts and rollout states
    sparse_states: list[tuple[int, RowTable, int]]  # layout, table, and the first row that is new
    events: list[dict[str, Any]]
    states: list[tuple[int, RowTable, int]]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """The values of a metric as one column of a table whose rows are only appended, in the order of their steps."""

    rows: ResolvedRows
    table: RowTable
    number: int


class Attempt:
    """One process start of one writer, read from all its segments."""

    def __init__(
        self,
        writer: Writer,
        reader: Callable[[Path, dict[int, tuple[str, ...]]], SegmentReader] = SegmentReader,
        schemas: dict[int, tuple[str, ...]] | None = None,
        texts: Texts | None = None,
    ) -> None:
        self._reader = reader
        self.writer = writer
        self.steps = AttemptSteps()
        self._schemas: dict[int, tuple[str, ...]] = {} if schemas is None else schemas
        self._segments: dict[int, _Segment] = {}
        self._places: dict[str, list[tuple[_Segment, int, int]]] = {}  # name to segment, schema and column
        self._tables = 0  # whose names are known
        self._indexed_at = (0, 0)  # numbers of tables and schemas
        self._spans = AttemptSpans(writer, self.steps, texts or Texts())

    def add(self, segment: SegmentFile) -> SegmentReader:
        """Read this segment too, from the next poll on; return its reader."""
        if segment.index not in self._segments:
            reader = self._reader(segment.path, self._schemas)
            self._segments[segment.index] = _Segment(segment.index, reader)
            self.steps.add(segment.index, reader.steps)
        return self._segments[segment.index].reader

    @property
    def readers(self) -> list[SegmentReader]:
        """The readers of the attempt's segments, by index."""
        return [self._segments[index].reader for index in sorted(self._segments)]

    @property
    def damage(self) -> list[tuple[SegmentReader, Damage]]:
        """The parts of the segments that could not be read."""
        for reader in self.readers:
            reader.check_records()
        return [(reader, damage) for reader in self.readers for damage in reader.damage]

    def names(self) -> KeysView[str]:
        """Return the metrics of this attempt, in the order in which they were first logged."""
        self._index_names()
        return self._places.keys()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the process that began the attempt (not of those it forked), with one start event.

        Of heartbeats there is the last one, and the one with the most frames that waited.
        """
        for segment in self._of_main_process():
            found = segment.events if segment.index == 0 else (e for e in segment.events if e.get("event") != "start")
            yield from found
            yield from segment.heartbeats

    def events_of_all(self) -> Iterator[dict[str, Any]]:
        """Yield the events of all processes, without heartbeats."""
        for _, segment in sorted(self._segments.items()):
            segment.read_events()
            yield from segment.events

    def _of_main_process(self) -> Iterator[_Segment]:
        """Yield the segments of the process that began the attempt."""
        main = self._segments.get(0)
        for index, segment in sorted(self._segments.items()):
            segment.read_events()
            if index == 0 or (main is not None and main.process is not None and segment.process == main.process):
                yield segment

    def decoded(self, kind: Kind) -> Iterator[dict[str, Any]]:
        """Decode the records of a kind, with the step of open ones filled in; skip those that cannot be decoded."""
        for index, segment in sorted(self._segments.items()):
            for record, fields in decoded(segment.reader.records, kind):
                if fields.get("step", 0) is None:
                    fields["step"] = self.steps.step_of(index, record.offset, fields.get("time", 0.0))
                yield fields

    def spans(self) -> list[SpanPart]:
        """Return the spans of phases, segment by segment."""
        for index, segment in self._segments.items():
            self._spans.update(index, segment.reader.records)
        return self._spans.parts()

    def sample_frames(self) -> Iterator[tuple[SegmentFile, list[SampleFrame]]]:
        """Yield the segments of the attempt, each with its sample frames."""
        for index in sorted(self._segments):
            reader = self._segments[index].reader
            yield SegmentFile(self.writer, index, reader.path), reader.samples

    @property
    def start_event(self) -> Mapping[str, Any]:
        """The event by which the process that began the attempt describes itself; empty if it is not known."""
        return self._signs().start

    @property
    def status(self) -> Status:
        """The status of the process that began the attempt."""
        return status_of(self._signs(), self._last_row())

    @property
    def end(self) -> End:
        """Whether the process that began the attempt still records, has written its end, or was killed."""
        return end_of(self._signs(), self._last_row())

    @property
    def heard(self) -> float:
        """The time of the last row or event."""
        return max(self._last_row() or 0.0, self._signs().heard)

    def event_span(self) -> tuple[float, float] | None:
        """Return the times of the first and of the last event."""
        return self._signs().span

    def _signs(self) -> SignsOfLife:
        found = SignsOfLife()
        for segment in self._of_main_process():
            found = found.united(segment.signs)
        return found

    def _last_row(self) -> float | None:
        span = self.steps.row_span()
        return span[1] if span else None

    def new_shared(self) -> Iterator[Shared]:
        """Yield what each segment has for merging over ranks since the last call."""
        for index, segment in sorted(self._segments.items()):
            first, known = segment.shared_records, len(segment.reader.records)
            new = segment.reader.records[first:known]
            found = list(new.of(*SHARED_KINDS, Kind.EVENT)) if known > first else []
            records = [record for record in found if record.kind != Kind.EVENT]
            new_events = list(_shared_events(record for record in found if record.kind == Kind.EVENT))
            segment.shared_records = known
            states = list(_new_rows(segment.reader.states, segment.shared_states))
            sparse = list(_new_rows(segment.reader.sparse_states, segment.shared_sparse))
            if known > first or states or sparse:
                yield Shared(index, records, sparse, new_events, states)

    def series(self, name: str) -> Series:
        """Return one metric: each step once, with the value that was logged last for it."""
        self._index_names()
        places = self._places.get(name, ())
        if len(places) == 1:
            segment, schema, column = places[0]
            rows = segment.rows(schema, self.steps)
            if rows.ascending:
                return Series(name, rows.steps, segment.column(schema, column), rows.times, self.writer)
        columns = [
            (rows.steps, segment.column(schema, column), rows.times, rows.offsets)
            for segment, schema, column in places
            for rows in [segment.rows(schema, self.steps)]
        ]
        return self._united(name, columns)

    def table_columns(self, names: Iterable[str]) -> dict[str, TableColumn]:
        """Return where the values of metrics are, of those that are in one table and whose steps cannot change."""
        self._index_names()
        found: dict[str, TableColumn] = {}
        known: dict[tuple[int, int], ResolvedRows] = {}
        for name in names:
            places = self._places.get(name, ())
            if len(places) == 1:
                segment, schema, number = places[0]
                rows = known.get((segment.index, schema))
                if rows is None:
                    rows = known[segment.index, schema] = segment.rows(schema, self.steps)
                if rows.ascending and rows.is_settled:
                    found[name] = TableColumn(rows, segment.reader.tables[schema], number)
        return found

    def _index_names(self) -> None:
        """Find the columns of each name again if there are new tables, or names of tables that had none."""
        # Tables and schemas are only added: while their numbers are the same, there are no new names.
        known = sum(len(segment.reader.tables) for segment in self._segments.values()), len(self._schemas)
        if known == self._indexed_at:
            return
        self._indexed_at = known
        count = 0
        for segment in self._segments.values():
            for schema, table in segment.reader.tables.items():
                if schema not in segment.indexed:
                    # The schema of a row may come later, or from another segment.
                    names = self._schemas.get(schema)
                    if names is None or len(names) != table.width:
                        continue
                    segment.indexed[schema] = int(next(table.since(0)).offsets[0])
                count += 1
        if count == self._tables:
            return
        self._tables = count
        self._places = {}
        for _, segment in sorted(self._segments.items()):
            # By the offset of the first row: a reader has the tables in another order if it has read them at once.
            for schema in sorted(segment.indexed, key=segment.indexed.__getitem__):
                for column, name in enumerate(self._schemas[schema]):
                    self._places.setdefault(name, []).append((segment, schema, column))

    def _united(self, name: str, columns: list[tuple[Ints, Floats, Floats, Ints]]) -> Series:
        """Unite the columns that several key sets or segments have of a metric; the last value of a step counts.

        Within a segment the last is the one with the highest offset. Offsets of different segments cannot be
        compared, so with several segments the time decides.
        """
        if not columns:
            return Series(name, np.empty(0, np.int64), np.empty(0), np.empty(0), self.writer)
        steps, values, times, offsets = (np.concatenate(column) for column in zip(*columns, strict=True))
        # lexsort sorts by its last key first.
        order = np.lexsort((offsets, times, steps) if len(self._segments) > 1 else (offsets, steps))
        steps, values, times = steps[order], values[order], times[order]
        keep = np.append(steps[1:] != steps[:-1], True)
        return Series(name, steps[keep], values[keep], times[keep], self.writer)


def _shared_events(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Yield the events that merging over ranks asks for; others are not decoded, unless they may be such ones."""
    for record in records:
        payload = record.payload
        is_other = payload.startswith(EVENT_BEGIN) and not payload.startswith(SHARED_EVENTS)
        if not is_other or payload.count(b'"event"') > 1:
            yield from events([record])


def _new_rows(tables: Mapping[int, RowTable], known: dict[int, int]) -> Iterator[tuple[int, RowTable, int]]:
    """Yield the layouts that have new states, with the table and the first new row; the others are known then."""
    for layout, table in tables.items():
        start, count = known.get(layout, 0), len(table)
        if start < count:
            known[layout] = count
            yield layout, table, start


def poll_all(attempts: Iterable[Attempt]) -> bool:
    """Read what is new in all segments; return whether there was anything."""
    found = [reader.poll() for attempt in attempts for reader in attempt.readers]
    return any(found)
