"""Frames in bytes: those that are intact, as arrays of payloads, the next one after damage, and what could not be
read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats, Ints
from barograph.base.model import Damage
from barograph.journal.format import frames
from barograph.journal.format.fields import MAX_SECONDS, MAX_TIME
from barograph.journal.format.frames import (
    FRAME_HEAD,
    FRAME_MAGIC,
    MAX_FRAME,
    PHASE_HEAD,
    PHASE_TAIL,
    ROW_HEAD,
    Kind,
    length_seed,
)

HEAD = FRAME_HEAD.size

FIRST_HEADS = 4  # that are looked at one by one

FIRST_BLOCK, LAST_BLOCK = 4 << 10, 1 << 20  # bytes that are searched for further heads at once


def frame_head(fd: int, offset: int) -> bytes:
    """Return the head of a frame: its checksum differs for frames of different processes."""
    return os.pread(fd, HEAD, offset)


def read_payload(fd: int, offset: int) -> bytes:
    """Read the payload of one frame again; raise ValueError if it is not intact."""
    head = frame_head(fd, offset)
    if len(head) == HEAD:
        magic, length, crc = FRAME_HEAD.unpack(head)
        payload = os.pread(fd, length, offset + HEAD) if magic == FRAME_MAGIC and 0 < length <= MAX_FRAME else b""
        if payload and len(payload) == length and crc32(payload, frames.length_seed(length)) == crc:
            return payload
    raise ValueError(f"no intact frame at byte {offset}")


def possible_heads(data: bytes, place: int) -> Iterator[tuple[int, int, int]]:
    """Yield place, length and checksum of the heads from a place on whose frames end within the data."""
    end = len(data) - HEAD + 1
    # Often the next frame is near, and a file of heads has more than can be looked at one by one.
    for _ in range(FIRST_HEADS):
        place = data.find(FRAME_MAGIC, place)
        if not 0 <= place < end:
            return
        _, length, crc = FRAME_HEAD.unpack_from(data, place)
        if 0 < length <= min(len(data) - HEAD - place, MAX_FRAME):
            yield place, length, crc
        place += 1
    found, block = np.frombuffer(data, np.uint8), FIRST_BLOCK
    while place < end:
        stop, block = min(place + block, end), min(2 * block, LAST_BLOCK)
        at = place + np.flatnonzero(found[place:stop] == FRAME_MAGIC[0])
        for number, byte in enumerate(FRAME_MAGIC[1:], 1):
            at = at[found[at + number] == byte]
        heads = found[at[:, None] + np.arange(4, HEAD)].view("<u4")
        fits = (heads[:, 0] > 0) & (heads[:, 0] <= np.minimum(len(data) - HEAD - at, MAX_FRAME))
        yield from zip(at[fits].tolist(), *heads[fits].T.tolist(), strict=True)
        place = stop


SpanArray = NDArray[np.void]

PHASE_KINDS = (Kind.PHASE_OPEN, Kind.PHASE_CLOSE)

PHASE_HEAD_TYPE = np.dtype(
    [
        ("kind", "u1"), ("span", "<u8"), ("parent", "<u8"), ("step", "<i8"), ("start", "<f8"), ("flags", "u1"),
        ("name", "<u2"), ("lane", "<u2"),
    ]
)  # fmt: skip


class ParsedPhases(NamedTuple):
    """Numbers, heads, ends of the texts and last numbers of those frames that can be decoded."""

    numbers: Ints
    heads: SpanArray
    ends: Ints
    tails: NDArray[np.float64]


def parse_phases(payloads: Sequence[bytes]) -> ParsedPhases:
    """Decode payloads of phases together; those that are too short are left out."""
    sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
    numbers = np.flatnonzero(sizes >= PHASE_HEAD.size)
    whole = payloads if len(numbers) == len(payloads) else [payloads[number] for number in numbers.tolist()]
    heads = np.frombuffer(b"".join([payload[: PHASE_HEAD.size] for payload in whole]), PHASE_HEAD_TYPE)
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
    return ParsedPhases(numbers[fine], heads[fine], ends[fine], tails[fine])


def undecodable(payloads: Sequence[bytes]) -> list[int]:
    """Return the numbers of the frames of phases that cannot be decoded."""
    bad = np.ones(len(payloads), bool)
    bad[parse_phases(payloads).numbers] = False
    return np.flatnonzero(bad).tolist()


def doubtful(kinds: Sequence[int], payloads: Sequence[bytes]) -> list[int]:
    """Return the numbers of the records that may not be decodable: all but the sound frames of phases."""
    is_phase = np.isin(np.fromiter(kinds, np.int64, len(kinds)), PHASE_KINDS)
    phases = np.flatnonzero(is_phase)
    bad = undecodable([payloads[number] for number in phases.tolist()])
    is_phase[phases[bad]] = False
    return np.flatnonzero(~is_phase).tolist()


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


MAX_PLACES = 1000  # that are reported one by one

KIND_NAMES: dict[int, str] = {kind: kind.name.lower().replace("_", " ") for kind in Kind}


class SegmentDamage:
    """The damage of one segment. It does not depend on how the bytes were split into reads."""

    def __init__(self) -> None:
        self._skipped: list[Damage] = []
        self._unreadable: dict[tuple[str, str], Damage] = {}  # by kind and reason

    def parts(self) -> list[Damage]:
        """Return the damage, so that it can be added to that of other bytes."""
        return [*self._skipped, *self._unreadable.values()]

    def skip(self, damage: Damage) -> None:
        """Add bytes that were skipped, behind those that were added before."""
        if len(self._skipped) < MAX_PLACES:
            self._skipped.append(damage)
        else:  # the last one stands for all that follow
            self._skipped[-1] = replace(self._skipped[-1], end=damage.end, reason="unreadable bytes in many places")

    def add_unreadable(self, kind: int, offset: int, length: int, reason: str, count: int = 1) -> None:
        """Count frames that are intact and cannot be decoded; the first has this offset and length."""
        what = KIND_NAMES.get(kind, f"kind {kind}")
        self._add_unreadable(Damage(offset, offset + FRAME_HEAD.size + length, reason, what, count))

    def add(self, damage: list[Damage]) -> None:
        """Add the damage of bytes behind those that were read before."""
        for one in damage:
            if one.kind:
                self._add_unreadable(one)
            else:
                self.skip(one)

    def _add_unreadable(self, found: Damage) -> None:
        known = self._unreadable.get((found.kind, found.reason))
        if known is not None:
            found = replace(min(known, found, key=lambda one: one.start), count=known.count + found.count)
        self._unreadable[found.kind, found.reason] = found

    def clear(self) -> None:
        """Forget the damage."""
        self._skipped.clear()
        self._unreadable.clear()
