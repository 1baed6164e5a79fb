"""Spans of phases, read from their frames: one at the entry, and one at the exit that repeats it and adds the times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from windsock.journal.frames import DEVICE_CLOCK, FAILED, TIMER
from windsock.journal.records import Records
from windsock.journal.span_rows import PHASE_KINDS, SPAN, Rows, SpanRows, Texts, decode_spans
from windsock.journal.steps import AttemptSteps
from windsock.model import PhaseSpan, Writer

Ints = NDArray[np.int64]

BATCH = 1 << 15  # frames that are decoded at once


@dataclass(frozen=True, slots=True)
class SpanPart:
    """Spans of one segment with their steps. ``order`` are the segment and the offset of each one's first frame."""

    writer: Writer
    segment: int
    rows: Rows
    steps: Ints
    order: tuple[Ints, Ints]

    def where(self, wanted: NDArray[np.bool_]) -> SpanPart:
        """Return some of the spans."""
        if wanted.all():
            return self
        first, second = self.order
        return SpanPart(
            self.writer, self.segment, self.rows[wanted], self.steps[wanted], (first[wanted], second[wanted])
        )


class AttemptSpans:
    """The spans of one attempt, from the records of its segments; new records are added, nothing is read again."""

    def __init__(self, writer: Writer, steps: AttemptSteps, texts: Texts) -> None:
        self._writer = writer
        self._steps = steps
        self._texts = texts
        self._segments: dict[int, SpanRows] = {}
        self._read: dict[int, int] = {}  # records of each segment

    def update(self, index: int, records: Records) -> None:
        """Add the new records of a segment."""
        new = records[self._read.get(index, 0) :]
        self._read[index] = len(records)
        frames = new.of(*PHASE_KINDS)
        while batch := list(islice(frames, BATCH)):
            rows = decode_spans([frame.offset for frame in batch], [frame.payload for frame in batch], self._texts)
            self._segments.setdefault(index, SpanRows()).add(rows)

    def parts(self) -> list[SpanPart]:
        """Return all spans, segment by segment. The last frame of a span may be in a later segment than the first."""
        found = [self._part(index) for index in sorted(self._segments)]
        for number in range(len(found) - 1, 0, -1):
            for earlier in range(number):
                found[earlier], found[number] = _united(found[earlier], found[number])
        return found

    def _part(self, index: int) -> SpanPart:
        rows = self._segments[index].rows
        steps = self._steps.resolve(index, rows["offset"], rows["step"], rows["start"])
        return SpanPart(self._writer, index, rows, steps, (np.full(len(rows), index), rows["first"]))


def _united(earlier: SpanPart, later: SpanPart) -> tuple[SpanPart, SpanPart]:
    """Leave the spans that two segments have to the later one, with their place in the order of the earlier."""
    _, before, after = np.intersect1d(earlier.rows["span"], later.rows["span"], return_indices=True)
    if not len(before):
        return earlier, later
    order = later.order[0].copy(), later.order[1].copy()
    for place, known in zip(order, earlier.order, strict=True):
        place[after] = known[before]
    gone = np.zeros(len(earlier.rows), bool)
    gone[before] = True
    return earlier.where(~gone), SpanPart(later.writer, later.segment, later.rows, later.steps, order)


