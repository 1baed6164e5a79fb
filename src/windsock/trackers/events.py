"""TensorBoard's event files: the few messages that we write, encoded by hand, one event for all values of a step.

A file is a sequence of records (length, its checksum, event, its checksum). Field numbers are those of TensorFlow's
``event.proto``, ``summary.proto`` and ``tensor.proto`` and of TensorBoard's ``hparams/plugin_data.proto``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from windsock.model import Histogram
from windsock.trackers.crc32c import crc32c

VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5
DT_FLOAT, DT_DOUBLE, DT_STRING = 1, 2, 7
CLASS_TENSOR = 2
START = 1  # of a session: readers drop what they have from its step on
SUCCESS, FAILURE = 1, 2


def record(event: bytes) -> bytes:
    """Frame an event as it stands in a file."""
    length = struct.pack("<Q", len(event))
    return b"".join((length, _masked(length), event, _masked(event)))


def version(time: float) -> bytes:
    """Return the event that a file begins with."""
    return _double(1, time) + _text(3, "brain.Event:2")


def summary(time: float, step: int, *values: bytes) -> bytes:
    """Return the event that holds these values of a step."""
    return _double(1, time) + _varint_field(2, step) + _bytes(5, b"".join(values))


def restart(time: float, step: int) -> bytes:
    """Return the event that says: from this step on, what follows supersedes what was."""
    return _double(1, time) + _varint_field(2, step) + _bytes(7, _varint_field(1, START))


def scalars(values: Mapping[str, float]) -> bytes:
    """Return named numbers as float32, all that TensorBoard keeps of one."""
    if not values:
        return b""
    template, places = _layout(tuple(values))
    with np.errstate(over="ignore"):  # beyond float32 is infinite there
        numbers = np.fromiter(values.values(), np.float64, len(values)).astype("<f4")
    filled = template.copy()
    filled[places] = numbers.view(np.uint8)
    return filled.tobytes()


@lru_cache(maxsize=64)
def _layout(names: tuple[str, ...]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """Return the bytes of named numbers that stay the same from step to step, and the places of those that do not."""
    out = bytearray()
    ends = []
    for name in names:
        out += _bytes(1, _text(1, name) + _key(2, FLOAT) + bytes(4))
        ends.append(len(out))
    places = (np.array(ends, dtype=np.intp)[:, None] + np.arange(-4, 0)).reshape(-1)
    return np.frombuffer(bytes(out), dtype=np.uint8), places


def text(name: str, words: str) -> bytes:
    """Return a text for the text plugin, in Markdown."""
    tensor = _varint_field(1, DT_STRING) + _bytes(2, _shape(1)) + _bytes(8, _encoded(words))
    return _value(name, tensor, "text")


def histogram(name: str, counted: Histogram) -> bytes:
    """Return a histogram as the histograms plugin has it: left edge, right edge and count of each bin."""
    columns = (counted.edges[:-1], counted.edges[1:], counted.counts)
    bins = np.array(columns, dtype="<f8").reshape(3, -1).T
    tensor = _varint_field(1, DT_DOUBLE) + _bytes(2, _shape(len(bins), 3)) + _bytes(4, bins.tobytes())
    return _value(name, tensor, "histograms")


def session_start(hparams: Mapping[str, bool | int | float | str], time: float) -> bytes:
    """Return what a run was asked to do, for the HParams tab.

    No list of hyperparameters and metrics goes with it: TensorBoard takes such a list from the first run that it finds,
    for all runs, and without one makes it itself from what all of them have.
    """
    pairs = b"".join(_bytes(1, _text(1, name) + _bytes(2, _plain(value))) for name, value in hparams.items())
    return _value("_hparams_/session_start_info", _NULL, "hparams", _bytes(3, pairs + _double(5, time)))


def session_end(status: int, time: float) -> bytes:
    """Return how a run ended, for the HParams tab."""
    end = _varint_field(1, status) + _double(2, time)
    return _value("_hparams_/session_end_info", _NULL, "hparams", _bytes(4, end))


def _plain(value: bool | int | float | str) -> bytes:
    if isinstance(value, bool):
        return _varint_field(4, int(value))
    return _double(2, float(value)) if isinstance(value, int | float) else _text(3, value)


def _value(name: str, tensor: bytes, plugin: str, content: bytes = b"") -> bytes:
    metadata = _bytes(1, _text(1, plugin) + _bytes(2, content)) + _varint_field(4, CLASS_TENSOR)
    return _bytes(1, _text(1, name) + _bytes(8, tensor) + _bytes(9, metadata))


def _shape(*sizes: int) -> bytes:
    return b"".join(_bytes(2, _varint_field(1, size)) for size in sizes)


def _masked(data: bytes) -> bytes:
    """Return the checksum of some bytes, turned as record files want it."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _encoded(words: str) -> bytes:
    return words.encode("utf-8", "replace")  # half a surrogate pair has no UTF-8


def _text(field: int, words: str) -> bytes:
    return _bytes(field, _encoded(words))


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, BYTES) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return _key(field, DOUBLE) + struct.pack("<d", value)


def _varint_field(field: int, value: int) -> bytes:
    return _key(field, VARINT) + _varint(value)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_NULL = _varint_field(1, DT_FLOAT) + _bytes(2, b"") + _bytes(4, bytes(4))
