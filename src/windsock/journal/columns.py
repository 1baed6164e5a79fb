"""Columns of one attempt: rows of all its parts, with open rows given the step that was committed after them."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.journal import frames
from windsock.journal.folder import SegmentFile
from windsock.journal.frames import OPEN_STEP, Kind
from windsock.journal.reader import Record, SampleFrame, SegmentReader, Table, events
from windsock.journal.series import Series
from windsock.journal.spans import read_spans
from windsock.model import Damage, PhaseSpan, Writer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(slots=True)
class _Heads:
    """Steps, times and places of a table's rows, resolved, with whether they need sorting."""

    steps: Ints
    times: Floats
    places: Ints
    ascending: bool
    made_of: tuple[int, ...]  # what was known when this was made


@dataclass(slots=True)
class _Part:
    """One segment of the attempt and what was resolved of it."""

    reader: SegmentReader
    heads: dict[int, _Heads] = field(default_factory=dict)


class Attempt:
    """One process start of one writer, read from all its segments."""

    def __init__(self, writer: Writer, schemas: dict[int, tuple[str, ...]] | None = None) -> None:
        self.writer = writer
        self._schemas: dict[int, tuple[str, ...]] = {} if schemas is None else schemas
        self._parts: dict[int, _Part] = {}
        self._index: dict[str, list[tuple[_Part, int, int]]] = {}
        self._indexed: set[tuple[int, int]] = set()
        self._events: list[dict[str, Any]] = []
        self._told = 0  # records among which events were looked for

    def add(self, segment: SegmentFile) -> None:
        """Read this segment too, from the next poll on."""
        if segment.part not in self._parts:
            self._parts[segment.part] = _Part(SegmentReader(segment.path, self._schemas))

    @property
    def readers(self) -> list[SegmentReader]:
        """The readers of the attempt's segments, in the order of its parts."""
        return [self._parts[number].reader for number in sorted(self._parts)]

    @property
    def damage(self) -> list[tuple[SegmentReader, Damage]]:
        """What could not be read."""
        return [(reader, damage) for reader in self.readers for damage in reader.damage]

    def names(self) -> list[str]:
        """Return the metrics of this attempt, in the order in which they first came."""
        self._update_index()
        return list(self._index)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the process that began the attempt (not of those it forked)."""
        if 0 in self._parts:
            records = self._parts[0].reader.records
            self._events += events(records[self._told :])
            self._told = len(records)
        return iter(self._events)

    def records(self) -> Iterator[Record]:
        """Yield everything that is neither row nor schema."""
        for reader in self.readers:
            yield from reader.records

    def decoded(self, kind: Kind) -> Iterator[dict[str, Any]]:
        """Decode the records of a kind, open ones with their step; one that cannot be decoded is passed over."""
        for reader in self.readers:
            ends = [offset for offset, _, _ in reader.commits]
            for record in reader.records:
                if record.kind == kind:
                    with suppress(ValueError):
                        fields = frames.parse_record(record.payload)
                        if fields.get("step", 0) is None:
                            at = bisect(ends, record.offset)
                            time = float(fields.get("time") or 0.0)
                            fields["step"] = reader.commits[at][1] if at < len(ends) else self._step_at(time)
                        yield fields

    def spans(self) -> list[PhaseSpan]:
        """Return the spans of phases, part by part."""
        readers = {number: part.reader for number, part in self._parts.items()}
        return list(read_spans(readers, self.writer, self._step_at))

    def commits(self) -> list[tuple[int, float]]:
        """Return step and time of every commit, in the order of time."""
        found = [(at, step) for part in self._parts.values() for _, step, at in part.reader.commits]
        return [(step, at) for at, step in sorted(found)]

    def sample_frames(self) -> Iterator[tuple[SegmentFile, list[SampleFrame]]]:
        """Yield the segments of the attempt, each with the frames of samples that were found in it."""
        for number in sorted(self._parts):
            reader = self._parts[number].reader
            yield SegmentFile(self.writer, number, reader.path), reader.samples

    def state_tables(self) -> dict[tuple[int, int], Table]:
        """Return the tables of states, by part and layout."""
        return {(n, layout): t for n, part in self._parts.items() for layout, t in part.reader.states.items()}

    def states(self) -> Iterator[tuple[int, int, float, Floats]]:
        """Yield layout, step, time and vector of every state, the newest of a step last."""
        for (_, layout), table in self.state_tables().items():
            for chunk in table.chunks:
                for step, time, vector in zip(chunk.steps.tolist(), chunk.times.tolist(), chunk.values, strict=True):
                    yield layout, step, time, vector

    def series(self, name: str) -> Series:
        """Return one metric: each step once, with the value that was logged last for it."""
        self._update_index()
        pieces = self._index.get(name, ())
        if len(pieces) == 1 and (heads := self._heads(*pieces[0][:2])).ascending:
            part, schema, place = pieces[0]
            return Series(name, heads.steps, part.reader.tables[schema].column(place), heads.times, self.writer)
        columns = [
            (heads.steps, part.reader.tables[schema].column(place), heads.times, heads.places)
            for part, schema, place in pieces
            for heads in [self._heads(part, schema)]
        ]
        return self._united(name, columns)

    def first_step(self) -> int | None:
        """Return the step that was logged or committed first, which is where the attempt takes over."""
        found: list[tuple[float, int, int]] = []
        for part in self._parts.values():
            found += [(at, offset, step) for offset, step, at in part.reader.commits[:1]]
            for schema in part.reader.tables:
                heads = self._heads(part, schema)
                if len(heads.steps):
                    found.append((float(heads.times[0]), int(heads.places[0]), int(heads.steps[0])))
        return min(found)[2] if found else None

    def last_step(self) -> int | None:
        """Return the highest step so far."""
        steps = [step for part in self._parts.values() for _, step, _ in part.reader.commits]
        for part in self._parts.values():
            for schema in part.reader.tables:
                heads = self._heads(part, schema)
                steps += [int(heads.steps.max())] if len(heads.steps) else []
        return max(steps, default=None)

    def span(self) -> tuple[float, float] | None:
        """Return the times of the first and of the last row."""
        times = [
            (float(times.min()), float(times.max()))
            for part in self._parts.values()
            for schema in part.reader.tables
            for times in [self._heads(part, schema).times]
            if len(times)
        ]
        return (min(first for first, _ in times), max(last for _, last in times)) if times else None

    def _update_index(self) -> None:
        for number, part in self._parts.items():
            for schema, table in part.reader.tables.items():
                names = self._schemas.get(schema)
                if (number, schema) in self._indexed or names is None or len(names) != table.width:
                    continue
                self._indexed.add((number, schema))
                for place, name in enumerate(names):
                    self._index.setdefault(name, []).append((part, schema, place))

    def _heads(self, part: _Part, schema: int) -> _Heads:
        table = part.reader.tables[schema]
        made_of = (len(table), *(len(other.reader.commits) for other in self._parts.values()))
        known = part.heads.get(schema)
        if known is None or known.made_of != made_of:
            known = part.heads[schema] = self._resolve(part, table, made_of)
        return known

    def _resolve(self, part: _Part, table: Table, made_of: tuple[int, ...]) -> _Heads:
        """Give open rows their step: the next commit of their segment, else of the attempt, else the one to come."""
        steps, times, places = table.head("steps"), table.head("times"), table.head("offsets")
        open_rows = np.flatnonzero(steps == OPEN_STEP)
        if len(open_rows):
            steps = steps.copy()
            commits = part.reader.commits
            at = np.searchsorted(np.array([offset for offset, _, _ in commits], np.int64), places[open_rows])
            inside = at < len(commits)
            named = np.array([step for _, step, _ in commits], np.int64)
            steps[open_rows[inside]] = named[at[inside]]
            rest = open_rows[~inside]
            if len(rest):
                steps[rest] = self._steps_by_time(times[rest])
        ascending = bool((steps[1:] > steps[:-1]).all())
        return _Heads(steps, times, places, ascending, made_of)

    def _steps_by_time(self, times: Floats) -> Ints:
        """Find steps for rows of a fork, or after the last commit, by the clock."""
        commits = sorted((at, step) for part in self._parts.values() for _, step, at in part.reader.commits)
        explicit = [
            int(steps.max())
            for part in self._parts.values()
            for table in part.reader.tables.values()
            for steps in [table.head("steps")]
        ]
        upcoming = max([*(step for _, step in commits), *explicit, -1]) + 1
        at = np.searchsorted(np.array([at for at, _ in commits], np.float64), times)
        return np.array([*(step for _, step in commits), upcoming], np.int64)[at]

    def _step_at(self, time: float) -> int:
        return int(self._steps_by_time(np.array([time]))[0])

    def _united(self, name: str, columns: list[tuple[Ints, Floats, Floats, Ints]]) -> Series:
        """Merge what several key sets or parts hold of a metric; of a step that comes twice the last stays."""
        if not columns:
            return Series(name, np.empty(0, np.int64), np.empty(0), np.empty(0), self.writer)
        steps, values, times, places = (np.concatenate(column) for column in zip(*columns, strict=True))
        order = np.lexsort((places, times, steps) if len(self._parts) > 1 else (places, steps))
        steps, values, times = steps[order], values[order], times[order]
        keep = np.append(steps[1:] != steps[:-1], True)
        return Series(name, steps[keep], values[keep], times[keep], self.writer)


def poll_all(attempts: Iterable[Attempt]) -> bool:
    """Read what is new in all segments, several at a time; True where there was anything."""
    readers = [reader for attempt in attempts for reader in attempt.readers]
    if not readers:
        return False
    with ThreadPoolExecutor(max_workers=min(4, len(readers))) as pool:
        return any(list(pool.map(SegmentReader.poll, readers)))
