"""Spans of phases as rows of an array: a run has many thousands, and few of them are shown at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windsock.journal.decoding import MAX_NUMBER, MAX_SECONDS, MAX_TIME
from windsock.journal.frames import PHASE_HEAD, PHASE_TAIL, Kind, phase_string

Ints = NDArray[np.int64]
Rows = NDArray[np.void]

PHASE_KINDS = (Kind.PHASE_OPEN, Kind.PHASE_CLOSE)
HEAD = np.dtype(
    [
        ("kind", "u1"), ("span", "<u8"), ("parent", "<u8"), ("step", "<i8"), ("start", "<f8"), ("flags", "u1"),
        ("name", "<u2"), ("lane", "<u2"),
    ]
)  # fmt: skip
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


class _Parsed(NamedTuple):
    """Numbers, heads, ends of the texts and last numbers of those frames that can be decoded."""

    numbers: Ints
    heads: Rows
    ends: Ints
    tails: NDArray[np.float64]


def _parse(payloads: Sequence[bytes]) -> _Parsed:
    sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
    numbers = np.flatnonzero(sizes >= PHASE_HEAD.size)
    whole = payloads if len(numbers) == len(payloads) else [payloads[number] for number in numbers.tolist()]
    heads = np.frombuffer(b"".join([payload[: PHASE_HEAD.size] for payload in whole]), HEAD)
    ends = PHASE_HEAD.size + heads["name"].astype(np.int64) + heads["lane"]
    closed = heads["kind"] == Kind.PHASE_CLOSE
    fine = (heads["start"] >= 0) & (heads["start"] <= MAX_TIME) & (~closed | (sizes[numbers] >= ends + PHASE_TAIL.size))
    tails = np.full((len(numbers), 7), np.nan)
    with_tail = np.flatnonzero(fine & closed)
    places = zip(
        with_tail.tolist(), ends[with_tail].tolist(), (ends[with_tail] + PHASE_TAIL.size).tolist(), strict=True
    )
    tails[with_tail] = np.frombuffer(b"".join([whole[n][start:end] for n, start, end in places])).reshape(-1, 7)
    fine &= ~closed | ((tails[:, 0] >= 0) & (tails[:, 0] <= MAX_SECONDS))
    return _Parsed(numbers[fine], heads[fine], ends[fine], tails[fine])


def undecodable(payloads: Sequence[bytes]) -> list[int]:
    """Return the numbers of the frames of phases that cannot be decoded."""
    bad = np.ones(len(payloads), bool)
    bad[_parse(payloads).numbers] = False
    return np.flatnonzero(bad).tolist()


def doubtful(kinds: Sequence[int], payloads: Sequence[bytes]) -> list[int]:
    """Return the numbers of the records that may not be decodable: all but the sound frames of phases."""
    is_phase = np.isin(np.fromiter(kinds, np.int64, len(kinds)), PHASE_KINDS)
    phases = np.flatnonzero(is_phase)
    bad = undecodable([payloads[number] for number in phases.tolist()])
    is_phase[phases[bad]] = False
    return np.flatnonzero(~is_phase).tolist()


def decode_spans(offsets: Sequence[int], payloads: Sequence[bytes], texts: Texts) -> Rows:
    """Return a row for each span, in the order of their first frames; frames that cannot be decoded are left out."""
    numbers, heads, ends, tails = _parse(payloads)
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


def _rows(heads: Rows, tails: NDArray[np.float64]) -> Rows:
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


def _add_texts(rows: Rows, payloads: Sequence[bytes], ends: Sequence[int], texts: Texts) -> None:
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
    def rows(self) -> Rows:
        """All spans, in the order of their first frames. A frame that comes later changes the row of its span."""
        return self._room[: self._count]

    def add(self, rows: Rows) -> None:
        """Add the spans of the frames that follow in the segment, each once."""
        places = self._find(rows["span"])
        known = np.flatnonzero(places >= 0)
        if len(known):
            at = places[known]
            rows["first"][known] = self._room["first"][at]
            self._room[at] = rows[known]
        self._append(rows[places < 0])

    def _append(self, rows: Rows) -> None:
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
