"""Arrays that grow: what was computed of the rows so far stays, and what is new is appended."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


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
