"""Reading a segment: from the last offset to its end, frame by frame, past damaged bytes.

Rows of one schema become columns. The intact frames of a read are found and checked together; after damage, the next
intact frame is searched for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats, Ints
from barograph.base.errors import JournalError
from barograph.base.installation import install_command
from barograph.base.model import Damage
from barograph.journal.format import fields, frames
from barograph.journal.format.fields import HEARTBEAT, MAX_TIME, OPEN_STEP, DecodingError, waiting_frames
from barograph.journal.format.folder import FileState
from barograph.journal.format.frames import FRAME_HEAD, FRAME_MAGIC, MAX_FRAME, ROW_HEAD, Kind
from barograph.journal.segments.contents import (
    Heartbeats,
    Record,
    Records,
    RowChunk,
    RowTable,
    SampleFrame,
    of_kinds,
    split_payloads,
    united_heads,
)
from barograph.journal.segments.framing import (
    COMMIT_TYPE,
    HEAD,
    HEAD_TYPE,
    PayloadBatch,
    SegmentDamage,
    doubtful,
    intact_frames,
    possible_heads,
)
from barograph.journal.segments.steps import SegmentSteps

CHUNK = 4 << 20  # bytes of a read; the allocator reuses memory of this size

ROW_KINDS = (Kind.ROW, Kind.STATE)

COLUMN_KINDS = (*ROW_KINDS, Kind.SPARSE_STATE, Kind.COMMIT)

MANY_BYTES = 64 << 10  # whose frames are found together

SMALL_FRAME = 512  # bytes; heads of frames up to this size are always checked

WASTE_FACTOR, WASTE_BYTES = 4, 16 << 20  # limit of the bytes whose checksum was wrong: 16 MiB and 4 times those read


class SegmentReader:
    """Reader of one segment. ``poll`` reads the new frames; everything read so far is in the attributes.

    ``schemas`` may be shared by the readers of a run: a row finds its names by content, in whichever segment, and
    before or after it, they were written.
    """

    def __init__(self, path: Path, schemas: dict[int, tuple[str, ...]] | None = None) -> None:
        self.path = path
        self.schemas: dict[int, tuple[str, ...]] = {} if schemas is None else schemas
        self.offset = 0  # up to here everything was read, or skipped as damaged
        self.tables: dict[int, RowTable] = {}
        self.states: dict[int, RowTable] = {}
        self.sparse_states: dict[int, RowTable] = {}
        self.steps = SegmentSteps()
        self.records = Records()
        self._heartbeats = Heartbeats()
        self.samples: list[SampleFrame] = []
        self._damage_before = SegmentDamage()  # of the segment's head, and of what is no longer in memory
        self._damage = SegmentDamage()
        self._known_schemas: set[int] = set()  # that the segment has
        self._read_schemas: set[int] = set()  # hashes of their payloads
        self.new_schemas: dict[int, tuple[str, ...]] = {}  # that were first seen among the frames in memory
        self._last_frame = 0  # the offset of the last intact frame
        self._checked = 0  # records in memory that were decoded to know the damage
        self._at_end: tuple[int, FileState] | None = None  # offset and file when nothing more could be read
        self._wasted = 0  # bytes that were read for a checksum that was wrong

    @property
    def heartbeats(self) -> list[Record]:
        """The last heartbeat, after the one with the most waiting frames if it has fewer."""
        return self._heartbeats.kept

    @property
    def damage(self) -> list[Damage]:
        """What could not be read so far, in the order of the file."""
        found = SegmentDamage()
        found.add(self._damage_before.parts())
        found.add(self._damage.parts())
        return sorted(found.parts(), key=lambda one: one.start)

    def new_damage(self) -> list[Damage]:
        """Return what could not be read of the frames in memory."""
        return self._damage.parts()

    def poll(self, max_bytes: int | None = None) -> bool:
        """Read the frames since the last call, or about ``max_bytes`` of them; return whether there were any."""
        start = self.offset
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            state = FileState.of(os.fstat(fd))
            if self._at_end == (self.offset, state) or (self.offset == 0 and not self._read_head(fd)):
                return False
            want = CHUNK
            _keep_memory()
            while data := self._next_bytes(fd, want):
                whole = len(data) < want
                used = self._parse(data, whole)
                self.offset += used
                self._after_read(whole, state)
                if whole:
                    self._at_end = self.offset, state
                    break
                if max_bytes is not None and self.offset - start >= max_bytes:
                    break
                want = CHUNK if used else want * 2  # nothing was complete: the frame is larger than the read
        finally:
            os.close(fd)
        return self.offset > start

    def unread_bytes(self) -> int:
        """Return the number of bytes that the file has and that were not read yet, without an end that is torn."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return 0
        at_end = self._at_end is not None and (self._at_end[0], self._at_end[1][0]) == (self.offset, size)
        return 0 if at_end else max(0, size - self.offset)

    def _next_bytes(self, fd: int, size: int) -> bytes:
        """Return the bytes from the offset on."""
        return os.pread(fd, size, self.offset)

    def _after_read(self, whole: bool, state: FileState) -> None:
        """Note what was read; ``whole`` says that it was up to the end of the file."""

    def read_range(self, start: int, end: int) -> None:
        """Read only the frames from an offset up to another."""
        with open(self.path, "rb", buffering=0) as file:
            self.offset = start
            self.offset += self._parse(os.pread(file.fileno(), end - start, start), whole=True)
            self.check_records()

    def read_ends(self, size: int) -> bool:
        """Read only the first and the last ``size`` bytes; return whether the last step is among them.

        Behind it may be more than ``size`` bytes that name no step, such as those of long samples.
        """
        before = None
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return True
        try:
            end = os.fstat(fd).st_size
            if end > 2 * size and self._read_head(fd):
                self._parse(os.pread(fd, size, self.offset), whole=False)
                before = self.steps.highest
                self.offset = end - size
                # The last bytes begin in the middle of some frame.
                self.offset += max(self._next_frame(os.pread(fd, size, self.offset), 0), 0)
        finally:
            os.close(fd)
        self.poll()
        return before is None or self.steps.highest > before

    def forget(self) -> None:
        """Drop everything read so far except names and commits, for a reader that does not look back."""
        self.tables.clear()
        self.states.clear()
        self.sparse_states.clear()
        self.records.clear()
        self._heartbeats.clear()
        self.samples.clear()
        self._damage_before.clear()
        self._damage.clear()
        self._checked = 0

    def check_records(self) -> None:
        """Decode the records that were not decoded for this yet, and add those that cannot be to the damage."""
        fresh, first = self.records.fresh, self._checked
        self._checked = len(fresh)
        kinds, offsets, payloads = fresh.kinds[first:], fresh.offsets[first:], fresh.payloads[first:]
        for number in doubtful(kinds, payloads):
            kind, payload = kinds[number], payloads[number]
            problem = _layout_problem(payload) if kind == Kind.LAYOUT else _problem(kind, payload)
            if problem is not None:
                self._damage.add_unreadable(kind, offsets[number], len(payload), problem)

    def _read_head(self, fd: int) -> bool:
        head = os.pread(fd, frames.SEGMENT_HEAD.size, 0)
        version = frames.parse_segment_head(head)
        if version is None:
            if len(head) < frames.SEGMENT_HEAD.size:  # the writer has just created the file
                return False
            self._damage_before.skip(Damage(0, frames.SEGMENT_HEAD.size, "the segment's header is damaged"))
        elif version > frames.FORMAT_VERSION:
            raise JournalError(
                f"{self.path} has journal format {version}, this barograph reads up to {frames.FORMAT_VERSION}: "
                f"{install_command(upgrade=True)}"
            )
        self.offset = frames.SEGMENT_HEAD.size
        return True

    def _parse(self, data: bytes, whole: bool) -> int:
        """Read the frames of ``data``; return the number of bytes that were read.

        ``whole`` says that the file ends where ``data`` does.
        """
        end = len(data)
        starts, sizes = intact_frames(data) if end >= MANY_BYTES and not self._wasted else ([], [])
        place = starts[-1] + sizes[-1] if starts else 0
        unpack, seed_of, add_start, add_size = FRAME_HEAD.unpack_from, frames.length_seed, starts.append, sizes.append
        while end - place >= HEAD:
            magic, length, crc = unpack(data, place)
            stop = place + HEAD + length
            if magic == FRAME_MAGIC and 0 < length <= MAX_FRAME:
                if stop > end and not whole:
                    break  # the rest of the frame is in the next chunk
                if stop <= end and (length <= SMALL_FRAME or not self._wasted or self._can_check(place)):
                    if crc32(data[place + HEAD : stop], seed_of(length)) == crc:
                        add_start(place + HEAD)
                        add_size(length)
                        place = stop
                        continue
                    self._wasted += length
            following = self._next_frame(data, place + 1)
            if following < 0:
                break  # a frame that is being written, or a torn end: no complete frame follows
            self._damage.skip(Damage(self.offset + place, self.offset + following))
            place = following
        if starts:
            self._last_frame = self.offset + starts[-1] - HEAD
            self._add_frames(PayloadBatch(data, starts, sizes), self.offset)
        return place

    def _can_check(self, place: int) -> bool:
        """Return whether the checksum of a large frame may be computed here.

        Heads of frames that reach far behind them would otherwise make the time quadratic.
        """
        return self._wasted <= WASTE_FACTOR * (self.offset + place) + WASTE_BYTES

    def _next_frame(self, data: bytes, place: int) -> int:
        """Return the next intact frame at or after ``place``, or -1."""
        view = memoryview(data)
        for at, length, crc in possible_heads(data, place):
            # The magic can occur in the bytes of a payload too: only a correct checksum makes it a frame.
            if length <= SMALL_FRAME or self._can_check(at):
                if crc32(view[at + HEAD : at + HEAD + length], frames.length_seed(length)) == crc:
                    return at
                self._wasted += length
        return -1

    def _add_frames(self, batch: PayloadBatch, base: int) -> None:
        """Add intact frames of bytes that begin at an offset: rows and commits as columns, other kinds one by one."""
        kinds, sizes = batch.kinds, batch.sizes
        is_row = ((kinds == Kind.ROW) | (kinds == Kind.STATE)) & (sizes >= ROW_HEAD.size)
        is_sparse = (kinds == Kind.SPARSE_STATE) & (sizes > ROW_HEAD.size)
        is_commit = (kinds == Kind.COMMIT) & (sizes == frames.COMMIT_BODY.size)
        self._add_commits(batch, np.flatnonzero(is_commit), base)
        self._add_rows(batch, np.flatnonzero(is_row), base)
        self._add_sparse_states(batch, np.flatnonzero(is_sparse), base)
        others = batch.columns(np.flatnonzero(~(is_row | is_sparse | is_commit)), base)
        for kind, offset, payload in zip(*others, strict=True):
            try:
                self._add_other(kind, offset, payload)
            # The checksum is correct, so the bytes are as they were written: only this frame is left out.
            except ValueError as problem:
                self._damage.add_unreadable(kind, offset, len(payload), str(problem))

    def _add_other(self, kind: int, offset: int, payload: bytes) -> None:
        if kind == Kind.SCHEMA:
            if (copy := hash(payload)) not in self._read_schemas:  # writers repeat them
                self._add_schema(*fields.decode_schema(payload))
                self._read_schemas.add(copy)
        elif kind == Kind.SAMPLE:
            self.samples.append(SampleFrame(offset, *frames.parse_sample_head(payload)))
        elif kind in COLUMN_KINDS:  # those of another size were added as columns
            raise DecodingError("it has a wrong length" if kind == Kind.COMMIT else "it is too short")
        elif payload.startswith(HEARTBEAT) and (waiting := waiting_frames(payload)) is not None:
            self._heartbeats.add(Record(kind, offset, payload), waiting)
        else:
            self.records.append(kind, offset, payload)

    def _add_schema(self, id: int, names: tuple[str, ...]) -> None:
        if id not in self._known_schemas:
            self._known_schemas.add(id)
            self.new_schemas[id] = names
            self.schemas.setdefault(id, names)

    def _add_commits(self, batch: PayloadBatch, numbers: Ints, base: int) -> None:
        if not len(numbers):
            return
        found = batch.windows(numbers, COMMIT_TYPE)
        steps, times, offsets = found["step"], found["time"], batch.offsets(numbers, base)
        fine = (steps != OPEN_STEP) & _in_range(times)
        if not fine.all():
            bad = np.flatnonzero(~fine)
            reason = "its step or time is out of range"
            self._damage.add_unreadable(Kind.COMMIT, int(offsets[bad[0]]), frames.COMMIT_BODY.size, reason, len(bad))
        if fine.any():
            self.steps.add_commits(offsets[fine], steps[fine], times[fine])

    def _add_rows(self, batch: PayloadBatch, numbers: Ints, base: int) -> None:
        """Add the rows and states among some frames to their tables, in the order in which these begin."""
        sizes = batch.sizes[numbers]
        found: list[tuple[int, int, RowChunk]] = []
        for size in set(sizes.tolist()):
            of_size = numbers[sizes == size]
            heads, offsets = batch.windows(of_size, HEAD_TYPE), batch.offsets(of_size, base)
            fine = self._readable_rows(heads, offsets, size)
            if not fine.all():
                of_size, heads, offsets = of_size[fine], heads[fine], offsets[fine]
            found += _by_table(heads, offsets, batch.values(of_size, (size - ROW_HEAD.size) // 8))
        added = [
            chunk
            for kind, key, chunk in sorted(found, key=lambda one: int(one[2].offsets[0]))
            if self._add_to_table(kind, key, chunk) and kind == Kind.ROW
        ]
        if added:
            self.steps.add_rows(*united_heads(added))

    def _add_sparse_states(self, batch: PayloadBatch, numbers: Ints, base: int) -> None:
        """Add sparse states to their tables, in the order in which these begin."""
        if not len(numbers):
            return
        heads, offsets = batch.windows(numbers, HEAD_TYPE), batch.offsets(numbers, base)
        fine = (heads["step"] != OPEN_STEP) & _in_range(heads["time"])
        for bad in np.flatnonzero(~fine).tolist():
            reason = "its step or time is out of range"
            self._damage.add_unreadable(Kind.SPARSE_STATE, int(offsets[bad]), int(batch.sizes[numbers[bad]]), reason)
        if not fine.all():
            heads, offsets, numbers = heads[fine], offsets[fine], numbers[fine]
        layouts, firsts, which = np.unique(heads["schema"], return_index=True, return_inverse=True)
        for number in np.argsort(firsts).tolist():
            rows = np.flatnonzero(which == number)
            steps, times = heads["step"][rows], heads["time"][rows]
            chunk = RowChunk(offsets[rows], steps, times, np.empty((len(rows), 0)), batch.payloads(numbers[rows]))
            self.sparse_states.setdefault(int(layouts[number]), RowTable(0)).add(chunk)

    def _add_to_table(self, kind: int, key: int, rows: RowChunk) -> bool:
        """Add rows of one schema or layout to its table; return False if they have another width."""
        width = rows.values.shape[1]
        tables = self.tables if kind == Kind.ROW else self.states
        table = tables.setdefault(key, RowTable(width))
        if table.width != width:
            reason = "it has another number of values than those before it"
            self._damage.add_unreadable(kind, int(rows.offsets[0]), ROW_HEAD.size + 8 * width, reason, len(rows))
            return False
        table.add(rows)
        return True

    def _readable_rows(self, heads: NDArray[Any], offsets: Ints, size: int) -> NDArray[np.bool_]:
        """Return which rows of one size have a time that is in range, if the size is that of whole numbers."""
        fine, reason = _in_range(heads["time"]), "its time is out of range"
        if (size - ROW_HEAD.size) % 8:
            fine, reason = np.zeros(len(heads), bool), "it has an odd length"
        for kind in ROW_KINDS if not fine.all() else ():
            bad = np.flatnonzero(~fine & (heads["kind"] == kind))
            if len(bad):
                self._damage.add_unreadable(kind, int(offsets[bad[0]]), size, reason, len(bad))
        return fine


def _problem(kind: int, payload: bytes) -> str | None:
    """Return why a record cannot be decoded; None if it can."""
    try:
        fields.decode(kind, payload)
    except DecodingError as problem:
        return str(problem)
    return None


@lru_cache(maxsize=64)
def _layout_problem(payload: bytes) -> str | None:
    """Return why a layout cannot be decoded; None if it can. All ranks of a run write the same ones."""
    return _problem(Kind.LAYOUT, payload)


@cache
def _keep_memory() -> None:
    """Have the allocator of glibc keep what a large read has used for the next one, instead of giving it back.

    It keeps blocks that are not larger than the largest one that was freed. This one is never written to, so that it
    takes no memory.
    """
    np.empty(2 * CHUNK, np.uint8)


def _in_range(times: Floats) -> NDArray[np.bool_]:
    """Return which times are allowed; NaN is not."""
    found: NDArray[np.bool_] = (times >= 0) & (times <= MAX_TIME)
    return found


def _by_table(heads: NDArray[Any], offsets: Ints, values: Floats) -> Iterator[tuple[int, int, RowChunk]]:
    """Yield rows of one size by kind and schema."""
    kinds, keys = heads["kind"], heads["schema"]
    whole = RowChunk(offsets, np.ascontiguousarray(heads["step"]), np.ascontiguousarray(heads["time"]), values)
    if len(heads) and (kinds == kinds[0]).all() and (keys == keys[0]).all():
        yield int(kinds[0]), int(keys[0]), whole
        return
    order = np.lexsort((keys, kinds))  # stable: rows of a schema stay in the order of the file
    kinds, keys = kinds[order], keys[order]
    starts = np.append(True, (keys[1:] != keys[:-1]) | (kinds[1:] != kinds[:-1])).nonzero()[0] if len(heads) else order
    bounds = [*starts.tolist(), len(heads)]
    ordered = RowChunk(whole.offsets[order], whole.steps[order], whole.times[order], whole.values[order])
    tables = zip(kinds[starts].tolist(), keys[starts].tolist(), bounds, bounds[1:], strict=False)
    yield from ((kind, key, ordered.slice(start, stop)) for kind, key, start, stop in tables)


def sparse_records(tables: Mapping[int, RowTable], known: Mapping[int, int] | None = None) -> list[Record]:
    """Return the sparse states of some tables as records, without those of each layout that are known."""
    return [
        Record(Kind.SPARSE_STATE, offset, payload)
        for layout, table in tables.items()
        for chunk in table.since((known or {}).get(layout, 0))
        for offset, payload in zip(
            chunk.offsets.tolist(), split_payloads(*chunk.joined_payloads(np.arange(len(chunk)))), strict=True
        )
    ]


def decoded(records: Iterable[Record], *kinds: Kind) -> Iterator[tuple[Record, Any]]:
    """Yield the records of some kinds with their contents, in order; skip those that cannot be decoded."""
    for record in of_kinds(records, kinds):
        try:
            contents = fields.decode(record.kind, record.payload)
        except DecodingError:  # ``check_records`` counts them
            continue
        yield record, contents


def events(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Decode the events among records, in order; skip those that cannot be decoded."""
    return (event for _, event in decoded(records, Kind.EVENT))
