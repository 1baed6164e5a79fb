"""The frames of a segment that are neither rows nor commits, in the order of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, overload


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
        ...


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
