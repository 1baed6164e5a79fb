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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from windsock.errors import JournalError
from windsock.journal.folder import INDEX_FOLDER
from windsock.journal.frames import FRAME_HEAD, ROW_HEAD, Kind
from windsock.journal.reader import read_payload
from windsock.journal.records import Record, RecordColumns
from windsock.journal.row_tables import RowChunk, joined, united_heads
from windsock.journal.steps import RowSummary
from windsock.model import Damage

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
            ends = [_frame_head(file.fileno(), place).hex() for place in (covered.start, covered.last)]
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


def _frame_head(fd: int, place: int) -> bytes:
    """Return the head of a frame, which has its checksum."""
    return os.pread(fd, FRAME_HEAD.size, place)


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


def _read_summary(first: Any, highest: Any, span: Any, open_until: Any) -> RowSummary:
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
            yield CRC.pack(_block_crc(block, place, seed))


def _block_crc(block: bytes | memoryview, place: int, seed: int) -> int:
    # With the head's checksum and the place, so that no block can stand for another.
    return crc32(block, seed ^ (place & 0xFFFFFFFF))


def _packed(*columns: Ints) -> bytes:
    """Encode columns of integers, which mostly grow by a few amounts."""
    # Differences wrap around, and so do the sums by which they are decoded: any two numbers have one.
    deltas = np.array(columns, np.int64).view(np.uint64)
    deltas[:, 1:] -= deltas[:, :-1].copy()
    return zlib.compress(deltas.tobytes(), 1)


def _unpacked(data: bytes, columns: int, rows: int) -> list[Ints]:
    size = 8 * columns * rows
    unpack = zlib.decompressobj()
    found = np.frombuffer(unpack.decompress(data, size) if size else b"", np.uint64)
    return [one.view(np.int64) for one in np.cumsum(found.reshape(columns, rows), axis=1, dtype=np.uint64)]


