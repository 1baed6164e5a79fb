"""Blocks of samples, as the index stores them: columns of numbers, the texts, and the other fields.

Every part of a block is sealed with a checksum that is also of its place, so that neither a changed byte nor a part of
another block is taken for what was written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from windsock.journal.samples import decode, encode
from windsock.journal.unpacking import Budget, pack
from windsock.model import Sample
from windsock.samples.choice import total_reward
from windsock.samples.columns import MAX_COLUMNS, MAX_NAME_BYTES, Kind, columns_of, kind_of
from windsock.samples.query import to_bytes
from windsock.samples.transcript import turns_of

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
class Block:
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
    def decoded(cls, data: bytes) -> Block:
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

    def extend(self, block: Block, texts: bytes, rest: bytes) -> None:
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
        block = Block(np.array(self.rows, SAMPLE), np.array(self.frames, FRAME), list(self.names), columns)
        return block.encoded(), b"".join(self.texts), pack(b"".join(self.rest), 1)


def _sparse(column: NDArray[Any]) -> dict[int, float]:
    rows = np.flatnonzero(column > 0 if column.dtype.kind == "u" else ~np.isnan(column))
    return dict(zip(rows.tolist(), column[rows].tolist(), strict=True))


def unpack_rest(block: Block, packed: bytes) -> bytes:
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
