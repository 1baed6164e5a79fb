"""Decoding of TensorBoard's event files without its package: records, and the messages with numbers and texts.

A record is ``u64 length, u32 checksum of the length, payload, u32 checksum of the payload``. Checksums are not checked:
in Python that would take longer than everything else. Damaged bytes show as messages that cannot be decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from windsock.model import Histogram

LENGTH = struct.Struct("<Q")
RECORD_HEAD, RECORD_TAIL = 12, 4
MAX_RECORD = 1 << 31  # beyond it the length is damaged, and the next record cannot be found
DOUBLE, FLOAT = struct.Struct("<d"), struct.Struct("<f")
BFLOAT16 = 14
# dtype to struct's letter; it has none for bfloat16, whose bytes are widened to a float's
NUMBERS = {1: "f", 2: "d", 3: "i", 5: "h", 6: "b", 9: "q", 10: "?", BFLOAT16: "f", 19: "e", 22: "I", 23: "Q"}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class UndecodableError(ValueError):
    """Bytes that are not an event."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an event: its tag, and either a number, a text or a histogram."""

    tag: str
    number: float | None = None
    text: str | None = None
    histogram: Histogram | None = None


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the complete records in the bytes, each with the offset of the next; a torn end is left."""
    place, end = 0, len(data)
    while end - place >= RECORD_HEAD + RECORD_TAIL:
        (length,) = LENGTH.unpack_from(data, place)
        if length > MAX_RECORD:
            raise UndecodableError(f"record of {length} bytes at byte {place}")
        stop = place + RECORD_HEAD + length + RECORD_TAIL
        if stop > end:
            return
        yield stop, data[place + RECORD_HEAD : stop - RECORD_TAIL]
        place = stop


def decode_event(data: bytes) -> tuple[float, int, list[bytes], bool]:
    """Return wall time, step, the values as bytes, and whether a session starts here."""
    # Fields of Event: 1 wall_time, 2 step, 5 summary, 7 session_log; see event.proto in tensorflow/core/util.
    time, step, values, starts = 0.0, 0, [], False
    for number, kind, value in fields(data):
        if number == 1 and kind == FIXED64:
            (time,) = DOUBLE.unpack(value)
        elif number == 2 and kind == VARINT:
            step = _signed(value)
        elif number == 5 and kind == BYTES:
            values += [inner for field, wire, inner in fields(value) if field == 1 and wire == BYTES]
        elif number == 7 and kind == BYTES:
            starts = any(field == 1 and inner == 1 for field, _, inner in fields(value))  # SessionLog.START
    return time, step, values, starts


def decode_value(data: bytes) -> Value | None:
    """Decode one value of a summary; return None for an image, a sound or a graph."""
    # Fields of Summary.Value: 1 tag, 2 simple_value, 5 histo, 8 tensor, 9 metadata. TensorFlow 2 writes numbers
    # and histograms as tensors, PyTorch as simple_value and histo.
    tag, number, tensor, histogram, plugin = "", None, None, None, ""
    for field, kind, value in fields(data):
        if field == 1 and kind == BYTES:
            tag = value.decode("utf-8", "replace")
        elif field == 2 and kind == FIXED32:
            (number,) = FLOAT.unpack(value)
        elif field == 5 and kind == BYTES:
            histogram = _old_histogram(value)
        elif field == 8 and kind == BYTES:
            tensor = value
        elif field == 9 and kind == BYTES:
            plugin = _plugin(value)
    if number is not None or histogram is not None:
        return Value(tag, number=number, histogram=histogram)
    return None if tensor is None else _from_tensor(tag, *_tensor(tensor), plugin)


def fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of every field of a message."""
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place)
        kind = key & 7
        if kind == VARINT:
            value, place = _varint(data, place)
            yield key >> 3, kind, value
            continue
        if kind == BYTES:
            size, place = _varint(data, place)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise UndecodableError(f"unknown wire type {kind}")
        # A slice would be cut off silently.
        if size > end - place:
            raise UndecodableError("a field is longer than its message")
        yield key >> 3, kind, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            # Python has no limit: damaged bytes would become one huge number.
            if shift > 63 and (byte > 127 or value >> 64):
                raise UndecodableError("a number has more than 64 bits")
            if byte < 128:
                return value, place
    except IndexError:
        raise UndecodableError("a number is incomplete") from None


def _plugin(metadata: bytes) -> str:
    for field, kind, value in fields(metadata):
        if field == 1 and kind == BYTES:
            for inner, wire, name in fields(value):
                if inner == 1 and wire == BYTES:
                    return str(name.decode("utf-8", "replace"))
    return ""


