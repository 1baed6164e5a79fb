"""What a segment contains, in memory or on disk: rows of one schema, or states of one layout, as columns; other frames
as records, in the order of the file; the last heartbeat.

Sparse states have no columns of values, but payloads of different lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, overload

import numpy as np

from barograph.base.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class SampleFrame:
    """The place of a sample frame and the numbers in its head. The samples are read when they are needed."""

    offset: int
    step: int
    time: float
    kept: int
    seen: int


MAX_CHUNK = 4 << 20  # bytes; the allocator reuses memory of this size


class Rows(Protocol):
    """Rows of one schema, or states of one layout. Of rows on disk each column is read when it is asked for.

    ``offsets`` are the places in the segment, which order rows that share a step; a step of ``OPEN_STEP`` is not
    named yet.
    """

    def __len__(self) -> int: ...

    @property
    def offsets(self) -> Ints:
        """The places in the segment."""

    @property
    def steps(self) -> Ints:
        """The steps, as written."""

    @property
    def times(self) -> Floats:
        """The times."""

    @property
    def values(self) -> Floats:
        """All columns: rows × width."""

    def column(self, number: int) -> Floats:
        """Return one column."""

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows in some columns."""

    def joined_payloads(self, rows: Ints) -> tuple[bytes, Ints]:
        """Return the payloads of some sparse states, one behind the other, and their lengths."""

    def slice(self, start: int, stop: int) -> Rows:
        """Return the rows from ``start`` up to ``stop``."""


@dataclass(slots=True)
class RowChunk:
    """Rows in memory."""

    offsets: Ints
    steps: Ints
    times: Floats
    values: Floats  # rows × width
    encoded: list[bytes] = field(default_factory=list)  # payloads of sparse states

    def __len__(self) -> int:
        return len(self.offsets)

    def column(self, number: int) -> Floats:
        """Return one column."""
        return self.values[:, number]

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows in some columns."""
        found: Floats = self.values[rows[:, None], columns]
        return found

    def joined_payloads(self, rows: Ints) -> tuple[bytes, Ints]:
        """Return the payloads of some sparse states, one behind the other, and their lengths."""
        return joined_payloads([self.encoded[row] for row in rows.tolist()])

    def slice(self, start: int, stop: int) -> RowChunk:
        """Return the rows from ``start`` up to ``stop``."""
        return RowChunk(
            self.offsets[start:stop],
            self.steps[start:stop],
            self.times[start:stop],
            self.values[start:stop],
            self.encoded[start:stop],
        )

    def followed_by(self, *others: RowChunk) -> RowChunk:
        """Return these rows and those of others as one chunk."""
        chunks = (self, *others)
        return RowChunk(
            *united_heads(chunks),
            np.concatenate([one.values for one in chunks]),
            [payload for one in chunks for payload in one.encoded],
        )


def joined_payloads(payloads: list[bytes]) -> tuple[bytes, Ints]:
    """Return payloads one behind the other, and their lengths."""
    return b"".join(payloads), np.fromiter(map(len, payloads), np.int64, len(payloads))


def split_payloads(payloads: bytes, lengths: Ints) -> list[bytes]:
    """Return payloads that lie one behind the other."""
    ends = np.cumsum(lengths)
    return [payloads[start:end] for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)]


def united_heads(chunks: Sequence[Rows]) -> tuple[Ints, Ints, Floats]:
    """Return offsets, steps and times of the rows of some chunks, at least one."""
    return (
        np.concatenate([one.offsets for one in chunks]),
        np.concatenate([one.steps for one in chunks]),
        np.concatenate([one.times for one in chunks]),
    )


@dataclass(slots=True)
class RowTable:
    """All rows of one schema that were read so far, in chunks: first those on disk, then those in memory."""

    width: int
    chunks: list[Rows] = field(default_factory=list)
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: RowChunk) -> None:
        """Add rows. Small chunks are united as the digits of a binary counter: a row is copied log(n) times."""
        self._count += len(rows)
        max_rows = MAX_CHUNK // (8 * (self.width + 3))
        while self.chunks and len(self.chunks[-1]) <= len(rows) <= max_rows // 2:
            last = self.chunks[-1]
            if not isinstance(last, RowChunk):
                break
            self.chunks.pop()
            rows = last.followed_by(rows)
        self.chunks.append(rows)

    def fresh(self) -> RowChunk | None:
        """Return the rows that are in memory; None if there are none."""
        found = [chunk for chunk in self.chunks if isinstance(chunk, RowChunk)]
        return found[0].followed_by(*found[1:]) if len(found) > 1 else found[0] if found else None

    def store(self, rows: Rows) -> None:
        """Replace the rows in memory by the same on disk, or add further ones that are on disk."""
        self.chunks = [chunk for chunk in self.chunks if not isinstance(chunk, RowChunk)]
        self.chunks.append(rows)
        self._count = sum(map(len, self.chunks))

    def since(self, count: int) -> Iterator[Rows]:
        """Yield the rows behind the first ``count``."""
        for chunk in self.chunks:
            if count <= 0:
                yield chunk
            elif count < len(chunk):
                yield chunk.slice(count, len(chunk))
            count -= len(chunk)

    def column(self, number: int, start: int = 0) -> Floats:
        """Return one column over all chunks, from a row on."""
        last = self.chunks[-1] if self.chunks else None
        before = self._count - len(last) if last is not None else 0
        if isinstance(last, RowChunk) and start >= before > 0:  # what is new in a table that is followed
            return last.values[start - before :, number].copy()
        pieces = [chunk.column(number) for chunk in self.since(start)]
        return np.concatenate(pieces) if pieces else np.empty(0)

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows, in ascending order, in some columns."""
        found = [chunk.pick(within, columns) for chunk, within in self._chunks_of(rows)]
        return np.concatenate(found) if found else np.empty((0, len(columns)))

    def joined_payloads(self, rows: Ints) -> tuple[bytes, Ints]:
        """Return the payloads of some sparse states, in ascending order, one behind the other, and their lengths."""
        found = [chunk.joined_payloads(within) for chunk, within in self._chunks_of(rows)]
        if len(found) == 1:
            return found[0]
        lengths = np.concatenate([np.empty(0, np.int64), *(lengths for _, lengths in found)])
        return b"".join([payloads for payloads, _ in found]), lengths

    def _chunks_of(self, rows: Ints) -> Iterator[tuple[Rows, Ints]]:
        """Yield the chunks that have some rows, with the numbers of the rows in the chunk."""
        start = 0
        for chunk in self.chunks:
            stop = start + len(chunk)
            within = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)]
            if len(within):
                yield chunk, within - start
            start = stop


