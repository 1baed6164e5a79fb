"""Reading a segment: from the last offset to its end, frame by frame, past damaged bytes.

Rows of one schema become columns. Training writes the same few key sets over and over, so frames come in runs of
one size; a run is found and checked at once instead of frame by frame.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from windsock.errors import JournalError
from windsock.journal import decoding, frames
from windsock.journal.decoding import MAX_TIME, DecodingError
from windsock.journal.frames import (
    FORMAT_VERSION,
    FRAME_HEAD,
    FRAME_MAGIC,
    MAX_FRAME,
    ROW_HEAD,
    SEGMENT_HEAD,
    Kind,
)
from windsock.journal.span_rows import doubtful
from windsock.journal.steps import SegmentSteps
from windsock.model import Damage

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 4 << 20  # bytes of a read; the allocator reuses memory of this size
HEAD = FRAME_HEAD.size
MIN_RUN = 8  # frames; fewer are faster one by one
RUN_PROBE = 64  # frames that are compared first when a run is looked for
ROW_KINDS = (Kind.ROW, Kind.STATE)
FIRST_HEADS = 4  # that are looked at one by one
FIRST_BLOCK, LAST_BLOCK = 4 << 10, 1 << 20  # bytes that are searched for further heads at once
SMALL_FRAME = 512  # bytes; heads of frames up to this size are always checked
WASTE_FACTOR, WASTE_BYTES = 4, 16 << 20  # limit of the bytes whose checksum was wrong: 16 MiB and 4 times those read
MAX_DAMAGE = 1000  # places of a segment that are reported one by one
HEARTBEAT_BEGIN = bytes((Kind.EVENT,)) + b'{"event":"heartbeat"'
_COUNT = rb"(?:0|[1-9][0-9]{0,17})"
HEARTBEAT = re.compile(
    HEARTBEAT_BEGIN.replace(b"{", rb"\{") + rb',"time":(?:0|[1-9][0-9]{0,9})(?:\.[0-9]{1,30})?,"dropped":' + _COUNT
    + rb',"waiting":(' + _COUNT + rb'),"failed_writes":' + _COUNT + rb',"failed_syncs":' + _COUNT + rb"\}"
)  # fmt: skip
"""A heartbeat as windsock writes it, which needs no decoding."""
KIND_NAMES: dict[int, str] = {kind: kind.name.lower().replace("_", " ") for kind in Kind}


@dataclass(slots=True)
class RowChunk:
    """Rows of one schema (or states of one layout), as columns.

    ``offsets`` are the places in the segment, which order rows that share a step; a step of ``OPEN_STEP`` is not
    named yet.
    """

    offsets: Ints
    steps: Ints
    times: Floats
    values: Floats  # rows × width

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, stop: int) -> RowChunk:
        """Return the rows from ``start`` up to ``stop``."""
        return RowChunk(
            self.offsets[start:stop], self.steps[start:stop], self.times[start:stop], self.values[start:stop]
        )

    def followed_by(self, other: RowChunk) -> RowChunk:
        """Return these rows and those of another as one chunk."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("offsets", "steps", "times", "values"))
        return RowChunk(*map(np.concatenate, pairs))


