"""Rows of one schema, or states of one layout, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_CHUNK = 4 << 20  # bytes; the allocator reuses memory of this size


@dataclass(slots=True)
class RowChunk:
    """Rows of one schema (or states of one layout), as columns.

    ``offsets`` are the places in the segment, which order rows that share a step; a step of ``OPEN_STEP`` is not
    named yet.
    """

    offsets: Ints
    steps: Ints
    times: Floats
    values: Floats  # rows × width

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, stop: int) -> RowChunk:
        """Return the rows from ``start`` up to ``stop``."""
        return RowChunk(
            self.offsets[start:stop], self.steps[start:stop], self.times[start:stop], self.values[start:stop]
        )

    def followed_by(self, other: RowChunk) -> RowChunk:
        """Return these rows and those of another as one chunk."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("offsets", "steps", "times", "values"))
        return RowChunk(*map(np.concatenate, pairs))


@dataclass(slots=True)
class RowTable:
    """All rows of one schema that were read so far, in chunks."""

    width: int
    chunks: list[RowChunk] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self.chunks)

    def add(self, rows: RowChunk) -> None:
        """Add rows. Small chunks are united as the digits of a binary counter: a row is copied log(n) times."""
        self.chunks.append(rows)
        max_rows = MAX_CHUNK // (8 * (self.width + 3))
        while len(self.chunks) > 1 and len(self.chunks[-2]) <= len(self.chunks[-1]) <= max_rows // 2:
            last = self.chunks.pop()
            self.chunks[-1] = self.chunks[-1].followed_by(last)

    def since(self, count: int) -> Iterator[RowChunk]:
        """Yield the rows behind the first ``count``."""
        for chunk in self.chunks:
            if count < len(chunk):
                yield chunk.slice(max(count, 0), len(chunk))
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
        pieces = [chunk.values[:, number] for chunk in self.since(start)]
        return np.concatenate(pieces) if pieces else np.empty(0)

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows, in ascending order, in some columns."""
        if not len(rows):
            return np.empty((0, len(columns)))
        start, found = int(rows[0]), []
        for chunk in self.since(start):
            stop = start + len(chunk)
            within = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
            found.append(chunk.values[within] if len(columns) == self.width else chunk.values[within[:, None], columns])
            start = stop
        return found[0] if len(found) == 1 else np.concatenate(found)
