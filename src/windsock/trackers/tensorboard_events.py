"""Encoder of TensorBoard's event files, without a dependency on protobuf; all values of a step are one event.

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
START = 1  # session status; readers drop earlier points from its step on
SUCCESS, FAILURE = 1, 2


def record(event: bytes) -> bytes:
    """Return an event framed as a record of the file."""
    length = struct.pack("<Q", len(event))
    return b"".join((length, _masked(length), event, _masked(event)))


def version(time: float) -> bytes:
    """Return the first event of a file."""
    return _double(1, time) + _text(3, "brain.Event:2")


def summary(time: float, step: int, *values: bytes) -> bytes:
    """Return an event with these values of a step."""
    return _double(1, time) + _varint_field(2, step) + _bytes(5, b"".join(values))


def restart(time: float, step: int) -> bytes:
    """Return an event with which the points that follow replace the earlier ones from this step on."""
    return _double(1, time) + _varint_field(2, step) + _bytes(7, _varint_field(1, START))


def scalars(values: Mapping[str, float]) -> bytes:
    """Return named numbers as float32, the precision that TensorBoard stores."""
    if not values:
        return b""
    # Names repeat from step to step: only the four bytes of each value change.
    template, positions = _layout(tuple(values))
    with np.errstate(over="ignore"):  # out of the range of float32: infinite
        numbers = np.fromiter(values.values(), np.float64, len(values)).astype("<f4")
    filled = template.copy()
    filled[positions] = numbers.view(np.uint8)
    return filled.tobytes()


# A run logs a few sets of names, each at many steps.
@lru_cache(maxsize=64)
def _layout(names: tuple[str, ...]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """Return the encoded bytes for these names with empty values, and the positions of the values' bytes."""
    out = bytearray()
    ends = []
    for name in names:
        out += _bytes(1, _text(1, name) + _key(2, FLOAT) + bytes(4))
        ends.append(len(out))
    positions = (np.array(ends, dtype=np.intp)[:, None] + np.arange(-4, 0)).reshape(-1)
    return np.frombuffer(bytes(out), dtype=np.uint8), positions


def text(name: str, content: str) -> bytes:
    """Return a text for the text plugin, in Markdown."""
    tensor = _varint_field(1, DT_STRING) + _bytes(2, _shape(1)) + _bytes(8, _encoded(content))
    return _value(name, tensor, "text")


def histogram(name: str, counted: Histogram) -> bytes:
    """Return a histogram for the histograms plugin: left edge, right edge and count of each bin."""
    columns = (counted.edges[:-1], counted.edges[1:], counted.counts)
    bins = np.array(columns, dtype="<f8").reshape(3, -1).T
    tensor = _varint_field(1, DT_DOUBLE) + _bytes(2, _shape(len(bins), 3)) + _bytes(4, bins.tobytes())
    return _value(name, tensor, "histograms")


def session_start(hparams: Mapping[str, bool | int | float | str], time: float) -> bytes:
    """Return a run's hyperparameters for the HParams tab.

    The list of all hyperparameters and metrics is left out: TensorBoard would use the first run's list for all runs.
    Without a list it builds one from all runs.
    """
    pairs = b"".join(_bytes(1, _text(1, name) + _bytes(2, _plain(value))) for name, value in hparams.items())
    return _value("_hparams_/session_start_info", _NULL, "hparams", _bytes(3, pairs + _double(5, time)))


def session_end(status: int, time: float) -> bytes:
    """Return a run's final status for the HParams tab."""
    end = _varint_field(1, status) + _double(2, time)
    return _value("_hparams_/session_end_info", _NULL, "hparams", _bytes(4, end))


def _plain(value: bool | int | float | str) -> bytes:
    # Before the numbers, as a bool is an int.
    if isinstance(value, bool):
        return _varint_field(4, int(value))
    return _double(2, float(value)) if isinstance(value, int | float) else _text(3, value)


def _value(name: str, tensor: bytes, plugin: str, content: bytes = b"") -> bytes:
    metadata = _bytes(1, _text(1, plugin) + _bytes(2, content)) + _varint_field(4, CLASS_TENSOR)
    return _bytes(1, _text(1, name) + _bytes(8, tensor) + _bytes(9, metadata))


def _shape(*sizes: int) -> bytes:
    return b"".join(_bytes(2, _varint_field(1, size)) for size in sizes)


def _masked(data: bytes) -> bytes:
    """Return the masked CRC of the record format: rotated and offset."""
    # The format masks checksums, as LevelDB does: it is problematic to compute the CRC of data that contains CRCs.
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _encoded(content: str) -> bytes:
    return content.encode("utf-8", "replace")  # lone surrogates have no UTF-8


def _text(field: int, content: str) -> bytes:
    return _bytes(field, _encoded(content))


def _bytes(field: int, data: bytes) -> bytes:
    return _key(field, BYTES) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return _key(field, DOUBLE) + struct.pack("<d", value)


def _varint_field(field: int, value: int) -> bytes:
    return _key(field, VARINT) + _varint(value)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are two's complement of 64 bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# The data of the HParams tab are in the metadata, but a value needs a tensor.
_NULL = _varint_field(1, DT_FLOAT) + _bytes(2, b"") + _bytes(4, bytes(4))
