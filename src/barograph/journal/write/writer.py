"""Writing a journal: rows and their schemas, commits, states and records, each a frame of the segment; and the claim of
a rank, by a process that joins a run without one.

A rank belongs to the process that creates the first segment file of the attempt. Creating a file fails if it exists,
so of several processes that choose a rank at once one gets it, and the others choose again.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any
from zlib import crc32

from barograph.base.model import Histogram, Writer
from barograph.base.process.identity import process_identity
from barograph.journal.format import frames
from barograph.journal.format.fields import OPEN_STEP
from barograph.journal.format.folder import SegmentFile, segment_path, segments
from barograph.journal.format.frames import FRAME_HEAD, FRAME_MAGIC, Kind
from barograph.journal.read.status import first_events, segment_status
from barograph.journal.write.segment import SEGMENT_FLAGS, SegmentWriter

ROW = int(Kind.ROW)
COPY_AFTER = (16, 256, 1024)  # rows between the copies of a schema; the last one repeats
SAMPLE_BYTES = 1 << 20  # of samples in one frame, before compression; a larger sample has a frame of its own
MAX_RECORD = 64 << 20  # bytes of JSON; the longest text that is logged has less
MAX_KEY_SETS = 4096  # remembered; a program that invents names must not fill the memory


class _Schema:
    """A tuple of names, with everything that its rows have in common."""

    __slots__ = ("copies", "id", "names", "pack", "payload", "rows_to_copy", "seed", "size")

    def __init__(self, names: tuple[str, ...]) -> None:
        layout = frames.row_struct(len(names))
        self.names = names
        self.id = frames.schema_id(names)
        self.payload = frames.schema_payload(self.id, names)
        self.pack = layout.pack
        self.size = layout.size
        self.seed = frames.length_seed(layout.size)
        self.copies = 0
        self.rows_to_copy = 0  # the first row writes the first copy

    def wrote_copy(self) -> None:
        self.rows_to_copy = COPY_AFTER[min(self.copies, len(COPY_AFTER) - 1)]
        self.copies += 1

    def unwritten(self) -> None:
        self.copies = self.rows_to_copy = 0


class JournalWriter:
    """Writer of rows, commits, states and records into the segment of one writer."""

    def __init__(
        self,
        folder: Path,
        writer: Writer,
        prepare: Callable[[], object] = lambda: None,
        on_new_segment: Callable[[], None] = lambda: None,
        claimed: bool = False,
    ) -> None:
        self._announce = on_new_segment
        self._by_order: dict[tuple[str, ...], tuple[_Schema, Callable[..., Any] | None]] = {}
        self._by_set: dict[frozenset[str], _Schema] = {}
        self._last: tuple[tuple[str, ...] | None, Any, Any] = (None, None, None)
        self.segment = SegmentWriter(folder, writer, prepare, self._new_segment, claimed)
        self._append = self.segment.append

    def row(self, names: tuple[str, ...], values: Iterable[Any], step: int | None, at: float | None = None) -> bool:
        """Write one row. With ``step`` None it is open and gets the step of the next commit.

        Raises what ``struct`` raises for a value that is no number; nothing is written then.
        """
        last_names, schema, order = self._last  # one tuple: threads never see half of an update
        if names != last_names:  # comparing the same string objects is faster than hashing them
            schema, order = self._by_order.get(names) or self._enter(names)
            self._last = names, schema, order
        if order is not None:
            values = order(tuple(values))
        payload = schema.pack(
            ROW, schema.id, OPEN_STEP if step is None else step, time.time() if at is None else at, *values
        )
        frame = FRAME_HEAD.pack(FRAME_MAGIC, schema.size, crc32(payload, schema.seed)) + payload
        if schema.rows_to_copy <= 0:
            return self._append_with_names(schema, frame)
        schema.rows_to_copy -= 1
        return self._append(frame)

    def commit(self, step: int, at: float | None = None) -> bool:
        """End a step."""
        return self._append(frames.frame(frames.commit_payload(step, time.time() if at is None else at)))

    def state(self, layout: int, step: int, vector: Sequence[float], at: float | None = None) -> bool:
        """Write a packed state of a step, which readers merge with those of other ranks."""
        return self.states([(layout, vector)], step, at)

    def states(self, states: Iterable[tuple[int, Sequence[float] | bytes]], step: int, at: float | None = None) -> bool:
        """Write several states of a step, by their layouts, as one piece: no reader sees a part of them."""
        at = time.time() if at is None else at
        payloads = (
            frames.sparse_state_payload(layout, step, at, vector)
            if isinstance(vector, bytes)
            else frames.state_payload(layout, step, at, vector)
            for layout, vector in states
        )
        return self._append(b"".join(map(frames.frame, payloads)))

    def payload(self, payload: bytes) -> bool:
        """Write a payload that is already encoded, such as a phase's."""
        return self._append(frames.frame(payload))

    def event(self, event: str, **fields: Any) -> bool:
        """Write an event: start, heartbeat, finish, config, …"""
        return self.record(Kind.EVENT, {"event": event, "time": time.time(), **fields})

    def histogram(self, name: str, histogram: Histogram, step: int | None, at: float | None = None) -> bool:
        """Write a histogram under a name."""
        fields = {field: getattr(histogram, field) for field in Histogram.__dataclass_fields__}
        at = time.time() if at is None else at
        return self.record(Kind.HISTOGRAM, {"name": name, "step": step, "time": at, **fields})

    def samples(self, step: int, seen: int, samples: Sequence[bytes], at: float | None = None) -> bool:
        """Write the samples of a step, in frames of bounded size; the first has the number of submitted samples."""
        at, written = time.time() if at is None else at, True
        for piece in _pieces(samples, SAMPLE_BYTES):
            written = self._append(frames.frame(frames.sample_payload(step, at, seen, piece))) and written
            seen = 0
        return written

    def record(self, kind: Kind, record: Mapping[str, Any]) -> bool:
        """Write a frame whose body is a JSON object; ValueError if it is too large for readers."""
        payload = frames.record_payload(kind, record)
        if len(payload) > MAX_RECORD:
            what = str(record.get("event") or record.get("name"))[:100]
            raise ValueError(f"{what!r} has {len(payload):,} bytes of JSON and is not written: at most {MAX_RECORD:,}")
        return self._append(frames.frame(payload))

    def packet(self, kind: Kind, head: Mapping[str, Any], body: bytes) -> bool:
        """Write a frame whose body is a JSON object and bytes."""
        return self._append(frames.frame(frames.packet_payload(kind, {"time": time.time(), **head}, body)))

    def close(self, timeout: float = 0.0) -> int:
        """Write what waits, sync and close; return the number of frames that could not be written by the timeout."""
        return self.segment.close(timeout)

    def _enter(self, names: tuple[str, ...]) -> tuple[_Schema, Callable[..., Any] | None]:
        """Return the schema of names in this order; the same names in another order share it."""
        if not all(isinstance(name, str) for name in names):
            raise TypeError("names must be strings")
        if len(self._by_order) >= MAX_KEY_SETS:
            self._by_order.clear()
            self._by_set.clear()
        key = frozenset(names)
        schema = self._by_set.get(key)
        if schema is None:
            schema = self._by_set[key] = _Schema(names)
        order = None
        if schema.names != names:
            places = {name: place for place, name in enumerate(names)}
            order = itemgetter(*(places[name] for name in schema.names))
        entry = self._by_order[names] = schema, order
        return entry

    def _append_with_names(self, schema: _Schema, row: bytes) -> bool:
        """Write the schema and the row as one piece.

        The schema counts as written only afterwards: until then other threads write their own copy, so that no row
        is on disk before its names.
        """
        written = self._append(frames.frame(schema.payload) + row)
        if written:
            schema.wrote_copy()
        return written

    def _new_segment(self) -> None:
        """Begin another segment, which must be readable by itself."""
        for schema in self._by_set.values():
            schema.unwritten()
        self._announce()
        _, schema, _ = self._last
        if schema is not None:  # of the row that is written next
            self._append_with_names(schema, b"")


