"""Blocks of samples: columns of numbers, the texts, and the other fields, and the tables of the index that store them,
with what it has of each segment.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from barograph.base.files.compression import MAX_RATIO, Budget, pack
from barograph.base.model import Sample, total_reward
from barograph.journal.format.folder import SegmentFile
from barograph.journal.format.frames import SAMPLE_HEAD, parse_samples
from barograph.journal.format.samples import decode, encode
from barograph.journal.samples.query import MAX_COLUMNS, MAX_NAME_BYTES, Kind, columns_of, kind_of
from barograph.journal.samples.transcript import to_bytes, turns_of
from barograph.journal.segments.contents import SampleFrame
from barograph.journal.segments.framing import frame_head, read_payload

Rows = NDArray[np.void]

MAX_SAMPLES = 512  # of a block

MAX_BYTES = 1 << 20  # of a block's texts and other fields, beyond which no sample is added

NAMES = ("finish_reason", "task", "group", "run")

NUMBERS = ("step", "length", "weight_version", "time", "reward", "advantage")

HAS_LENGTH, HAS_VERSION = 1, 2

SAMPLE = np.dtype(
    [
        *((name, "<i8") for name in ("step", "length", "weight_version")),
        *((name, "<f8") for name in ("time", "reward", "advantage")),
        *((name, "<u4") for name in NAMES),  # numbers of names, from 1; 0 for none
        *((name, "<u4") for name in ("prompt", "completion", "texts", "rest")),  # bytes
        ("has", "u1"),
    ]
)

FRAME = np.dtype([("step", "<i8"), ("kept", "<i8"), ("seen", "<i8")])

COUNTS = struct.Struct("<IIII")  # samples, frames, names and further columns

KINDS: dict[Kind, str] = {"number": "<f8", "truth": "<f8", "name": "<u4"}

ColumnKey = tuple[str, Kind]  # a name may have values of several kinds

SEAL = struct.Struct("<I")


class BlockDamageError(ValueError):
    """A part of a block is not as it was written."""


def sealed(body: bytes, place: str) -> bytes:
    """Return bytes with a checksum of them and of their place."""
    return body + SEAL.pack(crc32(body, crc32(place.encode())))


def unsealed(blob: Any, place: str) -> bytes:
    """Return the bytes of ``sealed``; raise BlockDamageError if they are not as they were written there."""
    if not isinstance(blob, bytes) or len(blob) < SEAL.size or sealed(body := blob[: -SEAL.size], place) != blob:
        raise BlockDamageError(f"{place} is damaged")
    return body


@dataclass(slots=True)
class SampleBlock:
    """Samples of one segment that follow each other."""

    rows: Rows
    frames: Rows
    names: list[bytes]
    columns: dict[ColumnKey, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def named(self, field: str, name: bytes) -> NDArray[np.bool_]:
        """Return which samples have a name in a field or column."""
        number = self.names.index(name) + 1 if name in self.names else -1
        found: NDArray[np.bool_] = self.name_numbers(field) == number
        return found

    def name_numbers(self, field: str) -> NDArray[np.int64]:
        """Return the numbers of the names in a field or column, from 1; 0 for none."""
        column = self.rows[field] if field in NAMES else self.columns.get((field, "name"))
        return np.zeros(len(self), np.int64) if column is None else column.astype(np.int64)

    def numbers(self, field: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the numbers in a field or column, and which samples have one; truth values are 0 and 1."""
        if field in NUMBERS:
            return self.rows[field], self.known(field)
        found = np.full(len(self), np.nan)
        for kind in ("number", "truth"):
            if (column := self.columns.get((field, kind))) is not None:
                found = np.where(np.isnan(column), found, column)
        return found, ~np.isnan(found)

    def has(self, field: str) -> NDArray[np.bool_]:
        """Return which samples have any value in a field or column."""
        return self.numbers(field)[1] | (self.name_numbers(field) > 0)

    def known(self, field: str) -> NDArray[np.bool_]:
        """Return which samples have a number in a field."""
        flag = {"length": HAS_LENGTH, "weight_version": HAS_VERSION}.get(field)
        if flag is not None:
            found: NDArray[np.bool_] = (self.rows["has"] & flag) != 0
            return found
        return np.ones(len(self), bool) if field == "step" else ~np.isnan(self.rows[field])

    def pieces(self, joined: bytes, field: str) -> Iterator[bytes]:
        """Yield the part of each sample of joined texts or other fields."""
        begin = 0
        for size in self.rows[field].tolist():
            yield joined[begin : begin + size]
            begin += size

    def encoded(self) -> bytes:
        """Return everything but the texts and other fields."""
        texts = [*self.names, *(to_bytes(f"{kind} {name}") for name, kind in self.columns)]
        counts = COUNTS.pack(len(self.rows), len(self.frames), len(self.names), len(self.columns))
        sizes = np.array([len(text) for text in texts], "<u4")
        columns = (column.tobytes() for column in self.columns.values())
        return b"".join((counts, self.rows.tobytes(), self.frames.tobytes(), sizes.tobytes(), *texts, *columns))

    @classmethod
    def decoded(cls, data: bytes) -> SampleBlock:
        """Return a block of the bytes of ``encoded``."""
        samples, frames, names, columns = COUNTS.unpack_from(data)
        parts = [COUNTS.size, samples * SAMPLE.itemsize, frames * FRAME.itemsize, 4 * (names + columns)]
        ends = np.cumsum(parts).tolist()
        sizes = np.frombuffer(data[ends[2] : ends[3]], "<u4").tolist()
        places = np.cumsum([ends[3], *sizes]).tolist()
        texts = [data[start:stop] for start, stop in pairwise(places)]
        return cls(
            np.frombuffer(data[ends[0] : ends[1]], SAMPLE),
            np.frombuffer(data[ends[1] : ends[2]], FRAME),
            texts[:names],
            dict(_decoded_columns(texts[names:], data[places[-1] :], samples)),
        )


