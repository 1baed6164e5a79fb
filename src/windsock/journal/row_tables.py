"""Rows of one schema, or states of one layout, as columns in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
        ...

    @property
    def steps(self) -> Ints:
        """The steps, as written."""
        ...

    @property
    def times(self) -> Floats:
        """The times."""
        ...

    @property
    def values(self) -> Floats:
        """All columns: rows × width."""
        ...

    def column(self, number: int) -> Floats:
        """Return one column."""
        ...

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows in some columns."""
        ...

    def slice(self, start: int, stop: int) -> Rows:
        """Return the rows from ``start`` up to ``stop``."""
        ...


@dataclass(slots=True)
class RowChunk:
    """Rows in memory."""

    offsets: Ints
    steps: Ints
    times: Floats
    values: Floats  # rows × width

    def __len__(self) -> int:
        return len(self.offsets)

    def column(self, number: int) -> Floats:
        """Return one column."""
        return self.values[:, number]

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows in some columns."""
        found: Floats = self.values[rows[:, None], columns]
        return found

    def slice(self, start: int, stop: int) -> RowChunk:
        """Return the rows from ``start`` up to ``stop``."""
        return RowChunk(
            self.offsets[start:stop], self.steps[start:stop], self.times[start:stop], self.values[start:stop]
        )

    def followed_by(self, other: RowChunk) -> RowChunk:
        """Return these rows and those of another as one chunk."""
        return united([self, other])


def united(chunks: list[RowChunk]) -> RowChunk:
    """Return the rows of several chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    columns = ([getattr(one, name) for one in chunks] for name in ("offsets", "steps", "times", "values"))
    return RowChunk(*map(np.concatenate, columns))


@dataclass(slots=True)
class RowTable:
    """All rows of one schema that were read so far, in chunks: first those on disk, then those in memory."""

    width: int
    chunks: list[Rows] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self.chunks)

    def add(self, rows: RowChunk) -> None:
        """Add rows. Small chunks are united as the digits of a binary counter: a row is copied log(n) times."""
        max_rows = MAX_CHUNK // (8 * (self.width + 3))
        while self.chunks and len(self.chunks[-1]) <= len(rows) <= max_rows // 2:
            last = self.chunks[-1]
            if not isinstance(last, RowChunk):
                break
            self.chunks.pop()
            rows = last.followed_by(rows)
        self.chunks.append(rows)

    def fresh(self) -> list[RowChunk]:
        """Return the rows that are in memory."""
        return [chunk for chunk in self.chunks if isinstance(chunk, RowChunk)]

    def store(self, rows: Rows) -> None:
        """Replace the rows in memory by the same on disk, or add further ones that are on disk."""
        self.chunks = [chunk for chunk in self.chunks if not isinstance(chunk, RowChunk)]
        self.chunks.append(rows)

    def since(self, count: int) -> Iterator[Rows]:
        """Yield the rows behind the first ``count``."""
        for chunk in self.chunks:
            if count <= 0:
                yield chunk
            elif count < len(chunk):
                yield chunk.slice(count, len(chunk))
            count -= len(chunk)

    @property
    def offsets(self) -> Ints:
        """The offsets over all chunks."""
        return np.concatenate([chunk.offsets for chunk in self.chunks])

    @property
    def steps(self) -> Ints:
        """The steps over all chunks, as written."""
        return np.concatenate([chunk.steps for chunk in self.chunks])

    @property
    def times(self) -> Floats:
        """The times over all chunks."""
        return np.concatenate([chunk.times for chunk in self.chunks])

    def column(self, number: int, start: int = 0) -> Floats:
        """Return one column over all chunks, from a row on."""
        pieces = [chunk.column(number) for chunk in self.since(start)]
        return np.concatenate(pieces) if pieces else np.empty(0)

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows, in ascending order, in some columns."""
        if not len(rows):
            return np.empty((0, len(columns)))
        start, found = int(rows[0]), []
        for chunk in self.since(start):
            stop = start + len(chunk)
            within = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
            if len(within):
                found.append(chunk.pick(within, columns))
            start = stop
        return np.concatenate(found)
