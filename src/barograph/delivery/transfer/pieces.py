"""Pieces of segments: bytes that end with a complete frame.

A writer cuts off a frame that it could not write completely, and writes others in its place, so nothing else is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from zlib import crc32

from barograph.journal.format.frames import (
    COMMIT_BODY,
    FRAME_HEAD,
    FRAME_MAGIC,
    MAX_FRAME,
    ROW_HEAD,
    SEGMENT_HEAD,
    Kind,
    length_seed,
)

MAX_WASTE = 16  # times the bytes of a piece that are summed in vain: each damaged head can name all that follow


class Piece(NamedTuple):
    """A piece of a segment; the ``last`` one of a writer that has ended may end with any bytes."""

    data: bytes
    last: bool


def pieces(read: Callable[[int, int], bytes], start: int, size: int, ended: bool) -> Iterator[Piece]:
    """Yield the pieces of a segment from ``start`` on, of up to ``size`` bytes each; larger ones if one frame is.

    ``read`` returns so many bytes at an offset, or fewer at the end.
    """
    place, want = start, size
    while data := read(want, place):
        is_end = len(data) < want
        last = is_end and ended
        used = len(data) if last else whole_frames(data, 0 if place else SEGMENT_HEAD.size)
        if used:
            yield Piece(data[:used], last)
            place, want = place + used, size
        elif is_end:
            return
        else:
            want *= 2  # the frame is larger than the read


def complete_frames(data: bytes, place: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of every complete frame from ``place`` on; damaged bytes between them are left out."""
    waste = MAX_WASTE * len(data)
    while place >= 0 and waste >= 0:
        stop = _claimed_end(data, place)
        if stop and _is_intact(data, place, stop):
            yield place, stop
            place = stop
        else:
            waste -= max(stop - place, 0)
            place = data.find(FRAME_MAGIC, place + 1)


def _claimed_end(data: bytes, place: int) -> int:
    """Return where the frame at a place ends according to its head; 0 if there is none, or not all of it."""
    if len(data) - place < FRAME_HEAD.size:
        return 0
    magic, length, _ = FRAME_HEAD.unpack_from(data, place)
    stop: int = place + FRAME_HEAD.size + length
    return stop if magic == FRAME_MAGIC and 0 < length <= MAX_FRAME and stop <= len(data) else 0


def _is_intact(data: bytes, place: int, stop: int) -> bool:
    _, length, crc = FRAME_HEAD.unpack_from(data, place)
    return bool(crc32(memoryview(data)[place + FRAME_HEAD.size : stop], length_seed(length)) == crc)


def whole_frames(data: bytes, place: int) -> int:
    """Return the end of the last complete piece of ``data``, whose first frame is at ``place``; 0 if there is none.

    Damaged bytes before a complete frame are a part of the segment.
    """
    end = 0
    for start, stop in complete_frames(data, place):
        # Names are written in one piece with a row: the writer may still cut them off together.
        end = end if data[start + FRAME_HEAD.size] == Kind.SCHEMA else stop
    return end


def newest_time(data: bytes, frames: list[tuple[int, int]]) -> float | None:
    """Return the time of the last row or commit among frames of ``data``."""
    for start, stop in reversed(frames):
        kind, body = data[start + FRAME_HEAD.size], stop - start - FRAME_HEAD.size
        if kind == Kind.ROW and body >= ROW_HEAD.size:
            return float(ROW_HEAD.unpack_from(data, start + FRAME_HEAD.size)[3])
        if kind == Kind.COMMIT and body >= COMMIT_BODY.size:
            return float(COMMIT_BODY.unpack_from(data, start + FRAME_HEAD.size)[2])
    return None


def ends_with_finish(data: bytes, frames: list[tuple[int, int]]) -> bool:
    """Return whether the last of some frames is the event with which a process ends its segment."""
    if not frames:
        return False
    start, stop = frames[-1]
    payload = data[start + FRAME_HEAD.size : min(stop, start + 200)]
    return payload[0] == Kind.EVENT and b'"event":"finish"' in payload