def _decoded_columns(keys: list[bytes], data: bytes, count: int) -> Iterator[tuple[ColumnKey, NDArray[Any]]]:
    at = 0
    for key in keys:
        kind, _, name = key.decode("utf-8", "surrogatepass").partition(" ")
        column = np.frombuffer(data, KINDS[kind], count, at)  # type: ignore[index]
        yield (name, kind), column  # type: ignore[misc]
        at += column.nbytes


@dataclass(slots=True)
class BlockBuilder:
    """A block that samples are added to, with the texts and other fields."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    frames: list[tuple[int, int, int]] = field(default_factory=list)
    names: dict[bytes, int] = field(default_factory=dict)
    texts: list[bytes] = field(default_factory=list)
    rest: list[bytes] = field(default_factory=list)
    columns: dict[ColumnKey, dict[int, float]] = field(default_factory=dict)  # by row; few samples may have a column
    size: int = 0

    @property
    def is_full(self) -> bool:
        """Whether the next sample begins another block."""
        return len(self.rows) >= MAX_SAMPLES or self.size >= MAX_BYTES

    def add(self, sample: Sample) -> None:
        """Add a sample; raise ValueError or RecursionError if it cannot be encoded."""
        prompt, completion = to_bytes(sample.prompt), to_bytes(sample.completion)
        turns = turns_of(replace(sample, prompt="", completion=""))
        further = [part.text for turn in turns for part in turn.parts] + [sample.answer or "", sample.reference or ""]
        # Texts are separated by NUL, so that no word is found across the end of one and the beginning of the next.
        texts = b"\0".join((prompt, completion, *(to_bytes(text) for text in further if text)))
        rest = encode(replace(sample, prompt="", completion=""))
        names = [None if (name := getattr(sample, field)) is None else to_bytes(name) for field in NAMES]
        numbers = [0 if name is None else self._number(name) for name in names]
        for name, value in columns_of(sample, turns):
            self._add_to_column(name, value)
        length, version = sample.length, sample.weight_version
        has = (0 if length is None else HAS_LENGTH) | (0 if version is None else HAS_VERSION)
        measured = (sample.time, *(np.nan if v is None else v for v in (total_reward(sample), sample.advantage)))
        sizes = len(prompt), len(completion), len(texts), len(rest)
        self.rows.append((sample.step, length or 0, version or 0, *measured, *numbers, *sizes, has))
        self.texts.append(texts)
        self.rest.append(rest)
        self.size += len(texts) + len(rest)

    def _number(self, name: bytes) -> int:
        return self.names.setdefault(name, len(self.names) + 1)

    def _add_to_column(self, name: str, value: float | bool | str) -> None:
        key = name, kind_of(value)
        if key not in self.columns and (len(self.columns) >= MAX_COLUMNS or name in (*NAMES, *NUMBERS)):
            return
        if isinstance(value, str):
            text = to_bytes(value)
            if len(text) > MAX_NAME_BYTES:
                return
            value = self._number(text)
        self.columns.setdefault(key, {}).setdefault(len(self.rows), float(value))

    def _dense(self, key: ColumnKey) -> NDArray[Any]:
        column = np.full(len(self.rows), 0 if key[1] == "name" else np.nan, KINDS[key[1]])
        column[list(self.columns[key])] = list(self.columns[key].values())
        return column

    def extend(self, block: SampleBlock, texts: bytes, rest: bytes) -> None:
        """Add the samples of a block, to an empty builder."""
        self.rows = block.rows.tolist()
        self.frames = block.frames.tolist()
        self.names = {name: number for number, name in enumerate(block.names, 1)}
        self.columns = {key: _sparse(column) for key, column in block.columns.items()}
        self.texts, self.rest = list(block.pieces(texts, "texts")), list(block.pieces(rest, "rest"))
        self.size = len(texts) + len(rest)

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """Return the encoded block, the texts, and the other fields, compressed."""
        columns = {key: self._dense(key) for key in self.columns}
        block = SampleBlock(np.array(self.rows, SAMPLE), np.array(self.frames, FRAME), list(self.names), columns)
        return block.encoded(), b"".join(self.texts), pack(b"".join(self.rest), 1)


def _sparse(column: NDArray[Any]) -> dict[int, float]:
    rows = np.flatnonzero(column > 0 if column.dtype.kind == "u" else ~np.isnan(column))
    return dict(zip(rows.tolist(), column[rows].tolist(), strict=True))


def unpack_rest(block: SampleBlock, packed: bytes) -> bytes:
    """Return the other fields of a block's samples."""
    return Budget().unpack(packed, int(block.rows["rest"].sum(dtype=np.int64)))


def sample_of(row: Mapping[str, Any], texts: bytes, rest: bytes) -> Sample:
    """Return a sample from its row, its texts and its other fields."""
    prompt, completion = int(row["prompt"]), int(row["completion"])
    first, second = texts[:prompt], texts[prompt + 1 : prompt + 1 + completion]
    sample = decode(rest, int(row["step"]))
    return replace(
        sample, prompt=first.decode("utf-8", "surrogatepass"), completion=second.decode("utf-8", "surrogatepass")
    )


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
    block: SampleBlock
    first: int = 0  # number of its first sample in the segment


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
        state.done, state.last_offset, state.last = last.offset + 1, last.offset, frame_head(fd, last.offset).hex()
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
    return StoredBlock(segment, number, SampleBlock.decoded(_read_part(db, segment.path.name, number, "columns")))


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
