"""Columns of one attempt: the rows of all its segments, each under its step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.journal.folder import SegmentFile
from windsock.journal.frames import Kind
from windsock.journal.reader import Record, SampleFrame, SegmentReader, decoded, events
from windsock.journal.series import Series
from windsock.journal.span_rows import Texts
from windsock.journal.spans import AttemptSpans, SpanPart
from windsock.journal.status import End, process_of, writer_end
from windsock.journal.steps import AttemptSteps
from windsock.model import Damage, Writer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


State = tuple[int, int, float, Floats]
"""Layout, step, time and vector of a state."""


@dataclass(slots=True)
class _ResolvedRows:
    """Steps, times and offsets of a table's rows, with open steps filled in."""

    steps: Ints
    times: Floats
    offsets: Ints
    ascending: bool  # every step once and in order: the columns can be used as they are
    version: tuple[int, ...]  # of the table and the attempt's commits when this was made


@dataclass(slots=True)
class _Segment:
    """One segment of the attempt, with the rows that were resolved so far."""

    index: int
    reader: SegmentReader
    resolved: dict[int, _ResolvedRows] = field(default_factory=dict)  # by schema
    process: tuple[Any, ...] | None = None  # that writes it
    searched: int = 0  # records, for events
    shared_records: int = 0  # records and states that ``new_shared`` has yielded
    shared_states: dict[int, int] = field(default_factory=dict)  # by layout


class Attempt:
    """One process start of one writer, read from all its segments."""

    def __init__(
        self, writer: Writer, schemas: dict[int, tuple[str, ...]] | None = None, texts: Texts | None = None
    ) -> None:
        self.writer = writer
        self.steps = AttemptSteps()
        self._schemas: dict[int, tuple[str, ...]] = {} if schemas is None else schemas
        self._segments: dict[int, _Segment] = {}
        self._places: dict[str, list[tuple[_Segment, int, int]]] = {}  # name to segment, schema and column
        self._indexed: set[tuple[int, int]] = set()
        self._indexed_at = (0, 0)  # numbers of tables and schemas
        self._events: list[dict[str, Any]] = []
        self._spans = AttemptSpans(writer, self.steps, texts or Texts())

    def add(self, segment: SegmentFile) -> None:
        """Read this segment too, from the next poll on."""
        if segment.index not in self._segments:
            reader = SegmentReader(segment.path, self._schemas)
            self._segments[segment.index] = _Segment(segment.index, reader)
            self.steps.add(segment.index, reader.steps)

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

    def names(self) -> list[str]:
        """Return the metrics of this attempt, in the order in which they were first logged."""
        self._index_names()
        return list(self._places)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the process that began the attempt (not of those it forked), with one start event."""
        main = self._segments.get(0)
        for index, segment in sorted(self._segments.items()):
            records = segment.reader.records
            found = list(events(records[segment.searched :]))
            segment.searched = len(records)
            segment.process = segment.process or process_of(found)
            if index == 0:
                self._events += found
            elif main is not None and main.process is not None and segment.process == main.process:
                self._events += (event for event in found if event.get("event") != "start")
        return iter(self._events)

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
    def end(self) -> End:
        """Whether the process that began the attempt still records, has written its end, or was killed."""
        span = self.span()
        return writer_end(self.events(), span[1] if span else None)

    @property
    def heard(self) -> float:
        """The time of the last row or event."""
        span = self.span()
        return max([span[1] if span else 0.0, *(float(event.get("time", 0.0)) for event in self.events())])

    def new_shared(self) -> Iterator[tuple[int, list[Record], list[State]]]:
        """Yield, for each segment, its records and states since the last call: what is merged over ranks."""
        for index, segment in sorted(self._segments.items()):
            records = segment.reader.records[segment.shared_records :]
            segment.shared_records += len(records)
            states: list[State] = []
            for layout, table in segment.reader.states.items():
                for chunk in table.since(segment.shared_states.get(layout, 0)):
                    heads = [layout] * len(chunk), chunk.steps.tolist(), chunk.times.tolist()
                    states += zip(*heads, chunk.values, strict=True)
                segment.shared_states[layout] = len(table)
            if records or states:
                yield index, records, states

    def series(self, name: str) -> Series:
        """Return one metric: each step once, with the value that was logged last for it."""
        self._index_names()
        places = self._places.get(name, ())
        if len(places) == 1 and (rows := self._resolved(*places[0][:2])).ascending:
            segment, schema, column = places[0]
            return Series(name, rows.steps, segment.reader.tables[schema].column(column), rows.times, self.writer)
        columns = [
            (rows.steps, segment.reader.tables[schema].column(column), rows.times, rows.offsets)
            for segment, schema, column in places
            for rows in [self._resolved(segment, schema)]
        ]
        return self._united(name, columns)

    def last_step(self) -> int | None:
        """Return the highest step so far."""
        # A step can be committed without a row, and a row can name a step that is not committed yet.
        committed = max((step for step, _ in self.steps.commits()), default=None)
        steps = [] if committed is None else [committed]
        steps += [int(rows.steps.max()) for rows in self._all_resolved()]
        return max(steps, default=None)

    def span(self) -> tuple[float, float] | None:
        """Return the times of the first and of the last row."""
        times = [(float(rows.times.min()), float(rows.times.max())) for rows in self._all_resolved()]
        return (min(first for first, _ in times), max(last for _, last in times)) if times else None

    def _index_names(self) -> None:
        # Tables and schemas are only added: while their numbers are the same, there are no new names.
        known = sum(len(segment.reader.tables) for segment in self._segments.values()), len(self._schemas)
        if known == self._indexed_at:
            return
        self._indexed_at = known
        for index, segment in self._segments.items():
            for schema, table in segment.reader.tables.items():
                # The schema of a row may come later, or from another segment, so a table without one is tried again.
                names = self._schemas.get(schema)
                if (index, schema) in self._indexed or names is None or len(names) != table.width:
                    continue
                self._indexed.add((index, schema))
                for column, name in enumerate(names):
                    self._places.setdefault(name, []).append((segment, schema, column))

    def _all_resolved(self) -> Iterator[_ResolvedRows]:
        for segment in self._segments.values():
            yield from (
                rows for schema in segment.reader.tables if len((rows := self._resolved(segment, schema)).steps)
            )

    def _resolved(self, segment: _Segment, schema: int) -> _ResolvedRows:
        table = segment.reader.tables[schema]
        # A commit gives open rows their step after they were read: the number of rows alone does not tell a change.
        version = (len(table), *self.steps.version)
        known = segment.resolved.get(schema)
        if known is None or known.version != version:
            offsets, times = table.offsets, table.times
            steps = self.steps.resolve(segment.index, offsets, table.steps, times)
            ascending = bool((steps[1:] > steps[:-1]).all())
            known = segment.resolved[schema] = _ResolvedRows(steps, times, offsets, ascending, version)
        return known

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


def poll_all(attempts: Iterable[Attempt]) -> bool:
    """Read what is new in all segments, several at a time; return whether there was anything."""
    readers = [reader for attempt in attempts for reader in attempt.readers]
    if not readers:
        return False
    with ThreadPoolExecutor(max_workers=min(4, len(readers))) as pool:
        # A list, since any() stops at the first True, and leaving the iterator cancels the polls that wait.
        return any(list(pool.map(SegmentReader.poll, readers)))
