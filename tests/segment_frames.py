"""Frames of a run's segments, as they lie on the disk."""

from collections.abc import Iterator
from pathlib import Path

from barograph.journal.format import frames
from barograph.journal.format.fields import decode
from barograph.journal.format.folder import segments
from barograph.journal.format.frames import FRAME_HEAD, SEGMENT_HEAD, Kind


def payloads(path: Path) -> Iterator[bytes]:
    """Yield the payloads of a segment, in order."""
    data, place = path.read_bytes(), SEGMENT_HEAD.size
    while place < len(data):
        magic, length, _ = FRAME_HEAD.unpack_from(data, place)
        assert magic == frames.FRAME_MAGIC
        place += FRAME_HEAD.size + length
        yield data[place - length : place]


def of_rank(run: Path, rank: int, kind: Kind) -> Iterator[bytes]:
    """Yield the payloads of a kind that a rank has written."""
    for segment in segments(run):
        if segment.writer.rank == rank:
            yield from (payload for payload in payloads(segment.path) if payload[0] == kind)


def states(run: Path, rank: int = 0) -> list[int]:
    """Return the steps of a rank's measured states, in the order in which they were written."""
    return [frames.ROW_HEAD.unpack_from(payload)[2] for payload in of_rank(run, rank, Kind.STATE)]


def reports(run: Path, rank: int = 0) -> list[tuple[str, str, int]]:
    """Return kind, task set and step of a rank's rollout states, in the order in which they were written."""
    heads = [decode(Kind.GATHERED, payload)[0] for payload in of_rank(run, rank, Kind.GATHERED)]
    return [(head["kind"], head["taskset"], head["step"]) for head in heads]