@dataclass(slots=True)
class Record:
    """Any other frame: its kind, its offset and its payload."""

    kind: int
    offset: int
    payload: bytes


class RecordSource(Protocol):
    """Records in memory or on disk."""

    def __len__(self) -> int: ...

    def read(self, kinds: frozenset[int] | None, start: int, stop: int) -> Iterator[Record]:
        """Yield the records from ``start`` up to ``stop`` that have one of some kinds; of any kind if that is None."""


@dataclass(slots=True)
class RecordColumns:
    """Records in memory. Objects are made of those that are asked for."""

    kinds: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kinds)

    def read(self, kinds: frozenset[int] | None, start: int, stop: int) -> Iterator[Record]:
        """Yield the records from ``start`` up to ``stop`` that have one of some kinds; of any kind if that is None."""
        found = map(Record, self.kinds[start:stop], self.offsets[start:stop], self.payloads[start:stop])
        return found if kinds is None else (record for record in found if record.kind in kinds)


class Records:
    """Records of a segment: first those that are on disk, then those in memory."""

    __slots__ = ("_start", "_stop", "_stored", "fresh")

    def __init__(self) -> None:
        self.fresh = RecordColumns()
        self._stored: list[RecordSource] = []
        self._start = 0
        self._stop: int | None = None

    def __len__(self) -> int:
        count = sum(map(len, self._stored)) + len(self.fresh)
        return max(0, (count if self._stop is None else min(count, self._stop)) - self._start)

    def __iter__(self) -> Iterator[Record]:
        return self._read(None)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Records: ...
    def __getitem__(self, place: int | slice) -> Record | Records:
        start, stop, step = (place if isinstance(place, slice) else slice(place, place + 1 or None)).indices(len(self))
        assert step == 1, "records are read in the order of the file"
        found = Records()
        found._stored, found.fresh = self._stored, self.fresh
        found._start, found._stop = self._start + start, self._start + stop
        return found if isinstance(place, slice) else next(iter(found))

    def of(self, *kinds: int) -> Iterator[Record]:
        """Yield the records of some kinds; only those are read from the disk."""
        return self._read(frozenset(kinds))

    def append(self, kind: int, offset: int, payload: bytes) -> None:
        """Add the next record."""
        self.fresh.kinds.append(kind)
        self.fresh.offsets.append(offset)
        self.fresh.payloads.append(payload)

    def store(self, stored: RecordSource) -> None:
        """Replace the records in memory by the same on disk, or add further ones that are on disk."""
        self._stored.append(stored)
        self.fresh = RecordColumns()

    def clear(self) -> None:
        """Forget the records."""
        self._stored, self.fresh = [], RecordColumns()

    def _read(self, kinds: frozenset[int] | None) -> Iterator[Record]:
        start, stop = self._start, self._start + len(self)
        for source in (*self._stored, self.fresh):
            if start < min(len(source), stop):
                yield from source.read(kinds, start, min(len(source), stop))
            start, stop = max(0, start - len(source)), stop - len(source)


def of_kinds(records: Iterable[Record], kinds: tuple[int, ...]) -> Iterable[Record]:
    """Return the records of some kinds."""
    return records.of(*kinds) if isinstance(records, Records) else (one for one in records if one.kind in kinds)


class Heartbeats:
    """The last heartbeat, after the one with the most waiting frames if it has fewer.

    A process writes one every ten seconds, for weeks.
    """

    def __init__(self) -> None:
        self.kept: list[Record] = []
        self._most_waiting = 0

    def add(self, event: Record, waiting: int) -> None:
        """Add the next one, with the number of frames that waited."""
        if waiting >= self._most_waiting:
            self.kept, self._most_waiting = [event], waiting
        else:
            self.kept = [self.kept[0], event]

    def clear(self) -> None:
        """Forget them."""
        self.kept, self._most_waiting = [], 0
