"""Decoding of TensorBoard's event files without its package: records, and the messages with numbers and texts.

A record is ``u64 length, u32 checksum of the length, payload, u32 checksum of the payload``. The checksums of payloads
are not checked: in Python that would take longer than everything else. Damaged bytes show as messages that cannot be
decoded. The checksums of lengths serve to find the next record behind damage.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from barograph.base.files.crc32c import crc32c
from barograph.base.model import Histogram

LENGTH = struct.Struct("<Q")
RECORD_HEAD, RECORD_TAIL = 12, 4
MAX_RECORD = 1 << 31  # beyond it the length is damaged
LENGTH_END = re.compile(rb"[^\0]\0{5}")  # of a length that has three bytes or fewer; the others are zero
DAMAGED_LENGTH = "the length of a record is damaged"
MAX_LAYOUTS = 256
MAX_TAGS = 50_000
DOUBLE, FLOAT = struct.Struct("<d"), struct.Struct("<f")
BFLOAT16 = 14
# dtype to struct's letter; it has none for bfloat16, whose bytes are widened to a float's
NUMBERS = {1: "f", 2: "d", 3: "i", 5: "h", 6: "b", 9: "q", 10: "?", BFLOAT16: "f", 19: "e", 22: "I", 23: "Q"}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class UndecodableError(ValueError):
    """Bytes that are not an event."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an event: its tag, and either a number, a text, a histogram, or what the HParams tab shows."""

    tag: str
    number: float | None = None
    text: str | None = None
    histogram: Histogram | None = None
    hparams: dict[str, Any] | None = None
    session_end: int | None = None  # a status of the HParams tab


