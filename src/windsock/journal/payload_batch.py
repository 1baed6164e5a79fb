"""Payloads of many frames of one read, as arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.journal.frames import FRAME_HEAD, ROW_HEAD

Ints = NDArray[np.int64]

HEAD_TYPE = np.dtype([("kind", "u1"), ("schema", "<u8"), ("step", "<i8"), ("time", "<f8")])
COMMIT_TYPE = np.dtype([("kind", "u1"), ("step", "<i8"), ("time", "<f8")])


class PayloadBatch:
    """Payloads of intact frames, with the places in some bytes where they begin."""

    def __init__(self, data: bytes, starts: list[int], payloads: list[bytes]) -> None:
        self.payloads = payloads
        self._data = data
        self._places = np.array(starts, np.int64)
        self.kinds: NDArray[np.uint8] = np.frombuffer(data, np.uint8)[self._places]
        self.sizes: Ints = np.fromiter(map(len, payloads), np.int64, len(payloads))

    def offsets(self, numbers: Ints, base: int) -> Ints:
        """Return the offsets of some frames in the segment; ``base`` is that of the bytes."""
        return self._places[numbers] + (base - FRAME_HEAD.size)

    def columns(self, numbers: Ints, base: int) -> tuple[list[int], list[int], list[bytes]]:
        """Return kinds, offsets and payloads of some frames."""
        payloads = [self.payloads[number] for number in numbers.tolist()]
        return self.kinds[numbers].tolist(), self.offsets(numbers, base).tolist(), payloads

    def windows(self, numbers: Ints, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return some payloads, which have the size of a type, as records of it."""
        # An array of overlapping records, one from every byte on.
        records = np.ndarray((len(self._data) - kind.itemsize + 1,), kind, self._data, 0, (1,))
        return records[self._places[numbers]]


@lru_cache(maxsize=256)
def row_type(size: int) -> np.dtype[Any]:
    """Return the NumPy type of a row payload with so many bytes."""
    width, excess = divmod(size - ROW_HEAD.size, 8)
    fields: list[Any] = [
        ("kind", "u1"),
        ("schema", "<u8"),
        ("step", "<i8"),
        ("time", "<f8"),
        ("values", "<f8", (width,)),
    ]
    # A malformed row may not be a whole number of values long. The size of the type must still be that of the payload.
    return np.dtype([*fields, ("excess", f"V{excess}")] if excess else fields)
