"""Payloads of many frames of one read, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from windsock.journal.frames import FRAME_HEAD, FRAME_MAGIC, MAX_FRAME, ROW_HEAD, length_seed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HEAD_TYPE = np.dtype([("kind", "u1"), ("schema", "<u8"), ("step", "<i8"), ("time", "<f8")])
COMMIT_TYPE = np.dtype([("kind", "u1"), ("step", "<i8"), ("time", "<f8")])


class PayloadBatch:
    """Payloads of intact frames, with the places in some bytes where they begin."""

    def __init__(self, data: bytes, starts: Sequence[int], sizes: Sequence[int]) -> None:
        self._data = data
        self._places = np.array(starts, np.int64)
        self.kinds: NDArray[np.uint8] = np.frombuffer(data, np.uint8)[self._places]
        self.sizes: Ints = np.array(sizes, np.int64)

    def offsets(self, numbers: Ints, base: int) -> Ints:
        """Return the offsets of some frames in the segment; ``base`` is that of the bytes."""
        return self._places[numbers] + (base - FRAME_HEAD.size)

    def columns(self, numbers: Ints, base: int) -> tuple[list[int], list[int], list[bytes]]:
        """Return kinds, offsets and payloads of some frames."""
        return self.kinds[numbers].tolist(), self.offsets(numbers, base).tolist(), self.payloads(numbers)

    def payloads(self, numbers: Ints) -> list[bytes]:
        """Return some payloads."""
        starts = self._places[numbers]
        bounds = zip(starts.tolist(), (starts + self.sizes[numbers]).tolist(), strict=True)
        return [self._data[start:stop] for start, stop in bounds]

    def windows(self, numbers: Ints, kind: np.dtype[Any], start: int = 0) -> NDArray[Any]:
        """Return some payloads from a byte on, each as a record of a type."""
        # An array of overlapping records, one from every byte on.
        records = np.ndarray((len(self._data) - start - kind.itemsize + 1,), kind, self._data, start, (1,))
        return records[self._places[numbers]]

    def values(self, numbers: Ints, width: int) -> Floats:
        """Return the values of some rows, which have equally many: rows × width."""
        if not width:
            return np.empty((len(numbers), 0))
        # As one piece each: they are copied once, and lie where numbers should.
        found = self.windows(numbers, np.dtype(f"V{8 * width}"), ROW_HEAD.size)
        return found.view("<f8").reshape(len(numbers), width)


def intact_frames(data: bytes) -> tuple[list[int], list[int]]:
    """Return the starts and sizes of the payloads of the intact frames at the beginning of some bytes.

    They end before the first one that is damaged or incomplete, has the magic of frames in its payload, or is followed
    by anything but a frame.
    """
    found = np.frombuffer(data, np.uint8)
    heads = np.flatnonzero(found[: 1 - FRAME_HEAD.size] == FRAME_MAGIC[0])
    for number, byte in enumerate(FRAME_MAGIC[1:], 1):
        heads = heads[found[heads + number] == byte]
    if not len(heads) or heads[0] != 0:
        return [], []
    sizes, expected = found[heads[:, None] + np.arange(len(FRAME_MAGIC), FRAME_HEAD.size)].view("<u4").T
    stops = heads + FRAME_HEAD.size + sizes
    follows = (stops == np.append(heads[1:], len(data))) & (sizes > 0) & (sizes <= MAX_FRAME)
    count = len(heads) if follows.all() else int(follows.argmin())
    starts, lengths = (heads[:count] + FRAME_HEAD.size).tolist(), sizes[:count].tolist()
    frames = zip(starts, stops[:count].tolist(), map(length_seed, lengths), strict=True)
    found_sums = [crc32(data[start:stop], seed) for start, stop, seed in frames]
    if found_sums != expected[:count].tolist():
        count = int(np.argmax(np.array(found_sums) != expected[:count]))
    return starts[:count], lengths[:count]