def _pieces(samples: Sequence[bytes], limit: int) -> Iterator[list[bytes]]:
    """Split samples into pieces of at most ``limit`` bytes; without samples there is one empty piece."""
    piece: list[bytes] = []
    size = 0
    for sample in samples:
        if piece and size + len(sample) > limit:
            yield piece
            piece, size = [], 0
        piece.append(sample)
        size += len(sample)
    yield piece


def claim(
    folder: Path,
    role: str,
    wanted: int | None = None,
    actor: str | None = None,
    spool: Path | None = None,
    process: Mapping[str, Any] | None = None,
) -> Writer:
    """Create the first segment of a rank that no live process has, empty, and return its writer.

    It is the rank of an earlier process of the same Ray actor, as a new attempt; else the ``wanted`` one, if no live
    process has it; else the lowest that was never used. Segments in ``spool`` may not be copied to ``folder`` yet.
    ``process`` is the identity of the process that gets the rank, by default of this one.
    """
    found = [segment for segment in _segments(folder, spool) if segment.writer.role == role]
    return _first_free(folder, _candidates(found, role, wanted, actor, process or process_identity()))


def claim_rank(folder: Path, role: str, rank: int) -> Writer:
    """Create the first segment of a rank's next attempt, whoever has the rank, and return its writer."""
    found = [segment for segment in segments(folder) if segment.writer.role == role]
    return _first_free(folder, _attempts_after(found, role, rank))