class StoredPart:
    """One part of a segment's index. What it has is read when it is asked for."""

    def __init__(self, path: Path, segment: Path, start: int, read_again: Callable[[int, int], Contents]) -> None:
        self.path = path
        self.segment = segment
        self._read_again = read_again
        with open(path, "rb") as file:
            fd = file.fileno()
            head = os.pread(fd, FIRST_READ, 0)
            magic, version, text, listed, data, self._seed = HEAD.unpack_from(head)
            self._data = HEAD.size + text + listed
            if (magic, version) != (MAGIC, VERSION) or self._data + data != os.fstat(fd).st_size:
                raise IndexDamageError("it is no index of this version")
            if len(head) < self._data:
                head = os.pread(fd, self._data, 0)
        plain = HEAD.pack(magic, version, text, listed, data, 0)
        if crc32(head[HEAD.size : self._data], crc32(plain)) != self._seed:
            raise IndexDamageError("its head is damaged")
        self._front = head[self._data :]
        self.described: dict[str, Any] = json.loads(head[HEAD.size : HEAD.size + text])
        self.covered = Covered(*self.described["covered"])
        self._listed = np.frombuffer(head, TABLE, listed // TABLE.itemsize, HEAD.size + text)
        self._check_origin(segment, start)
        self._length = data
        self._heads: dict[int, tuple[Ints, Ints]] = {}  # by place
        self._check_tables(data)
        self._load()

    def _check_tables(self, length: int) -> None:
        """Raise IndexDamageError if there is not room for the rows, in the part or in the segment."""
        names = ("rows", "width", "heads", "sizes", "payloads")
        rows, width, heads, sizes, payloads = (self._listed[name].astype(np.float64) for name in names)
        needed = heads + sizes + payloads + 3 * CRC.size + (8 * rows + CRC.size) * (width + 1)
        frames = rows * (FRAME_HEAD.size + ROW_HEAD.size + 8 * width)
        if (self._listed["place"] + needed > length).any() or frames.sum() > self.covered.end - self.covered.start:
            raise IndexDamageError("it has more rows than the segment")

    def _check_origin(self, segment: Path, start: int) -> None:
        """Raise StalePartError if the part was not made from the segment as it is now."""
        covered = self.covered
        with open(segment, "rb") as file:
            now = os.fstat(file.fileno())
            ends = [_frame_head(file.fileno(), place).hex() for place in (covered.start, covered.last)]
        grown = now.st_size > covered.size
        if (
            self.described["segment"] != segment.name
            or covered.start != start
            or not start <= covered.last < covered.end <= now.st_size
            or ends != self.described["ends"]
            # A file that only grows has another time each time. One of the same length was written anew.
            or not (grown or now.st_mtime_ns == covered.changed)
        ):
            raise StalePartError("it was made from another segment")

    @cached_property
    def recovered(self) -> Contents:
        """What the segment has in the place of the part, after a block could not be read."""
        with suppress(OSError):
            self.path.unlink()
        return self._read_again(self.covered.start, self.covered.end)

    def _load(self) -> None:
        """Read what is needed in any case."""
        described = self.described
        self.tables = [StoredRows(self, entry) for entry in self._listed.tolist()]
        self.records = StoredRecords(self, int(described["records"][0]))
        self.schemas = {int(id): tuple(map(str, names)) for id, names in described["schemas"].items()}
        self.damage = [Damage(*one) for one in described["damage"]]
        self.heartbeats = [Record(Kind.EVENT, int(at), bytes.fromhex(text)) for at, text in described["heartbeats"]]
        count, place, length, times, size = described["commits"]
        offsets, steps = _unpacked(self.block(place, length), 2, count)
        self.commits: tuple[Ints, Ints, Floats] = (
            offsets,
            steps,
            np.frombuffer(self.block(times, size), np.float64),
        )
        _, place, length = described["samples"]
        self.samples = np.frombuffer(self.block(place, length), SAMPLE)
        self.rows = None if described["rows"] is None else _read_summary(*described["rows"])

    def block(self, place: int, length: int) -> bytes:
        """Read a block; raise IndexDamageError if it is not intact."""
        return bytes(self.blocks(place, length, 1)[0])

    def blocks(self, place: int, length: int, count: int) -> list[memoryview]:
        """Read blocks of one length that follow each other."""
        total = (length + CRC.size) * count
        if not 0 <= place <= place + total <= self._length:
            raise IndexDamageError("a block is outside of the file")
        data = memoryview(self._read(place, total))
        if len(data) != total:
            raise IndexDamageError("it is too short")
        found = []
        for at in range(0, total, length + CRC.size):
            block = data[at : at + length]
            if CRC.unpack_from(data, at + length)[0] != _block_crc(block, place + at, self._seed):
                raise IndexDamageError("a block is damaged")
            found.append(block)
        return found

    def _read(self, place: int, length: int) -> bytes:
        if place + length <= len(self._front):
            return self._front[place : place + length]
        try:
            with open(self.path, "rb", buffering=0) as file:
                return os.pread(file.fileno(), length, self._data + place)
        except OSError as error:
            raise IndexDamageError(str(error)) from error

    def heads(self, place: int, length: int, rows: int) -> tuple[Ints, Ints]:
        """Return offsets and steps of some rows. Some are kept: who asks for one asks for the other."""
        found = self._heads.get(place)
        if found is None:
            offsets, steps = _unpacked(self.block(place, length), 2, rows)
            if sum(len(one) for one, _ in self._heads.values()) + rows > MAX_HEADS:
                self._heads.clear()
            found = self._heads[place] = offsets, steps
        return found

    def release(self) -> None:
        """Forget what a reader has taken."""
        kept = ("segment", "records", "payloads")
        self.described = {name: self.described[name] for name in kept}
        self.schemas, self.damage, self.heartbeats = {}, [], []
        self.commits, self.samples = NO_COMMITS, np.empty(0, SAMPLE)


class StoredRows:
    """Rows of one schema, or states of one layout, of a part."""

    __slots__ = ("_count", "_entry", "_heads", "_part", "_place", "_start", "_stop", "key", "kind", "width")

    def __init__(self, part: StoredPart, entry: tuple[int, ...]) -> None:
        self._part = part
        self._entry = entry
        self.kind, self.width, self.key, self._count, self._place, self._heads, *_ = entry
        self._start, self._stop = 0, self._count

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def offsets(self) -> Ints:
        """The offsets."""
        return self._read_heads()[0][self._start : self._stop]

    @property
    def steps(self) -> Ints:
        """The steps, as written."""
        return self._read_heads()[1][self._start : self._stop]

    @property
    def times(self) -> Floats:
        """The times."""
        try:
            found = self._columns(-1, 1)[0]
        except IndexDamageError:
            found = self._recovered().times
        return found[self._start : self._stop]

    @property
    def values(self) -> Floats:
        """All columns."""
        return self.pick(np.arange(len(self)), np.arange(self.width))

    def column(self, number: int) -> Floats:
        """Return one column."""
        try:
            found = self._columns(number, 1)[0]
        except IndexDamageError:
            found = self._recovered().column(number)
        return found[self._start : self._stop]

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows in some columns."""
        if self._are_few(rows) and len(columns) * FEW > self.width and (frames := self._frames(rows)) is not None:
            return np.array([np.frombuffer(one, np.float64, self.width, ROW_HEAD.size)[columns] for one in frames])
        # Columns that follow each other are read at once.
        runs = np.split(columns, np.flatnonzero(np.diff(columns) != 1) + 1) if len(columns) else []
        try:
            found = [one for run in runs for one in self._columns(int(run[0]), len(run))]
        except IndexDamageError:
            recovered = self._recovered()
            found = [recovered.column(number) for number in columns.tolist()]
        picked = np.empty((len(rows), len(columns)))
        for number, column in enumerate(found):
            picked[:, number] = column[self._start : self._stop][rows]
        return picked

    def joined_payloads(self, rows: Ints) -> tuple[bytes, Ints]:
        """Return the payloads of some sparse states, one behind the other, and their lengths."""
        if self._are_few(rows) and (frames := self._frames(rows)) is not None:
            return joined(frames)
        rows = rows + self._start
        try:
            sizes, length = self._entry[-2:]
            place = self._place + self._heads + CRC.size + (8 * self._count + CRC.size) * (self.width + 1)
            [found] = _unpacked(self._part.block(place, sizes), 1, self._count)
            ends = np.cumsum(found)
            payloads = self._part.block(place + sizes + CRC.size, length)
        except UNUSABLE:
            return self._recovered().joined_payloads(rows)
        if len(rows) == self._count:  # all: no row is wanted twice
            return payloads, found
        bounds = zip((ends - found)[rows].tolist(), ends[rows].tolist(), strict=True)
        return joined([payloads[start:end] for start, end in bounds])

    def slice(self, start: int, stop: int) -> StoredRows:
        """Return the rows from ``start`` up to ``stop``."""
        found = StoredRows(self._part, self._entry)
        found._start, found._stop = self._start + start, self._start + stop
        return found

    def _are_few(self, rows: Ints) -> bool:
        return 0 < len(rows) * FEW < self._count

    def _frames(self, rows: Ints) -> list[bytes] | None:
        """Read the frames of some rows from the segment; None if that is not possible."""
        try:
            with open(self._part.segment, "rb", buffering=0) as file:
                found = [read_payload(file.fileno(), place) for place in self.offsets[rows].tolist()]
        except (OSError, ValueError):
            return None
        size = ROW_HEAD.size + 8 * self.width
        fits = all(len(one) > size if self.kind == Kind.SPARSE_STATE else len(one) == size for one in found)
        return found if fits else None

    def _read_heads(self) -> tuple[Ints, Ints]:
        try:
            return self._part.heads(self._place, self._heads, self._count)
        except UNUSABLE:
            found = self._recovered()
            return found.offsets, found.steps

    def _columns(self, first: int, count: int) -> list[Floats]:
        """Read columns that follow each other; the one before the first has the times."""
        size = 8 * self._count
        place = self._place + self._heads + CRC.size + (first + 1) * (size + CRC.size)
        return [np.frombuffer(block, np.float64) for block in self._part.blocks(place, size, count)]

    def _recovered(self) -> RowChunk:
        found = self._part.recovered.rows.get((self.kind, self.key))
        if found is None or found.values.shape != (self._count, self.width):
            raise JournalError(f"{self._part.segment} was changed while it was read: open the run again")
        return found


class StoredRecords:
    """The records of a part: their kinds, offsets and lengths, and the payloads of each kind in one block."""

    __slots__ = ("_count", "_part")

    def __init__(self, part: StoredPart, count: int) -> None:
        self._part = part
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read(self, kinds: frozenset[int] | None, start: int, stop: int) -> Iterator[Record]:
        """Yield the records from ``start`` up to ``stop`` that have one of some kinds; of any kind if that is None."""
        try:
            yield from self._stored(kinds, start, stop)
        except UNUSABLE:
            yield from self._part.recovered.records.read(kinds, start, stop)

    def _stored(self, wanted: frozenset[int] | None, start: int, stop: int) -> list[Record]:
        _, kinds_place, kinds_length, place, length = self._part.described["records"]
        if wanted is not None and wanted.isdisjoint(map(int, self._part.described["payloads"])):
            return []
        kinds = np.frombuffer(zlib.decompress(self._part.block(kinds_place, kinds_length)), np.uint8)
        offsets, sizes = _unpacked(self._part.block(place, length), 2, self._count)
        found: dict[int, Record] = {}
        for kind, (at, size) in self._part.described["payloads"].items():
            numbers = np.flatnonzero(kinds == int(kind))
            first, last = np.searchsorted(numbers, (start, stop)).tolist()
            if first < last and (wanted is None or int(kind) in wanted):
                payloads = self._part.block(at, size)
                ends = np.cumsum(sizes[numbers])[first:last]
                numbers = numbers[first:last]
                rows = zip(offsets[numbers].tolist(), (ends - sizes[numbers]).tolist(), ends.tolist(), strict=True)
                records = (Record(int(kind), offset, payloads[begin:end]) for offset, begin, end in rows)
                found |= zip(numbers.tolist(), records, strict=True)
        return [record for _, record in sorted(found.items())]