class SpanTable:
    """The spans of a run as columns, in the order in which they began. Objects are made of those that are asked for."""

    def __init__(self, parts: Sequence[SpanPart], texts: Texts) -> None:
        self._parts = parts
        self.texts = texts.texts
        self.writers = list(dict.fromkeys(part.writer for part in parts))
        self._columns: dict[str, NDArray[Any]] = {}
        segments, offsets = (_joined((part.order[key] for part in parts), np.int64) for key in range(2))
        # lexsort sorts by its last key first.
        starts = _joined((part.rows["start"] for part in parts), np.float64)
        self._order = np.lexsort((offsets, segments, self._numbers(), starts))
        self.steps: Ints = _joined((part.steps for part in parts), np.int64)[self._order]

    def __len__(self) -> int:
        return len(self._order)

    def column(self, name: str) -> NDArray[Any]:
        """Return a field of all spans; NaN where a span does not have the value."""
        if name not in self._columns:
            self._columns[name] = _joined((part.rows[name] for part in self._parts), SPAN[name])[self._order]
        return self._columns[name]

    @cached_property
    def writer_numbers(self) -> Ints:
        """The place of each span's writer among ``writers``."""
        return self._numbers()[self._order]

    @property
    def closed(self) -> NDArray[np.bool_]:
        """Whether each span has ended."""
        closed: NDArray[np.bool_] = self.column("closed")
        return closed

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """The sum of onload, execute and offload; 0 for a span that does not have them."""
        onload, execute, offload = (self.column(name) for name in ("onload", "execute", "offload"))
        total: NDArray[np.float64] = np.nan_to_num(onload) + execute + np.nan_to_num(offload)
        return np.nan_to_num(total)

    @cached_property
    def ends(self) -> NDArray[np.float64]:
        """The time at which each span ended; NaN for one that is open."""
        ends: NDArray[np.float64] = np.where(self.closed, self.column("start") + self.column("elapsed"), np.nan)
        return ends

    def has_flag(self, flag: int) -> NDArray[np.bool_]:
        """Return which spans have a flag."""
        found: NDArray[np.bool_] = (self.column("flags") & flag) != 0
        return found

    def spans(self, places: Ints | None = None) -> list[PhaseSpan]:
        """Return some spans as objects, or all."""
        numbers = self._order if places is None else self._order[places]
        found = np.empty(len(numbers), object)
        begin = 0
        for part in self._parts:
            end = begin + len(part.rows)
            of_part = np.flatnonzero((numbers >= begin) & (numbers < end))
            found[of_part] = _spans(part, numbers[of_part] - begin, self.texts)
            begin = end
        return found.tolist()

    def first_starts(self) -> dict[Writer, float]:
        """Return when the first span of each writer began."""
        numbers, first = np.unique(self.writer_numbers, return_index=True)
        starts = self.column("start")[first].tolist()
        return {self.writers[number]: start for number, start in zip(numbers.tolist(), starts, strict=True)}

    def of_step(self, step: int) -> list[PhaseSpan]:
        """Return the spans of a step as objects."""
        return self.spans(np.flatnonzero(self.steps == step))

    def _numbers(self) -> Ints:
        numbers = {writer: number for number, writer in enumerate(self.writers)}
        return _joined((np.full(len(part.rows), numbers[part.writer]) for part in self._parts), np.int64)


def _joined(columns: Iterable[NDArray[Any]], dtype: DTypeLike) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *columns])


def _spans(part: SpanPart, places: Ints, texts: Sequence[str]) -> NDArray[Any]:
    """Return spans of one segment as objects."""
    found = np.empty(len(places), object)
    fields = zip(part.rows[places].tolist(), part.steps[places].tolist(), strict=True)
    for number, (row, step) in enumerate(fields):
        found[number] = _span(part, dict(zip(SPAN.names or (), row, strict=True)), step, texts)
    return found


def _span(part: SpanPart, row: Mapping[str, Any], step: int, texts: Sequence[str]) -> PhaseSpan:
    flags, start = row["flags"], row["start"]
    return PhaseSpan(
        name=texts[row["name"]],
        writer=part.writer,
        step=step,
        start=start,
        end=start + row["elapsed"] if row["closed"] else None,
        id=row["span"],
        parent=row["parent"] or None,
        lane=texts[row["lane"]],
        part=part.segment,
        timer=bool(flags & TIMER),
        onload=_or_none(row["onload"]),
        execute=_or_none(row["execute"]),
        offload=_or_none(row["offload"]),
        clock="device" if flags & DEVICE_CLOCK else "host",
        failed=bool(flags & FAILED),
        tokens=_or_none(row["tokens"]),
        token_kind=texts[row["token_kind"]],
        peak=_or_none(row["peak"]),
        rss=_or_none(row["rss"]),
    )


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
