"""The format on disk: segment header, frames and their payloads (``docs/journal.md`` is the specification).

Everything is little-endian. A frame is ``magic, u32 length, u32 crc32(length, payload), payload`` and a payload is
a kind byte and its body.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from zlib import crc32

from barograph.base.files.compression import Budget, load_json, pack
from barograph.base.former_name import FORMER_SEGMENT_MAGIC

FORMAT_VERSION = 1

SEGMENT_MAGIC = b"BAROGRPH"

FRAME_MAGIC = b"\xf5WSK"  # 0xf5 occurs in no UTF-8 text

FRAME_HEAD = struct.Struct("<4sII")

SEGMENT_HEAD = struct.Struct("<8sII")

MAX_FRAME = 1 << 30  # a damaged length must not make a reader wait for, or allocate, more than this

ROW_HEAD = struct.Struct("<BQqd")  # kind, schema, step, time

COMMIT_BODY = struct.Struct("<Bqd")  # kind, step, time

SCHEMA_HEAD = struct.Struct("<BQ")  # kind, id

PACKET_HEAD = struct.Struct("<BI")  # kind, length of the JSON

SAMPLE_HEAD = struct.Struct("<BqdII")  # kind, step, time, samples in the frame, samples that were submitted

MAX_SAMPLE_BODY = 8 << 20  # bytes of an unpacked frame of samples

MAX_SAMPLES = 1 << 16  # in a frame; a sample has its time at least, and a writer puts 1 MiB into a frame

SAMPLE_COST = 1024  # bytes that a reader counts for a sample at least: it is a row in an index

SAMPLE_LEVEL = 3  # of zlib: half the time of the default level for a tenth more bytes

PHASE_HEAD = struct.Struct("<BQQqdBHH")  # kind, span, parent, step, start, flags, length of name, length of lane

PHASE_TAIL = struct.Struct("<7d")  # elapsed, onload, execute, offload, tokens, peak, rss; NaN: no value

TIMER, DEVICE_CLOCK, FAILED = 1, 2, 4  # flags of a phase

MAX_NAME_BYTES = 2**16 - 1


class Kind(IntEnum):
    """The kind of a payload. A reader skips kinds that it does not know.

    Numbers are never used again: 11 is reserved for findings.
    """

    SCHEMA = 1
    ROW = 2
    COMMIT = 3
    STATE = 4
    EVENT = 5
    HISTOGRAM = 6
    TEXT = 7
    SAMPLE = 8
    PHASE_OPEN = 9
    PHASE_CLOSE = 10
    LAYOUT = 12
    GATHERED = 13
    SPARSE_STATE = 14


# A run writes a few lengths over and over, and every append and every read needs the seed of one.
@lru_cache(maxsize=4096)
def length_seed(length: int) -> int:
    """Return the checksum of the length field, with which that of the payload is continued."""
    return crc32(struct.pack("<I", length))


def frame(payload: bytes) -> bytes:
    """Return a payload as a frame."""
    length = len(payload)
    return FRAME_HEAD.pack(FRAME_MAGIC, length, crc32(payload, length_seed(length))) + payload


def segment_head() -> bytes:
    """Return the first bytes of a segment."""
    return SEGMENT_HEAD.pack(SEGMENT_MAGIC, FORMAT_VERSION, _head_crc(SEGMENT_MAGIC, FORMAT_VERSION))


def parse_segment_head(head: bytes) -> int | None:
    """Return the format version, or None if the header is damaged."""
    if len(head) < SEGMENT_HEAD.size:
        return None
    magic, version, crc = SEGMENT_HEAD.unpack_from(head)
    is_ours = magic in (SEGMENT_MAGIC, FORMER_SEGMENT_MAGIC)
    return version if is_ours and crc == _head_crc(magic, version) else None


def _head_crc(magic: bytes, version: int) -> int:
    return crc32(magic + struct.pack("<I", version))


def schema_id(names: Sequence[str]) -> int:
    """Return the content hash by which rows refer to their names."""
    return int.from_bytes(blake2b(_json(list(names)), digest_size=8).digest(), "little")


def schema_payload(id: int, names: Sequence[str]) -> bytes:
    """Encode a tuple of names. JSON in ASCII can contain any Python string, also lone surrogates."""
    return SCHEMA_HEAD.pack(Kind.SCHEMA, id) + _json(list(names))


def row_struct(width: int) -> struct.Struct:
    """Return the struct of a row payload with so many values."""
    return struct.Struct(f"{ROW_HEAD.format}{width}d")


def state_payload(layout: int, step: int, time: float, vector: Sequence[float]) -> bytes:
    """Encode a packed state of one writer and step; it has the shape of a row."""
    return row_struct(len(vector)).pack(Kind.STATE, layout, step, time, *vector)


def sparse_state_payload(layout: int, step: int, time: float, body: bytes) -> bytes:
    """Encode a state whose vector is mostly zero; ``body`` has its bytes (``barograph.metrics.states.layout``)."""
    return ROW_HEAD.pack(Kind.SPARSE_STATE, layout, step, time) + body


def commit_payload(step: int, time: float) -> bytes:
    """Encode the end of a step, whose number the open frames before it get."""
    return COMMIT_BODY.pack(Kind.COMMIT, step, time)


def phase_text(text: str) -> bytes:
    """Encode a name or a lane of a phase."""
    # The length is a u16. A phase with a longer name is recorded under its beginning rather than lost.
    return text.encode("utf-8", "surrogatepass")[:MAX_NAME_BYTES]


def phase_open_payload(span: int, parent: int, step: int, start: float, flags: int, name: bytes, lane: bytes) -> bytes:
    """Encode the open frame of a span."""
    return PHASE_HEAD.pack(Kind.PHASE_OPEN, span, parent, step, start, flags, len(name), len(lane)) + name + lane


def phase_close_payload(
    span: int,
    parent: int,
    step: int,
    start: float,
    flags: int,
    name: bytes,
    lane: bytes,
    durations: tuple[float, ...],
    token_kind: bytes = b"",
) -> bytes:
    """Encode the close frame of a span; it repeats the open frame, which may be damaged."""
    head = PHASE_HEAD.pack(Kind.PHASE_CLOSE, span, parent, step, start, flags, len(name), len(lane))
    return head + name + lane + PHASE_TAIL.pack(*durations) + token_kind


def phase_string(text: bytes) -> str:
    """Decode a name, a lane or a kind of tokens."""
    # A cut name may end inside a character, and a lone surrogate is not valid UTF-8: neither may cost the span.
    return text.decode("utf-8", "replace")


def sample_payload(step: int, time: float, seen: int, samples: Sequence[bytes]) -> bytes:
    """Encode samples of a step, each a JSON object in UTF-8; ``seen`` is the number that was submitted."""
    body = pack(b"[" + b",".join(samples) + b"]", SAMPLE_LEVEL, SAMPLE_COST * len(samples))
    return SAMPLE_HEAD.pack(Kind.SAMPLE, step, time, len(samples), seen) + body


def parse_sample_head(payload: bytes) -> tuple[int, float, int, int]:
    """Return step, time, number of samples and number of submitted samples of a frame, without unpacking it."""
    if len(payload) < SAMPLE_HEAD.size:
        raise ValueError("the sample frame is too short")
    _, step, time, kept, seen = SAMPLE_HEAD.unpack_from(payload)
    return step, time, kept, seen


def parse_samples(payload: bytes, budget: Budget | None = None) -> list[Any]:
    """Decode the samples of a frame; raise ValueError if it is malformed, too large, or over the reader's budget."""
    budget = budget or Budget()
    body = budget.unpack(payload[SAMPLE_HEAD.size :], MAX_SAMPLE_BODY)
    samples = load_json(body)
    if not isinstance(samples, list):
        raise ValueError("samples must be a JSON array")
    budget.spend(max(0, SAMPLE_COST * len(samples) - len(body)))
    if len(samples) > MAX_SAMPLES:
        raise ValueError(f"more than {MAX_SAMPLES:,} samples in a frame")
    return samples


def record_payload(kind: Kind, record: Mapping[str, Any]) -> bytes:
    """Encode a body that is one JSON object (events, histograms, texts, layouts)."""
    return bytes((kind,)) + _json(record)


def packet_payload(kind: Kind, head: Mapping[str, Any], body: bytes) -> bytes:
    """Encode a body of a small JSON object and bytes in another format."""
    text = _json(head)
    return PACKET_HEAD.pack(kind, len(text)) + text + body


def _json(value: object) -> bytes:
    # Separators and escapes are part of the format: the id of a schema is the hash of these bytes.
    return json.dumps(value, separators=(",", ":")).encode("ascii")