def records(data: bytes, place: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the complete records from a place on, each with the offset of the next; a torn end is left."""
    end = len(data)
    while end - place >= RECORD_HEAD + RECORD_TAIL:
        (length,) = LENGTH.unpack_from(data, place)
        if length > MAX_RECORD:
            raise UndecodableError(DAMAGED_LENGTH)
        stop = place + RECORD_HEAD + length + RECORD_TAIL
        if stop > end:
            return
        yield stop, data[place + RECORD_HEAD : stop - RECORD_TAIL]
        place = stop


def record_size(head: bytes) -> int:
    """Return the number of bytes of a record with this head."""
    return int(LENGTH.unpack_from(head)[0]) + RECORD_HEAD + RECORD_TAIL


def is_intact(head: bytes) -> bool:
    """Return whether the length in the head of a record has its checksum."""
    crc = crc32c(head[: LENGTH.size])
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked == int.from_bytes(head[LENGTH.size : RECORD_HEAD], "little")


def behind_damage(data: bytes, place: int) -> int:
    """Return where to go on behind a record that cannot be decoded: the next one, else almost the end."""
    head = data[place : place + RECORD_HEAD]
    if is_intact(head) and place + record_size(head) <= len(data):
        return place + record_size(head)
    for found in LENGTH_END.finditer(data, place + 1):
        for begin in range(max(found.start() - 2, place + 1), found.start() + 1):
            if is_intact(data[begin : begin + RECORD_HEAD]):
                return begin
    return max(place + 1, len(data) - RECORD_HEAD + 1)


class Layouts:
    """Decodes events that have numbers only. A layout is everything but the numbers; event after event has the same."""

    def __init__(self) -> None:
        self._single: dict[bytes, tuple[str, ...]] = {}  # the bytes before the number, of events with one number
        self._several: dict[int, _Layout] = {}  # by the length of the event behind its step

    def decode(self, data: bytes) -> tuple[float, int, Sequence[str], Sequence[float]] | None:
        """Return time, step, tags and numbers of an event; None if it has anything else, or fields in another order."""
        if len(data) < 16 or data[0] != 0x09:  # wall_time
            return None
        step, place = 0, 9
        if data[9] == 0x10:  # step
            step, place = _varint(data, 10)
        body = data[place:]
        tags = self._single.get(body[:-4])
        if tags is not None:
            values: Sequence[float] = FLOAT.unpack_from(body, len(body) - 4)
        else:
            layout = self._several.get(len(body))
            parts = None if layout is None else layout.unpack(body)
            if layout is None or parts is None or parts[::2] != layout.between:
                layout = self._learn(body)
                if layout is None:
                    return None
                parts = layout.unpack(body)
            tags, values = layout.tags, parts[1::2]
        return DOUBLE.unpack_from(data, 1)[0], signed(step), tags, values

    def _learn(self, body: bytes) -> _Layout | None:
        layout = _layout_of(body)
        if layout is None:
            return None
        if len(self._single) > MAX_TAGS:
            self._single.clear()
        if len(self._several) > MAX_LAYOUTS:
            self._several.clear()
        if len(layout.tags) == 1:
            self._single[layout.between[0]] = layout.tags
        else:
            self._several[len(body)] = layout
        return layout


@dataclass(frozen=True, slots=True)
class _Layout:
    """The tags of an event, the bytes between its numbers, and what unpacks both."""

    tags: tuple[str, ...]
    between: tuple[bytes, ...]
    unpack: Callable[[bytes], tuple[Any, ...]]


def _layout_of(body: bytes) -> _Layout | None:
    """Return the layout of an event behind its step: a summary whose values are tag and number, nothing else."""
    if body[:1] != b"\x2a":  # summary
        return None
    size, place = _varint(body, 1)
    if place + size != len(body) or not size:
        return None
    tags, between, start = [], [], 0
    while place < len(body):
        tag_at = _tag_in(body, place)
        if tag_at is None:
            return None
        begin, end = tag_at
        tags.append(body[begin:end].decode("utf-8", "replace"))
        between.append(body[start : end + 1])
        place = start = end + 5
    if len(set(tags)) < len(tags):
        return None
    return _Layout(tuple(tags), tuple(between), struct.Struct("<" + "".join(f"{len(b)}sf" for b in between)).unpack)


def _tag_in(body: bytes, place: int) -> tuple[int, int] | None:
    """Return begin and end of the tag of a value that is a tag and a number; None if it is anything else."""
    if body[place] != 0x0A:  # value
        return None
    size, begin = _varint(body, place + 1)
    end = begin + size
    if end > len(body) or size < 7 or body[begin] != 0x0A or body[end - 5] != 0x15:  # tag, simple_value
        return None
    length, begin = _varint(body, begin + 1)
    return (begin, end - 5) if begin + length == end - 5 else None


def decode_event(data: bytes) -> tuple[float, int, list[bytes], bool]:
    """Return wall time, step, the values as bytes, and whether a session starts here."""
    # Fields of Event: 1 wall_time, 2 step, 5 summary, 7 session_log; see event.proto in tensorflow/core/util.
    time, step, values, starts = 0.0, 0, [], False
    for number, kind, value in fields(data):
        if number == 1 and kind == FIXED64:
            (time,) = DOUBLE.unpack(value)
        elif number == 2 and kind == VARINT:
            step = signed(value)
        elif number == 5 and kind == BYTES:
            values += [inner for field, wire, inner in fields(value) if field == 1 and wire == BYTES]
        elif number == 7 and kind == BYTES:
            starts = any(field == 1 and inner == 1 for field, _, inner in fields(value))  # SessionLog.START
    return time, step, values, starts


def decode_value(data: bytes) -> Value | None:
    """Decode one value of a summary; return None for an image, a sound or a graph."""
    # Fields of Summary.Value: 1 tag, 2 simple_value, 5 histo, 8 tensor, 9 metadata. TensorFlow 2 writes numbers
    # and histograms as tensors, PyTorch as simple_value and histo.
    tag, number, tensor, histogram, plugin, content = "", None, None, None, "", b""
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
            plugin, content = _plugin(value)
    if plugin == "hparams" and content:
        return _hparams(tag, content)
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


def timestamp(data: bytes) -> float:
    """Return the seconds since 1970 of a google.protobuf.Timestamp."""
    found = {field: value for field, kind, value in fields(data) if kind == VARINT}
    return float(signed(found.get(1, 0)) + found.get(2, 0) / 1e9)


def _plugin(metadata: bytes) -> tuple[str, bytes]:
    """Return the name of the plugin that shows a value, and what it has recorded."""
    name, content = "", b""
    for field, kind, value in fields(metadata):
        if field == 1 and kind == BYTES:
            for inner, wire, data in fields(value):
                if inner == 1 and wire == BYTES:
                    name = data.decode("utf-8", "replace")
                elif inner == 2 and wire == BYTES:
                    content = data
    return name, content


def _hparams(tag: str, content: bytes) -> Value | None:
    """Decode the start or the end of a session of the HParams tab."""
    # Fields of HParamsPluginData: 3 session_start_info, 4 session_end_info; of these 1 hparams and 1 status.
    for field, kind, value in fields(content):
        if kind == BYTES and field == 3:
            pairs = [_pair(inner) for number, wire, inner in fields(value) if (number, wire) == (1, BYTES)]
            return Value(tag, hparams=dict(pairs))
        if kind == BYTES and field == 4:
            status = next((inner for number, wire, inner in fields(value) if (number, wire) == (1, VARINT)), 0)
            return Value(tag, session_end=status)
    return None


def _pair(data: bytes) -> tuple[str, Any]:
    """Decode an entry of a map to google.protobuf.Value: 2 number, 3 string, 4 bool."""
    name, found = "", None
    for field, kind, value in fields(data):
        if field == 1 and kind == BYTES:
            name = value.decode("utf-8", "replace")
        elif field == 2 and kind == BYTES:
            for number, wire, inner in fields(value):
                if (number, wire) == (2, FIXED64):
                    (found,) = DOUBLE.unpack(inner)
                elif (number, wire) == (3, BYTES):
                    found = inner.decode("utf-8", "replace")
                elif (number, wire) == (4, VARINT):
                    found = bool(inner)
    return name, found


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
        yield signed(value)
        return
    place = 0
    while place < len(value):
        number, place = _varint(value, place)
        yield signed(number)


def signed(number: int) -> int:
    """Return an integer of 64 bits with its sign."""
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
