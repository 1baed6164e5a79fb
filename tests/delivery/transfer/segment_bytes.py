"""Bytes of segments, and the places where their frames end."""

import random

from barograph.journal.format import frames

RUN_JSON = b'{"format": 1, "id": "run1", "project": "lab", "name": "first", "created": 1.0}'


def row(number: int, width: int = 3) -> bytes:
    """Return a frame of a row."""
    return frames.frame(frames.row_struct(width).pack(frames.Kind.ROW, 7, number, 1000.0 + number, *[0.5] * width))


def segment(number: int, rows: int = 30) -> tuple[bytes, list[int]]:
    """Return a segment of rows of several sizes, and the ends of its frames; some bytes within are damaged."""
    chosen = random.Random(number)
    data, ends = frames.segment_head(), []
    for one in range(rows):
        data += row(one, chosen.randrange(1, 60))
        if chosen.random() < 0.1:
            data += chosen.randbytes(9)  # before the next frame, so that it is a part of the segment
        else:
            ends.append(len(data))
    data += row(rows)
    return data, [*ends, len(data)]
