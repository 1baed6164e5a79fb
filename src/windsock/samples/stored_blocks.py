"""The tables of the index of samples: what it has of each segment, and the blocks of its samples."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from windsock.journal.folder import SegmentFile
from windsock.journal.frames import SAMPLE_HEAD, parse_samples
from windsock.journal.reader import HEAD, SampleFrame, read_payload
from windsock.journal.samples import decode
from windsock.journal.unpacking import MAX_RATIO, Budget
from windsock.model import Sample
from windsock.samples.blocks import Block, BlockBuilder, sealed, unpack_rest, unsealed

MAX_DAMAGE = 1000  # messages about frames that cannot be read; further ones are left out


@dataclass(slots=True)
class SegmentState:
    """What the index has of one segment."""

    first: str = ""  # head of the segment's first frame, in hexadecimal: it has a checksum
    last: str = ""  # head of the last frame of samples that the index has
    last_offset: int = -1
    done: int = 0  # bytes of the segment
    blocks: int = 0
    packed: int = 0  # bytes of all frames of samples
    cost: int = 0  # of unpacking them
    damage: list[str] = field(default_factory=list)


class StoredBlock(NamedTuple):
    """A block with its place."""

    segment: SegmentFile
    number: int
    block: Block
    first: int = 0  # number of its first sample in the segment


def frame_head(fd: int, offset: int) -> str:
    """Return the head of a frame: its checksum differs for frames of different processes."""
    return os.pread(fd, HEAD, offset).hex()


def segment_states(db: sqlite3.Connection) -> dict[str, SegmentState]:
    """Return what the index has of each segment."""
    rows = db.execute("SELECT name, state FROM segments")
    return {str(name): SegmentState(*json.loads(unsealed(state, f"segment {name}"))) for name, state in rows}


class BlockWriter:
    """Adds samples of one segment to its blocks. The last block is filled before another one is begun."""

    def __init__(self, db: sqlite3.Connection, segment: SegmentFile, state: SegmentState) -> None:
        self._db = db
        self._name = segment.path.name
        self.state = state
        self._number = max(0, state.blocks - 1)
        self._builder = BlockBuilder()
        if state.blocks:
            found = read_block(db, segment, self._number)
            self._builder.extend(found.block, read_texts(db, found), read_rest(db, found))

    def add(self, samples: Iterable[Sample], frame: SampleFrame) -> None:
        """Add the samples of a frame, and the numbers of those that it stores and that were submitted."""
        kept = 0
        for sample in samples:
            if self._builder.is_full:
                self._write()
                self._number, self._builder = self._number + 1, BlockBuilder()
            try:
                self._builder.add(sample)
                kept += 1
            except (ValueError, RecursionError) as error:
                self.note(frame, error)
        self._builder.frames.append((frame.step, kept, max(frame.seen, 0)))

    def note(self, frame: SampleFrame, error: Exception) -> None:
        """Record that samples of a frame cannot be read."""
        text = f"{self._name}: byte {frame.offset}: samples of step {frame.step} cannot be read: {error}"
        self.state.damage.append(text.encode("utf-8", "replace").decode())

    def finish(self, fd: int, last: SampleFrame) -> None:
        """Write the last block and the state of the segment."""
        self._write()
        state = self.state
        state.blocks, state.damage = self._number + 1, list(dict.fromkeys(state.damage))[:MAX_DAMAGE]
        # One byte beyond its start is enough: the next frame begins later, and the length need not be known.
        state.done, state.last_offset, state.last = last.offset + 1, last.offset, frame_head(fd, last.offset)
        blob = sealed(json.dumps(astuple(state)).encode(), f"segment {self._name}")
        self._db.execute("INSERT OR REPLACE INTO segments VALUES (?, ?)", (self._name, blob))

    def _write(self) -> None:
        parts = zip(("columns", "texts", "rest"), self._builder.parts(), strict=True)
        blobs = [sealed(body, _place(self._name, self._number, part)) for part, body in parts]
        self._db.execute(
            "INSERT INTO blocks VALUES (NULL, ?, ?, ?, ?, ?) ON CONFLICT (segment, number) DO UPDATE SET "
            "columns = excluded.columns, texts = excluded.texts, rest = excluded.rest",
            (self._name, self._number, *blobs),
        )


def _place(segment: str, number: int, part: str) -> str:
    return f"{part} of block {number} of {segment}"


def _read_part(db: sqlite3.Connection, segment: str, number: int, part: str) -> bytes:
    row = db.execute(f"SELECT {part} FROM blocks WHERE segment = ? AND number = ?", (segment, number)).fetchone()
    return unsealed(row and row[0], _place(segment, number, part))


def read_block(db: sqlite3.Connection, segment: SegmentFile, number: int) -> StoredBlock:
    """Read the columns of a block."""
    return StoredBlock(segment, number, Block.decoded(_read_part(db, segment.path.name, number, "columns")))


def read_texts(db: sqlite3.Connection, stored: StoredBlock) -> bytes:
    """Read the joined texts of a block."""
    return _read_part(db, stored.segment.path.name, stored.number, "texts")


def read_rest(db: sqlite3.Connection, stored: StoredBlock) -> bytes:
    """Read the other fields of a block's samples."""
    return unpack_rest(stored.block, _read_part(db, stored.segment.path.name, stored.number, "rest"))


def add_frame(blocks: BlockWriter, fd: int, frame: SampleFrame, budget: Budget) -> None:
    """Add the samples of a frame; those that cannot be read are skipped and recorded as damage."""
    samples: list[Sample] = []
    packed, left, records = 0, budget.left, list[Any]()
    try:
        payload = read_payload(fd, frame.offset)
        packed = len(payload) - SAMPLE_HEAD.size
        records = parse_samples(payload, budget)
    except ValueError as error:
        blocks.note(frame, error)
    for record in records:
        try:
            samples.append(decode(record, frame.step, frame.time))
        except (ValueError, RecursionError) as error:
            blocks.note(frame, error)
    blocks.state.packed += packed
    blocks.state.cost += left + MAX_RATIO * packed - budget.left
    blocks.add(samples, frame)


def stored_blocks(db: sqlite3.Connection) -> Iterator[StoredBlock]:
    """Yield the blocks of all segments, in the order of the journal."""
    segments = [
        (found, state) for name, state in segment_states(db).items() if (found := SegmentFile.parse(Path(name)))
    ]
    for segment, state in sorted(segments, key=lambda pair: (pair[0].writer, pair[0].index)):
        first = 0
        for number in range(state.blocks):
            stored = read_block(db, segment, number)._replace(first=first)
            first += len(stored.block)
            yield stored


def damage(db: sqlite3.Connection) -> tuple[str, ...]:
    """Return the messages about frames that could not be read."""
    found = (str(text) for state in segment_states(db).values() for text in state.damage)
    return tuple(dict.fromkeys(found))[:MAX_DAMAGE]
