"""Spans of phases, read from their frames: one at the entry, and one at the exit that repeats it and adds the times.

A run has many thousands, kept as rows of an array, and few of them are shown at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from barograph.base.arrays import Ints
from barograph.base.model import PhaseSpan, Writer
from barograph.journal.format.fields import MAX_NUMBER, MAX_SECONDS
from barograph.journal.format.frames import DEVICE_CLOCK, FAILED, PHASE_HEAD, PHASE_TAIL, TIMER, Kind, phase_string
from barograph.journal.segments.contents import Records
from barograph.journal.segments.framing import PHASE_KINDS, SpanArray, parse_phases
from barograph.journal.segments.steps import AttemptSteps

LENGTHS = PHASE_HEAD.size - 4  # place of the lengths of name and lane, which the texts follow

SECONDS = ("elapsed", "onload", "execute", "offload")

AMOUNTS = ("tokens", "peak", "rss")

SPAN = np.dtype(
    [
        *((name, "<u8") for name in ("span", "parent")),
        *((name, "<i8") for name in ("step", "offset", "first")),  # offsets of the last and of the first frame
        *((name, "<f8") for name in ("start", *SECONDS, *AMOUNTS)),
        *((name, "<u4") for name in ("name", "lane", "token_kind")),  # numbers of texts
        ("flags", "u1"),
        ("closed", "?"),
    ]
)

MIN_RECENT = 4096  # spans that are found through a dict, at least; it takes ten times the memory of sorted ids


class Texts:
    """Names, lanes and kinds of tokens, each text with a number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._pairs: dict[bytes, tuple[int, int]] = {}

    def number(self, text: bytes) -> int:
        """Return the number of an encoded text."""
        string = phase_string(text)
        if string not in self._numbers:
            self._numbers[string] = len(self.texts)
            self.texts.append(string)
        return self._numbers[string]

    def pair(self, encoded: bytes) -> tuple[int, int]:
        """Return the numbers of a name and a lane; ``encoded`` begins with their lengths."""
        found = self._pairs.get(encoded)
        if found is None:
            end = 4 + int.from_bytes(encoded[:2], "little")
            found = self._pairs[encoded] = self.number(encoded[4:end]), self.number(encoded[end:])
        return found


def decode_spans(offsets: Sequence[int], payloads: Sequence[bytes], texts: Texts) -> SpanArray:
    """Return a row for each span, in the order of their first frames; frames that cannot be decoded are left out."""
    numbers, heads, ends, tails = parse_phases(payloads)
    if not len(numbers):
        return np.empty(0, SPAN)
    ids, first, number = np.unique(heads["span"], return_index=True, return_inverse=True)
    last = np.empty(len(ids), np.int64)
    last[number] = np.arange(len(numbers))  # a later assignment replaces an earlier one
    order = np.argsort(first, kind="stable")
    first, last = first[order], last[order]
    rows = _rows(heads[last], tails[last])
    places = np.asarray(offsets, np.int64)[numbers]
    rows["first"], rows["offset"] = places[first], places[last]
    _add_texts(rows, [payloads[number] for number in numbers[last].tolist()], ends[last].tolist(), texts)
    return rows


def _rows(heads: SpanArray, tails: NDArray[np.float64]) -> SpanArray:
    rows = np.zeros(len(heads), SPAN)
    for name in ("span", "step", "start", "flags"):
        rows[name] = heads[name]
    # A value that is out of range is absent, as NaN is; a span that is its own parent has none.
    rows["parent"] = np.where(heads["parent"] == heads["span"], 0, heads["parent"])
    rows["closed"] = heads["kind"] == Kind.PHASE_CLOSE
    for column, name in enumerate((*SECONDS, *AMOUNTS)):
        limit = MAX_SECONDS if name in SECONDS else MAX_NUMBER
        rows[name] = np.where(np.abs(tails[:, column]) > limit, np.nan, tails[:, column])
    return rows


def _add_texts(rows: SpanArray, payloads: Sequence[bytes], ends: Sequence[int], texts: Texts) -> None:
    pairs = [texts.pair(payload[LENGTHS:end]) for payload, end in zip(payloads, ends, strict=True)]
    rows["name"], rows["lane"] = np.array(pairs, np.uint32).reshape(-1, 2).T
    tail = PHASE_TAIL.size
    kinds = [p[e + tail :] if p[0] == Kind.PHASE_CLOSE else b"" for p, e in zip(payloads, ends, strict=True)]
    number_of = {kind: texts.number(kind) for kind in set(kinds)}
    rows["token_kind"] = [number_of[kind] for kind in kinds]


class SpanRows:
    """The spans of one segment. The last frame of a span counts, and the first one gives it its place in the order."""

    def __init__(self) -> None:
        self._room = np.empty(0, SPAN)
        self._count = 0
        self._ids = np.empty(0, np.uint64)  # sorted, except those of recent spans
        self._places = np.empty(0, np.int64)  # of the sorted ids
        self._recent: dict[int, int] = {}  # ids and places

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> SpanArray:
        """All spans, in the order of their first frames. A frame that comes later changes the row of its span."""
        return self._room[: self._count]

    def add(self, rows: SpanArray) -> None:
        """Add the spans of the frames that follow in the segment, each once."""
        places = self._find(rows["span"])
        known = np.flatnonzero(places >= 0)
        if len(known):
            at = places[known]
            rows["first"][known] = self._room["first"][at]
            self._room[at] = rows[known]
        self._append(rows[places < 0])

    def _append(self, rows: SpanArray) -> None:
        stop = self._count + len(rows)
        if stop > len(self._room):
            room = np.empty(max(stop, len(self._room) * 3 // 2), SPAN)
            room[: self._count] = self.rows
            self._room = room
        self._room[self._count : stop] = rows
        self._recent.update(zip(rows["span"].tolist(), range(self._count, stop), strict=True))
        self._count = stop
        if len(self._recent) > max(MIN_RECENT, self._count // 8):
            self._places = np.argsort(self.rows["span"], kind="stable")
            self._ids = self.rows["span"][self._places]
            self._recent = {}

    def _find(self, ids: NDArray[np.uint64]) -> Ints:
        """Return the places of spans; -1 for a new one."""
        recent = self._recent
        found = np.fromiter((recent.get(id, -1) for id in ids.tolist()), np.int64, len(ids))
        if len(self._ids):
            at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            is_old = self._ids[at] == ids
            found[is_old] = self._places[at[is_old]]
        return found


BATCH = 1 << 15  # frames that are decoded at once


@dataclass(frozen=True, slots=True)
class SpanPart:
    """Spans of one segment with their steps. ``order`` are the segment and the offset of each one's first frame."""

    writer: Writer
    segment: int
    rows: SpanArray
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
