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
from windsock.samples.query import to_bytes

Rows = NDArray[np.void]

MAX_SAMPLES = 512  # of a block
MAX_BYTES = 1 << 20  # of a block's texts and other fields, beyond which no sample is added
NAMES = ("finish_reason", "task", "group", "run")
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
COUNTS = struct.Struct("<III")  # samples, frames and names
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

    def __len__(self) -> int:
        return len(self.rows)

    def named(self, field: str, name: bytes) -> NDArray[np.bool_]:
        """Return which samples have a name in a field."""
        number = self.names.index(name) + 1 if name in self.names else -1
        found: NDArray[np.bool_] = self.rows[field] == number
        return found

    def known(self, field: str) -> NDArray[np.bool_]:
        """Return which samples have a number."""
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
        counts = COUNTS.pack(len(self.rows), len(self.frames), len(self.names))
        sizes = np.array([len(name) for name in self.names], "<u4")
        return b"".join((counts, self.rows.tobytes(), self.frames.tobytes(), sizes.tobytes(), *self.names))

    @classmethod
    def decoded(cls, data: bytes) -> Block:
        """Return a block of the bytes of ``encoded``."""
        samples, frames, names = COUNTS.unpack_from(data)
        ends = np.cumsum([COUNTS.size, samples * SAMPLE.itemsize, frames * FRAME.itemsize, 4 * names]).tolist()
        sizes = np.frombuffer(data[ends[2] : ends[3]], "<u4").tolist()
        places = np.cumsum([ends[3], *sizes]).tolist()
        return cls(
            np.frombuffer(data[ends[0] : ends[1]], SAMPLE),
            np.frombuffer(data[ends[1] : ends[2]], FRAME),
            [data[start:stop] for start, stop in pairwise(places)],
        )


@dataclass(slots=True)
class BlockBuilder:
    """A block that samples are added to, with the texts and other fields."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    frames: list[tuple[int, int, int]] = field(default_factory=list)
    names: dict[bytes, int] = field(default_factory=dict)
    texts: list[bytes] = field(default_factory=list)
    rest: list[bytes] = field(default_factory=list)
    size: int = 0

    @property
    def is_full(self) -> bool:
        """Whether the next sample begins another block."""
        return len(self.rows) >= MAX_SAMPLES or self.size >= MAX_BYTES

    def add(self, sample: Sample) -> None:
        """Add a sample; raise ValueError or RecursionError if it cannot be encoded."""
        prompt, completion = to_bytes(sample.prompt), to_bytes(sample.completion)
        messages = [to_bytes(text) for message in sample.messages for text in texts_of(message.get("content"))]
        # Texts are separated by NUL, so that no word is found across the end of one and the beginning of the next.
        texts = b"\0".join((prompt, completion, *messages))
        rest = encode(replace(sample, prompt="", completion=""))
        names = [None if (name := getattr(sample, field)) is None else to_bytes(name) for field in NAMES]
        numbers = [0 if name is None else self.names.setdefault(name, len(self.names) + 1) for name in names]
        length, version = sample.length, sample.weight_version
        has = (0 if length is None else HAS_LENGTH) | (0 if version is None else HAS_VERSION)
        measured = (sample.time, *(np.nan if v is None else v for v in (total_reward(sample), sample.advantage)))
        sizes = len(prompt), len(completion), len(texts), len(rest)
        self.rows.append((sample.step, length or 0, version or 0, *measured, *numbers, *sizes, has))
        self.texts.append(texts)
        self.rest.append(rest)
        self.size += len(texts) + len(rest)

    def extend(self, block: Block, texts: bytes, rest: bytes) -> None:
        """Add the samples of a block, to an empty builder."""
        self.rows = block.rows.tolist()
        self.frames = block.frames.tolist()
        self.names = {name: number for number, name in enumerate(block.names, 1)}
        self.texts, self.rest = list(block.pieces(texts, "texts")), list(block.pieces(rest, "rest"))
        self.size = len(texts) + len(rest)

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """Return the encoded block, the texts, and the other fields, compressed."""
        block = Block(np.array(self.rows, SAMPLE), np.array(self.frames, FRAME), list(self.names))
        return block.encoded(), b"".join(self.texts), pack(b"".join(self.rest), 1)


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


def texts_of(content: Any) -> Iterator[str]:
    """Yield the texts of a message's content: itself, or those of its parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            yield from texts_of(part)
    elif isinstance(content, Mapping):
        yield from texts_of(content.get("text"))
