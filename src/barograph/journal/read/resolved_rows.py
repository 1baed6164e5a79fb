"""The rows of one table with the steps that they belong to, for a table that grows, in arrays that grow with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from barograph.base.arrays import Floats, Ints
from barograph.journal.format.fields import OPEN_STEP
from barograph.journal.segments.contents import RowTable
from barograph.journal.segments.steps import AttemptSteps


class GrowingArray:
    """A one-dimensional array. When its room is full it is doubled, so that an entry is copied about once."""

    __slots__ = ("_count", "_room")

    def __init__(self, dtype: DTypeLike) -> None:
        self._room: NDArray[Any] = np.empty(0, dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def extend(self, values: NDArray[Any]) -> None:
        """Append entries. Arrays that were returned before keep their contents."""
        count = self._count + len(values)
        if count > len(self._room):
            # More than there is now: pages that are not written to take no memory.
            room = np.empty(2 * count, self._room.dtype)
            room[: self._count] = self.array
            self._room = room
        self._room[self._count : count] = values
        self._count = count

    @property
    def array(self) -> NDArray[Any]:
        """The entries, which cannot be changed."""
        found = self._room[: self._count]
        found.flags.writeable = False
        return found

    def followed_by(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the entries and some more."""
        return np.concatenate([self.array, values]) if len(values) else self.array


class _Heads(NamedTuple):
    """Offsets, steps and times of some rows."""

    offsets: Ints
    steps: Ints
    times: Floats

    def slice(self, start: int, stop: int | None = None) -> _Heads:
        return _Heads._make(column[start:stop] for column in self)

    def followed_by(self, other: _Heads) -> _Heads:
        return _Heads._make(map(np.concatenate, zip(self, other, strict=True)))


NO_ROWS = _Heads(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


class ResolvedRows:
    """Steps, times and offsets of a table's rows, with open steps filled in.

    The step of a row is settled if the row names it, or if its segment has a commit behind the row. Those are kept;
    the few rows behind the last commit are looked at again when there are new commits.
    """

    def __init__(self, index: int, table: RowTable) -> None:
        self._index = index
        self._table = table
        self._settled = _Growing()
        self._open = NO_ROWS  # as they were written
        self._resolved = NO_ROWS  # the same rows with their steps
        self._version: tuple[int, ...] | None = None
        self.ascending = True  # every step once and in order: the columns can be used as they are

    def __len__(self) -> int:
        return len(self._settled.steps) + len(self._resolved.steps)

    @property
    def is_settled(self) -> bool:
        """Whether the step of no row can change any more."""
        return not len(self._open.steps)

    @property
    def steps(self) -> Ints:
        """The steps."""
        return self._settled.steps.followed_by(self._resolved.steps)

    @property
    def times(self) -> Floats:
        """The times."""
        return self._settled.times.followed_by(self._resolved.times)

    @property
    def offsets(self) -> Ints:
        """The offsets."""
        return self._settled.offsets.followed_by(self._resolved.offsets)

    def update(self, steps: AttemptSteps) -> None:
        """Add the rows that were read since, and fill in the steps of open ones again if there are new commits."""
        count = len(self._table)
        # A commit gives open rows their step after they were read: the number of rows alone does not tell a change.
        version = (count, *steps.version)
        if version == self._version:
            return
        self._version = version
        if count > len(self):
            self._open = self._open.followed_by(self._read(len(self)))
        if not len(self._open.steps):
            return
        settled = steps.settled(self._index, self._open.offsets, self._open.steps)
        resolved = self._open._replace(steps=steps.resolve(self._index, *self._open))
        self._settled.extend(resolved.slice(0, settled))
        self._open, self._resolved = self._open.slice(settled), resolved.slice(settled)
        self._summarise()

    def _read(self, start: int) -> _Heads:
        chunks = list(self._table.since(start))
        return _Heads._make(np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in _Heads._fields)

    def _summarise(self) -> None:
        """Update what is known about all rows."""
        settled, steps = self._settled, self._resolved.steps
        self.ascending = settled.ascending and bool((steps[1:] > steps[:-1]).all())
        if len(steps):
            self.ascending = self.ascending and (not len(settled.steps) or int(steps[0]) > settled.last)


class _Growing:
    """Rows whose steps do not change any more."""

    def __init__(self) -> None:
        self.offsets, self.steps, self.times = GrowingArray(np.int64), GrowingArray(np.int64), GrowingArray(np.float64)
        self.ascending = True
        self.last = OPEN_STEP

    def extend(self, rows: _Heads) -> None:
        steps = rows.steps
        if not len(steps):
            return
        follows = not len(self.steps) or int(steps[0]) > self.last
        self.ascending = self.ascending and follows and bool((steps[1:] > steps[:-1]).all())
        self.last = int(steps[-1])
        for column, values in zip((self.offsets, self.steps, self.times), rows, strict=True):
            column.extend(values)