@dataclass(slots=True)
class RowTable:
    """All rows of one schema that were read so far, in chunks."""

    width: int
    chunks: list[RowChunk] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(chunk) for chunk in self.chunks)

    def add(self, rows: RowChunk) -> None:
        """Add rows. Small chunks are united as the digits of a binary counter: a row is copied log(n) times."""
        self.chunks.append(rows)
        max_rows = CHUNK // (8 * (self.width + 3))
        while len(self.chunks) > 1 and len(self.chunks[-2]) <= len(self.chunks[-1]) <= max_rows // 2:
            last = self.chunks.pop()
            self.chunks[-1] = self.chunks[-1].followed_by(last)

    def since(self, count: int) -> Iterator[RowChunk]:
        """Yield the rows behind the first ``count``."""
        for chunk in self.chunks:
            if count < len(chunk):
                yield chunk.slice(max(count, 0), len(chunk))
            count -= len(chunk)

    @property
    def offsets(self) -> Ints:
        """The offsets over all chunks."""
        return np.concatenate([chunk.offsets for chunk in self.chunks])

    @property
    def steps(self) -> Ints:
        """The steps over all chunks, as written."""
        return np.concatenate([chunk.steps for chunk in self.chunks])

    @property
    def times(self) -> Floats:
        """The times over all chunks."""
        return np.concatenate([chunk.times for chunk in self.chunks])

    def column(self, number: int, start: int = 0) -> Floats:
        """Return one column over all chunks, from a row on."""
        pieces = [chunk.values[:, number] for chunk in self.since(start)]
        return np.concatenate(pieces) if pieces else np.empty(0)

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows, in ascending order, in some columns."""
        if not len(rows):
            return np.empty((0, len(columns)))
        start, found = int(rows[0]), []
        for chunk in self.since(start):
            stop = start + len(chunk)
            within = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
            found.append(chunk.values[within] if len(columns) == self.width else chunk.values[within[:, None], columns])
            start = stop
        return found[0] if len(found) == 1 else np.concatenate(found)


@dataclass(slots=True)
class Record:
    """Any other frame: its kind, its offset and its payload."""

    kind: int
    offset: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class SampleFrame:
    """The place of a sample frame and the numbers in its head. The samples are read when they are needed."""

    offset: int
    step: int
    time: float
    kept: int
    seen: int


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
        self.steps = SegmentSteps()
        self.records: list[Record] = []
        self.heartbeats: list[Record] = []  # the last one, after the one with the most waiting frames if it has fewer
        self.samples: list[SampleFrame] = []
        self.damage: list[Damage] = []
        self._unreadable: dict[tuple[str, str], int] = {}  # kind and reason, to the place among the damage
        self._most_waiting = 0  # frames, at a heartbeat
        self._checked = 0  # records that were decoded to know the damage
        self._at_end: tuple[int, tuple[int, int]] | None = None  # offset and file when nothing more could be read
        self._wasted = 0  # bytes that were read for a checksum that was wrong
        self._singles: dict[int, tuple[list[int], list[bytes]]] = {}

    def poll(self, max_bytes: int | None = None) -> bool:
        """Read the frames since the last call, or about ``max_bytes`` of them; return whether there were any."""
        start = self.offset
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            state = _file_state(fd)
            if self._at_end == (self.offset, state) or (self.offset == 0 and not self._read_head(fd)):
                return False
            want = CHUNK
            while data := os.pread(fd, want, self.offset):
                whole = len(data) < want
                used = self._parse(data, whole)
                self.offset += used
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

    def read_ends(self, size: int) -> None:
        """Read only the first and the last ``size`` bytes."""
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            end = os.fstat(fd).st_size
            if end > 2 * size and self._read_head(fd):
                self._parse(os.pread(fd, size, self.offset), whole=False)
                self.offset = end - size
                # The last bytes begin in the middle of some frame.
                self.offset += max(self._next_frame(os.pread(fd, size, self.offset), 0), 0)
        finally:
            os.close(fd)
        self.poll()

    def forget(self) -> None:
        """Drop everything read so far except names and commits, for a reader that does not look back."""
        self.tables.clear()
        self.states.clear()
        self.records.clear()
        self.heartbeats.clear()
        self._most_waiting = 0
        self.samples.clear()
        self.damage.clear()
        self._unreadable.clear()
        self._checked = 0

    def check_records(self) -> None:
        """Decode the records that were not decoded for this yet, and add those that cannot be to the damage."""
        unchecked, self._checked = self.records[self._checked :], len(self.records)
        for number in doubtful([record.kind for record in unchecked], [record.payload for record in unchecked]):
            record = unchecked[number]
            try:
                decoding.decode(record.kind, record.payload)
            except DecodingError as problem:
                self._add_unreadable(record.kind, record.offset, len(record.payload), str(problem))

    def _read_head(self, fd: int) -> bool:
        head = os.pread(fd, SEGMENT_HEAD.size, 0)
        version = frames.parse_segment_head(head)
        if version is None:
            if len(head) < SEGMENT_HEAD.size:  # the writer has just created the file
                return False
            self.damage.append(Damage(0, SEGMENT_HEAD.size, "the segment's header is damaged"))
        elif version > FORMAT_VERSION:
            raise JournalError(
                f"{self.path} has journal format {version}, this windsock reads up to {FORMAT_VERSION}: "
                "pip install --upgrade windsock"
            )
        self.offset = SEGMENT_HEAD.size
        return True

    def _parse(self, data: bytes, whole: bool) -> int:
        """Read the frames of ``data``; return the number of bytes that were read.

        ``whole`` says that the file ends where ``data`` does.
        """
        place, end = 0, len(data)
        unpack, seed_of, take = FRAME_HEAD.unpack_from, frames.length_seed, self._add
        while end - place >= HEAD:
            magic, length, crc = unpack(data, place)
            stop = place + HEAD + length
            if magic == FRAME_MAGIC and 0 < length <= MAX_FRAME:
                if stop > end and not whole:
                    break  # the rest of the frame is in the next chunk
                # The next frame has the same magic and length: probably a run of rows of one schema.
                if data[place : place + 8] == data[stop : stop + 8] and (run := _run_length(data, place, stop)):
                    self._add_run(data, place, HEAD + length, run)
                    place += (HEAD + length) * run
                    continue
                if stop <= end and (length <= SMALL_FRAME or self._can_check(place)):
                    if crc32(payload := data[place + HEAD : stop], seed_of(length)) == crc:
                        take(payload, self.offset + place)
                        place = stop
                        continue
                    self._wasted += length
            following = self._next_frame(data, place + 1)
            if following < 0:
                break  # a frame that is being written, or a torn end: no complete frame follows
            self._skip_damaged(place, following)
            place = following
        self._flush_singles()
        return place

    def _skip_damaged(self, start: int, end: int) -> None:
        if len(self.damage) < MAX_DAMAGE:
            self.damage.append(Damage(self.offset + start, self.offset + end))
        else:  # the last one stands for all that follow
            self.damage[-1] = replace(self.damage[-1], end=self.offset + end, reason="unreadable bytes in many places")

    def _can_check(self, place: int) -> bool:
        """Return whether the checksum of a large frame may be computed here.

        Heads of frames that reach far behind them would otherwise make the time quadratic.
        """
        return self._wasted <= WASTE_FACTOR * (self.offset + place) + WASTE_BYTES

    def _next_frame(self, data: bytes, place: int) -> int:
        """Return the next intact frame at or after ``place``, or -1."""
        view = memoryview(data)
        for at, length, crc in _possible_heads(data, place):
            # The magic can occur in the bytes of a payload too: only a correct checksum makes it a frame.
            if length <= SMALL_FRAME or self._can_check(at):
                if crc32(view[at + HEAD : at + HEAD + length], frames.length_seed(length)) == crc:
                    return at
                self._wasted += length
        return -1

    def _add_unreadable(self, kind: int, offset: int, length: int, reason: str, count: int = 1) -> None:
        """Count a frame that is intact and cannot be decoded."""
        what = KIND_NAMES.get(kind, f"kind {kind}")
        place = self._unreadable.get((what, reason))
        if place is None:
            self._unreadable[what, reason] = len(self.damage)
            self.damage.append(Damage(offset, offset + HEAD + length, reason, what, count))
        else:
            known = self.damage[place]
            self.damage[place] = replace(known, count=known.count + count)

    def _add(self, payload: bytes, offset: int) -> None:
        """Add the payload of one intact frame."""
        kind = payload[0]
        if kind in ROW_KINDS and len(payload) >= ROW_HEAD.size:
            offsets, payloads = self._singles.setdefault(len(payload), ([], []))
            offsets.append(offset)
            payloads.append(payload)
            return
        try:
            self._add_payload(kind, payload, offset)
        # The checksum is correct, so the bytes are as they were written: only this frame is left out, not what follows.
        except ValueError as problem:
            self._add_unreadable(kind, offset, len(payload), str(problem))

    def _add_payload(self, kind: int, payload: bytes, offset: int) -> None:
        if kind == Kind.SCHEMA:
            id, names = decoding.decode_schema(payload)
            self.schemas.setdefault(id, names)
        elif kind == Kind.COMMIT:
            self.steps.add_commit(offset, *decoding.decode_commit(payload))
        elif kind in ROW_KINDS:  # the others were added as columns
            raise DecodingError("it is too short")
        elif kind == Kind.SAMPLE:
            self.samples.append(SampleFrame(offset, *frames.parse_sample_head(payload)))
        elif kind == Kind.EVENT and payload.startswith(HEARTBEAT_BEGIN):
            self._add_heartbeat(payload, offset)
        else:
            self.records.append(Record(kind, offset, payload))

    def _add_heartbeat(self, payload: bytes, offset: int) -> None:
        """Keep the last heartbeat: a process writes one every ten seconds, for weeks."""
        last, found = Record(Kind.EVENT, offset, payload), HEARTBEAT.fullmatch(payload)
        if found is not None:
            waiting = int(found[1])
        else:
            event = decoding.decode(Kind.EVENT, payload)
            if event["event"] != "heartbeat":  # a key that occurs twice
                self.records.append(last)
                return
            waiting = event.get("waiting", 0)
        if waiting >= self._most_waiting:
            self.heartbeats, self._most_waiting = [last], waiting
        else:
            self.heartbeats = [self.heartbeats[0], last]

    def _add_run(self, data: bytes, place: int, total: int, length: int) -> None:
        """Add ``length`` frames of one size: rows as columns, other kinds one by one."""
        stop = place + total * length
        payloads = [data[at + HEAD : at + total] for at in range(place, stop, total)]
        sums = np.fromiter(map(crc32, payloads, repeat(frames.length_seed(total - HEAD))), np.uint32, length)
        good = sums == np.ndarray((length,), "<u4", data, place + 8, (total,))
        for bad in np.flatnonzero(~good).tolist():
            self._skip_damaged(place + bad * total, place + (bad + 1) * total)
        kinds = np.ndarray((length,), "u1", data, place + HEAD, (total,))
        rows = good & np.isin(kinds, ROW_KINDS) if total >= HEAD + ROW_HEAD.size else np.zeros_like(good)
        # The rows that were read one by one come before this run: tables are in the order of the file.
        self._flush_singles()
        if rows.any():
            view = np.ndarray((length,), _row_type(total - HEAD), data, place + HEAD, (total,))
            self._add_rows(view, np.flatnonzero(rows), np.arange(place, stop, total) + self.offset)
        for other in np.flatnonzero(good & ~rows).tolist():
            self._add(payloads[other], self.offset + place + other * total)

    def _add_rows(self, view: NDArray[Any], wanted: Ints, offsets: Ints) -> None:
        """Split rows of one size by kind and schema into their tables."""
        wanted = self._readable_rows(view, wanted, offsets)
        if not len(wanted):
            return
        keys = view["schema"][wanted]
        by_schema = np.argsort(keys, kind="stable")  # stable: rows of a schema stay in the order of the file
        order = wanted[by_schema]
        rows = RowChunk(
            offsets[order],
            view["step"][order],
            view["time"][order],
            np.ascontiguousarray(view["values"][order]),
        )
        kinds, keys = view["kind"][order], keys[by_schema]
        changes = np.flatnonzero((keys[1:] != keys[:-1]) | (kinds[1:] != kinds[:-1])) + 1
        for start, stop in zip([0, *changes.tolist()], [*changes.tolist(), len(order)], strict=True):
            found = rows.slice(start, stop)
            if self._add_to_table(int(kinds[start]), int(keys[start]), found) and kinds[start] == Kind.ROW:
                self.steps.add_rows(found.offsets, found.steps, found.times)

    def _add_to_table(self, kind: int, key: int, rows: RowChunk) -> bool:
        """Add rows of one schema or layout to its table; return False if they have another width."""
        width = rows.values.shape[1]
        tables = self.tables if kind == Kind.ROW else self.states
        table = tables.setdefault(key, RowTable(width))
        if table.width != width:
            reason = "it has another number of values than those before it"
            self._add_unreadable(kind, int(rows.offsets[0]), ROW_HEAD.size + 8 * width, reason, len(rows))
            return False
        table.add(rows)
        return True

    def _readable_rows(self, view: NDArray[Any], wanted: Ints, offsets: Ints) -> Ints:
        """Return those of the rows whose times are in range, if their length is that of whole numbers."""
        if "excess" in (view.dtype.names or ()):
            self._reject_rows(view, wanted, offsets, "it has an odd length")
            return wanted[:0]
        times = view["time"][wanted]
        fine = (times >= 0) & (times <= MAX_TIME)  # NaN is neither
        if fine.all():
            return wanted
        self._reject_rows(view, wanted[~fine], offsets, "its time is out of range")
        return wanted[fine]

    def _reject_rows(self, view: NDArray[Any], rows: Ints, offsets: Ints, reason: str) -> None:
        for kind in ROW_KINDS:
            of_kind = rows[view["kind"][rows] == kind]
            if len(of_kind):
                self._add_unreadable(kind, int(offsets[of_kind[0]]), view.dtype.itemsize, reason, len(of_kind))

    def _flush_singles(self) -> None:
        """Add the rows that were read one by one, as columns."""
        for size, (offsets, payloads) in self._singles.items():
            view = np.frombuffer(b"".join(payloads), _row_type(size))
            self._add_rows(view, np.arange(len(view)), np.array(offsets, np.int64))
        self._singles.clear()


def _file_state(fd: int) -> tuple[int, int]:
    """Return size and time of the last change of a file."""
    found = os.fstat(fd)
    return found.st_size, found.st_mtime_ns


def read_payload(fd: int, offset: int) -> bytes:
    """Read the payload of one frame again; raise ValueError if it is not intact."""
    head = os.pread(fd, HEAD, offset)
    if len(head) == HEAD:
        magic, length, crc = FRAME_HEAD.unpack(head)
        payload = os.pread(fd, length, offset + HEAD) if magic == FRAME_MAGIC and 0 < length <= MAX_FRAME else b""
        if payload and len(payload) == length and crc32(payload, frames.length_seed(length)) == crc:
            return payload
    raise ValueError(f"no intact frame at byte {offset}")


def decoded(records: Iterable[Record], *kinds: Kind) -> Iterator[tuple[Record, Any]]:
    """Yield the records of some kinds with their contents, in order; skip those that cannot be decoded."""
    for record in records:
        if record.kind in kinds:
            try:
                contents = decoding.decode(record.kind, record.payload)
            except DecodingError:  # ``check_records`` counts them
                continue
            yield record, contents


def events(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Decode the events among records, in order; skip those that cannot be decoded."""
    return (event for _, event in decoded(records, Kind.EVENT))


def _possible_heads(data: bytes, place: int) -> Iterator[tuple[int, int, int]]:
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


def _run_length(data: bytes, place: int, stop: int) -> int:
    """Return the number of frames of this size that follow each other from here on; 0 if they are few."""
    total = stop - place
    room = (len(data) - place) // total
    count = _equal_heads(data, place, total, min(room, RUN_PROBE))
    if count == RUN_PROBE < room:
        count = _equal_heads(data, place, total, room)
    return count if count >= MIN_RUN else 0


def _equal_heads(data: bytes, place: int, total: int, room: int) -> int:
    heads = np.ndarray((room,), "<u8", data, place, (total,))  # magic and length as one number
    differs = heads != heads[0]
    return int(differs.argmax()) if differs.any() else room


@lru_cache(maxsize=256)
def _row_type(size: int) -> np.dtype[Any]:
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
