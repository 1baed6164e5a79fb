"""States that are mostly zero, in few bytes: a bit for each slot, then the numbers of the slots that have one.

A state of counts in bins has hundreds of slots, most of them empty. The bits make the size of the vector at most 64
times that of the bytes, whatever they contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats

TYPES = {b"B": "<u1", b"H": "<u2", b"I": "<u4", b"f": "<f4", b"d": "<f8"}
"""The first byte, and the type of the numbers: the smallest that has them exactly. Journals have it."""
AT_ONCE = 32  # states that are decoded together
SIZES = np.array([np.dtype(TYPES[bytes((code,))]).itemsize if bytes((code,)) in TYPES else 0 for code in range(256)])
"""The bytes of a number, by the first byte."""
BITS = np.array([byte.bit_count() for byte in range(256)], np.uint8)
bits_of = getattr(np, "bitwise_count", BITS.__getitem__)  # NumPy 1 has no function for it


def encode(vector: Floats) -> bytes:
    """Return the bytes of a vector."""
    used = vector != 0  # also NaN
    numbers = vector[used]
    code = _smallest_type(numbers)
    return b"".join((code, np.packbits(used, bitorder="little").tobytes(), numbers.astype(TYPES[code]).tobytes()))


@np.errstate(all="ignore")  # a number that does not fit is compared afterwards
def _smallest_type(numbers: Floats) -> bytes:
    if not len(numbers):
        return b"B"
    largest = numbers.max()
    if largest < 1 << 32 and (numbers.astype(np.uint32) == numbers).all():
        return b"B" if largest < 1 << 8 else b"H" if largest < 1 << 16 else b"I"
    return b"f" if (numbers.astype(np.float32) == numbers).all() else b"d"


@np.errstate(all="ignore")  # sums that overflow are infinite
def summed(bodies: Sequence[bytes], width: int) -> Floats:
    """Return the sum of encoded vectors; raise ValueError if one is damaged or has another width."""
    total = np.zeros(width)
    for begin in range(0, len(bodies), AT_ONCE):
        used, numbers = _used_slots(bodies[begin : begin + AT_ONCE], width)
        # Most slots are empty: the numbers are added without a vector for each state.
        total += np.bincount(np.flatnonzero(used) % width, numbers, width)
    return total


def decoded(bodies: Sequence[bytes], width: int) -> Floats:
    """Return encoded vectors, one in a row; raise ValueError if one is damaged or has another width."""
    used, numbers = _used_slots(bodies, width)
    vectors = np.zeros(used.shape)
    vectors[used] = numbers
    return vectors


def intact(joined: bytes, lengths: NDArray[np.int64], width: int, start: int = 0) -> NDArray[np.bool_]:
    """Return which encoded vectors can be decoded and have this width.

    They are given as payloads that follow each other and their lengths. A vector begins at byte ``start`` of its
    payload.
    """
    size = (width + 7) // 8
    fits: NDArray[np.bool_] = lengths > start + size
    places = (np.cumsum(lengths) - lengths)[fits] + start
    if not len(places):
        return fits
    # An array of overlapping heads, one from every byte on: the type of the numbers, and the bits.
    heads = np.ndarray((len(joined) - size,), f"V{1 + size}", joined, 0, (1,))[places]
    heads = heads.view(np.uint8).reshape(len(places), 1 + size)
    counts = bits_of(heads[:, 1:]).sum(axis=1, dtype=np.int64)
    if width % 8:
        counts -= bits_of(heads[:, size] >> width % 8)  # bits behind the last slot
    of_number = SIZES[heads[:, 0]]
    fits[fits] = (of_number > 0) & (lengths[fits] - start == 1 + size + counts * of_number)
    return fits


def _used_slots(bodies: Sequence[bytes], width: int) -> tuple[NDArray[np.bool_], Floats]:
    """Return which slots of each vector have a number, and all numbers."""
    size = (width + 7) // 8
    if any(len(body) <= size for body in bodies):
        raise ValueError("a sparse state is too short")
    bits = np.frombuffer(b"".join([body[1 : 1 + size] for body in bodies]), np.uint8).reshape(len(bodies), size)
    used = np.unpackbits(bits, axis=1, bitorder="little", count=width).view(np.bool_)
    numbers = [_numbers(body, size, count) for body, count in zip(bodies, used.sum(axis=1).tolist(), strict=True)]
    return used, np.concatenate(numbers, dtype=np.float64)


def _numbers(body: bytes, size: int, count: int) -> NDArray[Any]:
    kind = TYPES.get(body[:1])
    if kind is None:
        raise ValueError("a sparse state has numbers of an unknown type")
    numbers = np.frombuffer(body, kind, offset=1 + size)  # ValueError for an odd length
    if len(numbers) != count:
        raise ValueError(f"a sparse state has {len(numbers)} numbers and bits for {count}")
    return numbers
