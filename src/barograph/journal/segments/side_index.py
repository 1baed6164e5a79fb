"""The side index: the columns of a segment's first bytes, in files beside the segments.

Whoever reads a large segment writes an index of it, so that one column can be read later without the rest. An index
file is one part: it covers the bytes of a segment from one frame to another, and the parts of a segment follow each
other. A part is never trusted against the journal. It tells which bytes it was made from, every block has a checksum,
and what is missing, damaged or stale is read from the segment instead. All files can be deleted at any time.
``docs/journal.md`` has the format.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats, Ints
from barograph.base.model import Damage
from barograph.journal.format.folder import INDEX_FOLDER
from barograph.journal.format.frames import Kind
from barograph.journal.segments.contents import Record, RecordColumns, RowChunk, united_heads
from barograph.journal.segments.framing import frame_head
from barograph.journal.segments.steps import RowSummary

FOLDER = "segments"  # in the folder of a run's indexes

MAGIC = b"WSKINDEX"

VERSION = 2

HEAD = struct.Struct("<8sIIIII")
"""Magic, version, lengths of the description, of the list of tables and of the data, checksum of all but the data."""

MIN_FREE = 1 << 30  # bytes of the disk that an index leaves

MAX_BLOCKS = 1024  # in one call: IOV_MAX of Linux and macOS

MAX_HEADS = 1 << 14  # rows of a part whose offsets and steps are kept

FEW = 16  # one of so many rows is read from the segment, if all of it is wanted

FIRST_READ = 16 << 10  # bytes: the head and small blocks

CRC = struct.Struct("<I")

TABLE = np.dtype(
    [
        ("kind", "<u1"),
        ("width", "<u4"),
        ("key", "<u8"),
        ("rows", "<u8"),
        ("place", "<u8"),  # of the first block, in the data
        ("heads", "<u8"),  # bytes of that block: offsets and steps
        ("sizes", "<u8"),  # bytes of the last blocks, of sparse states: the lengths of the payloads, and the payloads
        ("payloads", "<u8"),
    ]
)

SAMPLE = np.dtype([("offset", "<i8"), ("step", "<i8"), ("time", "<f8"), ("kept", "<u4"), ("seen", "<u4")])

UNUSABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    RecursionError,
    struct.error,
    zlib.error,
)
"""What reading a file of arbitrary contents can raise."""

NO_COMMITS: tuple[Ints, Ints, Floats] = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


class IndexDamageError(ValueError):
    """A block of an index is missing or not as it was written."""


class StalePartError(IndexDamageError):
    """A part was made from other bytes than those that the segment has now."""


@dataclass(slots=True)
class Contents:
    """What was read from some bytes of a segment."""

    rows: dict[tuple[int, int], RowChunk] = field(default_factory=dict)  # by kind and schema or layout
    records: RecordColumns = field(default_factory=RecordColumns)
    samples: NDArray[Any] = field(default_factory=lambda: np.empty(0, SAMPLE))
    commits: tuple[Ints, Ints, Floats] = NO_COMMITS  # offsets, steps and times
    schemas: dict[int, tuple[str, ...]] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    heartbeats: list[Record] = field(default_factory=list)  # of all bytes up to the end of these


class Covered(NamedTuple):
    """The bytes of a segment that a part was made from."""

    start: int
    end: int
    last: int  # where the last frame begins
    size: int  # of the file at that time
    changed: int  # time of its last change, in nanoseconds


def index_path(segment: Path, start: int) -> Path:
    """Return the file of a segment's part that begins at an offset."""
    return segment.parent / INDEX_FOLDER / FOLDER / f"{segment.name}.{start}"


def remove_parts(segment: Path) -> None:
    """Remove the index of a segment."""
    folder = index_path(segment, 0).parent
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.rpartition(".")[0] == segment.name:
                (folder / name).unlink()


def write_part(segment: Path, covered: Covered, contents: Contents) -> None:
    """Write a part; raise OSError if that is not possible."""
    path = index_path(segment, covered.start)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with open(segment, "rb") as file:
            ends = [frame_head(file.fileno(), place).hex() for place in (covered.start, covered.last)]
        encoded = _encode({"segment": segment.name, "covered": covered, "ends": ends}, contents)
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_room(path.parent)
        with open(draft, "xb", buffering=0) as file:
            _write_all(file.fileno(), encoded)
        draft.replace(path)  # a reader never sees half a file
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def _write_all(fd: int, blocks: list[bytes | memoryview]) -> None:
    """Write blocks one behind the other; joining them first would take as long as writing."""
    for first in range(0, len(blocks), MAX_BLOCKS):
        group = blocks[first : first + MAX_BLOCKS]
        written = os.writev(fd, group)
        if written < sum(map(len, group)):  # the disk is nearly full
            left = b"".join(group)[written:]
            while left:
                left = left[os.write(fd, left) :]