def _first_free(folder: Path, candidates: Iterable[Writer]) -> Writer:
    for writer in candidates:
        with suppress(FileExistsError):
            os.close(os.open(segment_path(folder, writer, 0), SEGMENT_FLAGS, 0o644))
            return writer
    raise AssertionError  # there is no end of ranks


def _candidates(
    found: list[SegmentFile], role: str, wanted: int | None, actor: str | None, process: Mapping[str, Any]
) -> Iterator[Writer]:
    if actor is not None and (rank := _rank_of_actor(found, actor, process)) is not None:
        yield from _attempts_after(found, role, rank)
    if wanted is not None and not any(_is_live(s.path) for s in found if s.writer.rank == wanted and s.index == 0):
        yield Writer(role, wanted, _attempts(found, wanted) + 1)
    used = {segment.writer.rank for segment in found}
    yield from (Writer(role, rank, 1) for rank in itertools.count() if rank not in used)


def _segments(folder: Path, spool: Path | None) -> list[SegmentFile]:
    """Return the segments by writer and index; of one that is in both folders, that in the spool, which is newer."""
    here = {(s.writer, s.index): s for place in (folder, spool) if place is not None for s in segments(place)}
    return [here[key] for key in sorted(here)]


def _attempts_after(found: list[SegmentFile], role: str, rank: int) -> Iterator[Writer]:
    return (Writer(role, rank, attempt) for attempt in itertools.count(_attempts(found, rank) + 1))


def _attempts(found: Iterable[SegmentFile], rank: int) -> int:
    return max((segment.writer.attempt for segment in found if segment.writer.rank == rank), default=0)


def _rank_of_actor(found: Iterable[SegmentFile], actor: str, process: Mapping[str, Any]) -> int | None:
    """Return the rank of an earlier process of an actor; the process itself may have had one and ended its run."""
    for segment in found:
        events = first_events(segment.path) if segment.index == 0 else ()
        # A process of another machine claims its rank with an event, before it writes that it starts.
        for event in events:
            is_other = any(event.get(name) != process[name] for name in ("machine", "pid", "born"))
            if event.get("event") in ("claim", "start") and event.get("actor") == actor and is_other:
                return segment.writer.rank
    return None


def _is_live(segment: Path) -> bool:
    return not segment_status(segment).ended
