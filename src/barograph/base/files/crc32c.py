"""CRC-32C (Castagnoli) of record files, in NumPy: the standard library has only CRC-32.

A CRC is linear: the CRC of a message is the exclusive or of the contributions of its bytes, which depend on their
positions. Chunks of 64 bytes are reduced at once with a table of contributions from each of the 64 positions. The
results are reduced 64 at a time with a table for positions 64 bytes apart, and so on.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

POLYNOMIAL = 0x82F63B78
WIDTH = 64

Words = npt.NDArray[np.uint32]


@cache
def _bytes_table() -> Words:
    """Return the CRC of each single byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ POLYNOMIAL, table >> 1).astype(np.uint32)
    return table


@cache
def _int_table() -> list[int]:
    return [int(word) for word in _bytes_table()]


def _identity() -> Words:
    return (np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]).astype(np.uint32)


@cache
def _shift(level: int) -> Words:
    """Return, for each of a CRC's four bytes and each value, the CRC after 64**level further zero bytes."""
    if level == 0:
        by_one: Words = (_identity() >> 8) ^ _bytes_table()[_identity() & 0xFF]
        return by_one
    words = _shift(level - 1)
    for _ in range(WIDTH - 1):
        words = _apply(_shift(level - 1), words)
    return words


def _apply(shift: Words, words: Words) -> Words:
    parts = [shift[index][(words >> (8 * index)) & 0xFF] for index in range(4)]
    out: Words = np.bitwise_xor.reduce(parts)
    return out


@cache
def _contributions(level: int) -> tuple[Words, npt.NDArray[np.intp]]:
    """Return the table of contributions from the 64 positions of a level, and the start of each position's entries."""
    tables = [_bytes_table()[None] if level == 0 else _identity()]
    for _ in range(WIDTH - 1):
        tables.append(_apply(_shift(level), tables[-1]))
    table = np.stack(tables[::-1]).reshape(-1)
    return table, np.arange(0, len(table), 256, dtype=np.intp)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of ``data``."""
    # A record's length has 8 bytes, for which a plain loop is faster.
    if len(data) < WIDTH:
        return _bytewise(data)
    count = -len(data) % WIDTH
    padded = np.zeros(count + len(data), dtype=np.uint8)  # leading zeros change nothing, as the register starts at 0 …
    padded[count:] = np.frombuffer(data, dtype=np.uint8)
    padded[count : count + 4] ^= 0xFF  # … and this replaces its initial value of all ones
    table, starts = _contributions(0)
    words = np.bitwise_xor.reduce(table[padded.reshape(-1, WIDTH) + starts], axis=1)
    level = 1
    while len(words) > 1:
        words = _combine(words, level)
        level += 1
    return int(words[0]) ^ 0xFFFFFFFF


def _combine(words: Words, level: int) -> Words:
    """Combine the CRCs of adjacent chunks, 64 at a time."""
    # Little-endian on every machine: the tables have the lowest byte of a word first.
    padded = np.zeros(len(words) + -len(words) % WIDTH, dtype="<u4")
    padded[len(padded) - len(words) :] = words
    table, starts = _contributions(level)
    reduced: Words = np.bitwise_xor.reduce(table[padded.view(np.uint8).reshape(-1, 4 * WIDTH) + starts], axis=1)
    return reduced


def _bytewise(data: bytes) -> int:
    table, crc = _int_table(), 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