def _check_room(folder: Path) -> None:
    """Raise OSError if the disk is nearly full: the training needs the rest."""
    found = os.statvfs(folder)
    if found.f_bavail * found.f_frsize < MIN_FREE:
        raise OSError(errno.ENOSPC, "too little room for an index", str(folder))


def _encode(origin: Mapping[str, Any], contents: Contents) -> list[bytes | memoryview]:
    """Return the bytes of a part: its head, then its blocks."""
    data = _Data()  # the small blocks first: they are read together with the head
    records = contents.records
    kinds, sizes = np.array(records.kinds, np.uint8), _lengths(records.payloads)
    places = np.array(records.offsets, np.int64)
    offsets, steps, times = contents.commits
    described = {
        **origin,
        "schemas": {str(id): names for id, names in contents.schemas.items()},
        "damage": [(one.start, one.end, one.reason, one.kind, one.count) for one in contents.damage],
        "heartbeats": [(one.offset, one.payload.hex()) for one in contents.heartbeats],
        "rows": _summary(contents),
        "commits": [len(offsets), *data.add(_packed(offsets, steps)), *data.add(times.tobytes())],
        "samples": [len(contents.samples), *data.add(contents.samples.tobytes())],
        "records": [
            len(kinds),
            *data.add(zlib.compress(kinds.tobytes(), 1)),
            *data.add(_packed(places, sizes)),
        ],
        "payloads": {
            str(kind): data.add(b"".join(compress(records.payloads, kinds == kind)))
            for kind in np.unique(kinds).tolist()
        },
    }
    tables = np.zeros(len(contents.rows), TABLE)
    for number, ((kind, key), rows) in enumerate(contents.rows.items()):
        heads = _packed(rows.offsets, rows.steps)
        lengths, payloads = _packed(_lengths(rows.encoded)), b"".join(rows.encoded)
        width = rows.values.shape[1]
        tables[number] = (kind, width, key, len(rows), data.length, len(heads), len(lengths), len(payloads))
        data.add(heads)
        data.add(rows.times.tobytes())
        for column in np.ascontiguousarray(rows.values.T):
            data.add(column.data.cast("B"))
        data.add(lengths)
        data.add(payloads)
    text, listed = json.dumps(described, separators=(",", ":")).encode("ascii"), tables.tobytes()
    head = MAGIC, VERSION, len(text), len(listed), data.length
    checksum = crc32(listed, crc32(text, crc32(HEAD.pack(*head, 0))))
    return [HEAD.pack(*head, checksum), text, listed, *data.sealed(checksum)]


def _lengths(payloads: list[bytes]) -> Ints:
    return np.fromiter(map(len, payloads), np.int64, len(payloads))


def _summary(contents: Contents) -> RowSummary | None:
    """Return what is known about all rows together; None if there are none."""
    rows = [rows for (kind, _), rows in contents.rows.items() if kind == Kind.ROW]
    commits = contents.commits[0]
    return RowSummary.of(*united_heads(rows), int(commits[-1]) if len(commits) else -1) if rows else None


def read_summary(first: Any, highest: Any, span: Any, open_until: Any) -> RowSummary:
    """Return the summary of rows of a record in JSON; raise TypeError or ValueError if it is none."""
    (at, offset, step), (low, high) = first, span
    until = None if open_until is None else float(open_until)
    return RowSummary((float(at), int(offset), int(step)), int(highest), (float(low), float(high)), until)


class _Data:
    """Blocks that follow each other, each with its checksum."""

    def __init__(self) -> None:
        self.length = 0
        self._blocks: list[tuple[int, bytes | memoryview]] = []

    def add(self, block: bytes | memoryview) -> tuple[int, int]:
        """Add a block; return its place and its length."""
        place = self.length
        self._blocks.append((place, block))
        self.length += len(block) + CRC.size
        return place, len(block)

    def sealed(self, seed: int) -> Iterator[bytes | memoryview]:
        for place, block in self._blocks:
            yield block
            yield CRC.pack(block_crc(block, place, seed))


def block_crc(block: bytes | memoryview, place: int, seed: int) -> int:
    """Return the checksum of a block at its place in the file."""
    # With the head's checksum and the place, so that no block can stand for another.
    return crc32(block, seed ^ (place & 0xFFFFFFFF))


def _packed(*columns: Ints) -> bytes:
    """Encode columns of integers, which mostly grow by a few amounts."""
    # Differences wrap around, and so do the sums by which they are decoded: any two numbers have one.
    deltas = np.array(columns, np.int64).view(np.uint64)
    deltas[:, 1:] -= deltas[:, :-1].copy()
    return zlib.compress(deltas.tobytes(), 1)


def unpacked(data: bytes, columns: int, rows: int) -> list[Ints]:
    """Return the columns of a packed block."""
    size = 8 * columns * rows
    unpack = zlib.decompressobj()
    found = np.frombuffer(unpack.decompress(data, size) if size else b"", np.uint64)
    return [one.view(np.int64) for one in np.cumsum(found.reshape(columns, rows), axis=1, dtype=np.uint64)]