def _tensor(data: bytes) -> tuple[list[Any], tuple[int, ...]]:
    """Return the numbers or byte strings of a tensor, flat, and its shape."""
    # Fields of TensorProto: 1 dtype, 2 tensor_shape, 4 tensor_content, 5 float_val, 6 double_val, 7 int_val,
    # 8 string_val, 10 int64_val, 13 half_val. The numbers are in tensor_content or in the list of their type.
    dtype, shape, values, strings = 0, [], [], []
    content = halves = b""
    for field, kind, value in fields(data):
        if field == 1 and kind == VARINT:
            dtype = value
        elif field == 2 and kind == BYTES:
            shape = [_size(inner) for number, wire, inner in fields(value) if (number, wire) == (2, BYTES)]
        elif field == 4 and kind == BYTES:
            content = value
        elif field == 8 and kind == BYTES:
            strings.append(value)
        elif field in (5, 6, 7, 10):
            values += _packed(field, kind, value)
        elif field == 13:
            halves += b"".join((bits & 0xFFFF).to_bytes(2, "little") for bits in _integers(kind, value))
    content = content or halves
    if content and dtype in NUMBERS:
        values = _unpacked(NUMBERS[dtype], _widened(content) if dtype == BFLOAT16 else content)
    return strings or values, tuple(shape)


def _widened(content: bytes) -> bytes:
    """Return bfloat16 numbers as float32: their bytes are the upper half."""
    wide = bytearray(len(content) // 2 * 4)
    wide[2::4], wide[3::4] = content[0 : len(wide) // 2 : 2], content[1 : len(wide) // 2 : 2]
    return bytes(wide)


def _unpacked(letter: str, content: bytes) -> list[Any]:
    """Return the numbers in the bytes; an incomplete one at the end is left out."""
    count = len(content) // struct.calcsize(f"<{letter}")
    return list(struct.unpack_from(f"<{count}{letter}", content))


def _size(dimension: bytes) -> int:
    return next((value for field, kind, value in fields(dimension) if field == 1 and kind == VARINT), 0)


def _packed(field: int, kind: int, value: Any) -> list[float]:
    """Return the numbers of a repeated field, packed or not."""
    if field in (5, 6) and kind != VARINT:
        return _unpacked("f" if field == 5 else "d", value)
    return list(_integers(kind, value))


def _integers(kind: int, value: Any) -> Iterator[int]:
    """Yield the integers of a repeated field, packed or not."""
    if kind == VARINT:
        yield _signed(value)
        return
    place = 0
    while place < len(value):
        number, place = _varint(value, place)
        yield _signed(number)


def _signed(number: int) -> int:
    # Protobuf writes negative numbers as 64 bits in two's complement.
    return number if number < 1 << 63 else number - (1 << 64)


def _from_tensor(tag: str, values: list[Any], shape: tuple[int, ...], plugin: str) -> Value | None:
    if values and isinstance(values[0], bytes):
        return Value(tag, text="\n".join(value.decode("utf-8", "replace") for value in values))
    if len(shape) == 2 and shape[1] == 3 and len(values) == shape[0] * 3:
        return Value(tag, histogram=_new_histogram(values))
    if len(values) == 1 and plugin in ("", "scalars"):
        return Value(tag, number=float(values[0]))
    return None


def _new_histogram(values: list[float]) -> Histogram | None:
    """Read rows of left edge, right edge and count."""
    if not values:
        return None
    edges = (*values[0::3], values[-2])
    counts = [_count(count) for count in values[2::3]]
    middles = [(left + right) / 2 for left, right in zip(values[0::3], values[1::3], strict=True)]
    total = sum(middle * count for middle, count in zip(middles, counts, strict=True))  # the format has no sum
    return Histogram(edges, tuple(counts), values[0], values[-2], total, sum(counts))


def _old_histogram(data: bytes) -> Histogram | None:
    """Read limits and counts with minimum, maximum, count and sum."""
    # Fields of HistogramProto: 1 min, 2 max, 3 num, 4 sum, 6 bucket_limit, 7 bucket.
    facts: dict[int, float] = {}
    limits: list[float] = []
    counts: list[float] = []
    for field, kind, value in fields(data):
        if kind == FIXED64:
            (facts[field],) = DOUBLE.unpack(value)
        elif kind == BYTES and field in (6, 7):
            (limits if field == 6 else counts).extend(_packed(6, kind, value))
    if not limits or len(limits) != len(counts):
        return None
    low, high = facts.get(1, 0.0), facts.get(2, 0.0)
    used = [place for place, count in enumerate(counts) if count]
    if not used:
        return None
    kept = range(used[0], used[-1] + 1)
    # The last limit may be the largest float; the recorded maximum is where the values end.
    inner = tuple(min(limits[place], high) for place in kept)
    inner_counts = tuple(_count(counts[place]) for place in kept)
    return Histogram((low, *inner), inner_counts, low, high, facts.get(4, 0.0), _count(facts.get(3, 0.0)))


def _count(number: float) -> int:
    if not 0 <= number < 1 << 63:  # NaN is neither
        raise UndecodableError(f"invalid count {number}")
    return int(number)
