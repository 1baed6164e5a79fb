"""A reader of a segment that keeps what it has read in the side index, and goes on from there: the stored parts of an
index, whose columns are read when they are asked for, and the reader that writes and replaces them.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from barograph.base.arrays import Floats, Ints
from barograph.base.errors import JournalError
from barograph.base.model import Damage
from barograph.journal.format.fields import waiting_frames
from barograph.journal.format.folder import FileState
from barograph.journal.format.frames import FRAME_HEAD, ROW_HEAD, SEGMENT_HEAD, Kind
from barograph.journal.segments.contents import Record, RowChunk, RowTable, SampleFrame, joined_payloads
from barograph.journal.segments.framing import frame_head, read_payload
from barograph.journal.segments.reader import SegmentReader
from barograph.journal.segments.side_index import (
    CRC,
    FEW,
    FIRST_READ,
    HEAD,
    MAGIC,
    MAX_HEADS,
    NO_COMMITS,
    SAMPLE,
    TABLE,
    UNUSABLE,
    VERSION,
    Contents,
    Covered,
    IndexDamageError,
    StalePartError,
    block_crc,
    index_path,
    read_summary,
    remove_parts,
    unpacked,
    write_part,
)


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
            ends = [frame_head(file.fileno(), place).hex() for place in (covered.start, covered.last)]
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
        offsets, steps = unpacked(self.block(place, length), 2, count)
        self.commits: tuple[Ints, Ints, Floats] = (
            offsets,
            steps,
            np.frombuffer(self.block(times, size), np.float64),
        )
        _, place, length = described["samples"]
        self.samples = np.frombuffer(self.block(place, length), SAMPLE)
        self.rows = None if described["rows"] is None else read_summary(*described["rows"])

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
            if CRC.unpack_from(data, at + length)[0] != block_crc(block, place + at, self._seed):
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
            offsets, steps = unpacked(self.block(place, length), 2, rows)
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
            return joined_payloads(frames)
        rows = rows + self._start
        try:
            sizes, length = self._entry[-2:]
            place = self._place + self._heads + CRC.size + (8 * self._count + CRC.size) * (self.width + 1)
            [found] = unpacked(self._part.block(place, sizes), 1, self._count)
            ends = np.cumsum(found)
            payloads = self._part.block(place + sizes + CRC.size, length)
        except UNUSABLE:
            return self._recovered().joined_payloads(rows)
        if len(rows) == self._count:  # all: no row is wanted twice
            return payloads, found
        bounds = zip((ends - found)[rows].tolist(), ends[rows].tolist(), strict=True)
        return joined_payloads([payloads[start:end] for start, end in bounds])

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
        offsets, sizes = unpacked(self._part.block(place, length), 2, self._count)
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


PART_BYTES = 7 << 20  # of a segment make a part: two reads

MIN_BYTES = 256 << 10  # fewer are read as quickly as an index

FEW_TABLES, TABLE_BYTES = 1000, 1 << 10  # more tables have a part only where each has so many bytes on average

FEW_COLUMNS, COLUMN_BYTES = 20_000, 64  # and so have more columns

QUIET_SECONDS = 60.0  # without a change, after which the rest of a segment becomes a part

LONG_SECONDS = 3600.0  # the same, where the rest is less than a quarter of what the parts have

FINISH = bytes((Kind.EVENT,)) + b'{"event":"finish"'

LAST_RECORDS = 16  # that are searched for the end of the process


class IndexedReader(SegmentReader):
    """Reader of one segment with its side index.

    It writes a part when enough was read since the last one, and forgets the columns: they are read again when they
    are asked for. Where no index can be written, everything stays in memory.
    """

    def __init__(self, path: Path, schemas: dict[int, tuple[str, ...]] | None = None) -> None:
        super().__init__(path, schemas)
        self._stored_to = SEGMENT_HEAD.size  # the offset up to which there are parts
        self._stored_commits = 0
        self._stored_samples = 0
        self._can_write = True

    def _next_bytes(self, fd: int, size: int) -> bytes:
        """Add the parts that begin at the offset, and return the bytes behind them."""
        if self.offset == self._stored_to:
            try:
                parts = list(self._next_parts())
            except StalePartError:  # the segment was replaced, so that no part of it can be trusted
                remove_parts(self.path)
                parts = []
            for part in parts:
                self._take(part)
        return super()._next_bytes(fd, size)

    def _next_parts(self) -> Iterator[StoredPart]:
        start = self.offset
        while (path := index_path(self.path, start)).exists():
            try:
                part = self._open(path, start)
            except StalePartError:
                raise
            except UNUSABLE:
                return
            yield part
            start = part.covered.end

    def _open(self, path: Path, start: int) -> StoredPart:
        return StoredPart(path, self.path, start, partial(read_contents, self.path))

    def _take(self, part: StoredPart) -> None:
        """Add what a part has."""
        for id, names in part.schemas.items():
            self._add_schema(id, names)
        if len(part.commits[0]):
            self.steps.add_commits(*part.commits)
        if part.rows is not None:
            self.steps.add_summary(part.rows)
        self.samples += (SampleFrame(*one) for one in part.samples.tolist())
        self._damage_before.add(part.damage)
        for heartbeat in part.heartbeats:
            self._heartbeats.add(heartbeat, waiting_frames(heartbeat.payload) or 0)
        self.offset = part.covered.end
        self._replace_by(part)

    def _replace_by(self, part: StoredPart) -> None:
        """Have the rows and records of a part on disk, and no longer in memory."""
        for rows in part.tables:
            _tables(self)[rows.kind].setdefault(rows.key, RowTable(rows.width)).store(rows)
        self.records.store(part.records)
        part.release()
        self._checked = 0
        self._stored_to, self._stored_commits, self._stored_samples = self.offset, len(self.steps), len(self.samples)
        self.new_schemas = {}  # the names of the known ones stay: they are not stored again

    def _after_read(self, whole: bool, state: FileState) -> None:
        """Write a part if enough was read since the last one."""
        size = self.offset - self._stored_to
        is_rest = whole and size >= MIN_BYTES
        if self._can_write and (size >= PART_BYTES or (is_rest and self._is_over(size, state))) and self._pays(size):
            self._store(state)

    def _pays(self, size: int) -> bool:
        """Return whether a part is worth its reads and blocks: very small tables and columns are quicker to parse."""
        found = [table for tables in _tables(self).values() for table in tables.values()]
        columns = sum(table.width for table in found)
        enough_of_tables = len(found) <= FEW_TABLES or size >= TABLE_BYTES * len(found)
        return enough_of_tables and (columns <= FEW_COLUMNS or size >= COLUMN_BYTES * columns)

    def _is_over(self, size: int, state: FileState) -> bool:
        """Return whether the segment seems to be complete."""
        if any(payload.startswith(FINISH) for payload in self.records.fresh.payloads[-LAST_RECORDS:]):
            return True
        # A run that is read in its pauses must not have thousands of small parts.
        quiet = QUIET_SECONDS if 4 * size >= self._stored_to else LONG_SECONDS
        return time.time() - state.changed / 1e9 > quiet

    def _store(self, state: FileState) -> None:
        self.check_records()
        covered = Covered(self._stored_to, self.offset, self._last_frame, state.size, state.changed)
        contents = contents_of(self, self._stored_commits, self._stored_samples)
        try:
            write_part(self.path, covered, contents)
            part = self._open(index_path(self.path, covered.start), covered.start)
        except UNUSABLE:  # the folder cannot be written, or another process replaces the segment
            self._can_write = False
            return
        self._damage_before.add(self.new_damage())
        self._damage.clear()
        self._replace_by(part)


def _tables(reader: SegmentReader) -> dict[int, dict[int, RowTable]]:
    return {Kind.ROW: reader.tables, Kind.STATE: reader.states, Kind.SPARSE_STATE: reader.sparse_states}


def contents_of(reader: SegmentReader, commits: int = 0, samples: int = 0) -> Contents:
    """Return what a reader has in memory, without the first commits and sample frames."""
    rows: dict[tuple[int, int], RowChunk] = {}
    for kind, tables in _tables(reader).items():
        rows |= {(kind, key): fresh for key, table in tables.items() if (fresh := table.fresh()) is not None}
    steps = reader.steps
    return Contents(
        rows,
        reader.records.fresh,
        np.array([(one.offset, one.step, one.time, one.kept, one.seen) for one in reader.samples[samples:]], SAMPLE),
        (
            np.array(steps.offsets[commits:], np.int64),
            np.array(steps.steps[commits:], np.int64),
            np.array(steps.times[commits:], np.float64),
        ),
        reader.new_schemas,
        reader.new_damage(),
        reader.heartbeats,
    )


def read_contents(path: Path, start: int, end: int) -> Contents:
    """Read some whole frames of a segment again."""
    reader = SegmentReader(path)
    reader.read_range(start, end)
    return contents_of(reader)
