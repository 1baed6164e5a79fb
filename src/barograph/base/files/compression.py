"""Compression with a bounded ratio, and decompression and JSON with a bounded cost.

A few bytes of a damaged or hostile file can unpack to more than the memory holds, and a few megabytes of JSON can
become gigabytes of objects. What ``pack`` writes stays within the bounds of ``Budget``, however well it compresses.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

MAX_RATIO = 64  # of unpacked to packed bytes, over all that a reader unpacks
FREE_BYTES = 32 << 20  # that a reader unpacks whatever the ratio: files of version 0.1 have frames above it
MAX_DIRECT = 1 << 20  # bytes of JSON that are parsed without a look: their objects fit into the memory
MAX_VALUES = 720_000  # of larger JSON; MAX_DIRECT bytes cannot have more
WINDOW = 1 << 18  # bytes of JSON that are looked at together


OVER_BUDGET = f"more than {MAX_RATIO} times the bytes on the disk when unpacked"


class UnpackedTooLargeError(ValueError):
    """Compressed bytes that unpack to more than their limit."""


class Budget:
    """The bytes that one reader may still unpack, in proportion to the packed bytes that it was given."""

    def __init__(self, packed: int = 0, spent: int = 0) -> None:
        self.left = FREE_BYTES + MAX_RATIO * packed - spent

    def unpack(self, packed: bytes, limit: int) -> bytes:
        """Return unpacked bytes within a limit and the budget; raise ValueError for others."""
        self.left += MAX_RATIO * len(packed)
        if self.left <= 0:
            raise ValueError(OVER_BUDGET)
        bound = min(limit, self.left)
        try:
            body = unpack(packed, bound)
        except UnpackedTooLargeError:
            self.left -= bound  # it was unpacked up to there
            raise ValueError(OVER_BUDGET if bound < limit else f"more than {limit:,} bytes when unpacked") from None
        self.left -= len(body)
        return body

    def spend(self, cost: int) -> None:
        """Subtract further cost; raise ValueError if there is not enough left."""
        self.left -= cost
        if self.left < 0:
            self.left = 0
            raise ValueError(OVER_BUDGET)


def pack(body: bytes, level: int, cost: int = 0) -> bytes:
    """Compress bytes by a ratio that readers accept; ``cost`` is what they count, if it is more than the bytes."""
    packed = zlib.compress(body, level)
    for strategy, fallback in ((zlib.Z_HUFFMAN_ONLY, level), (zlib.Z_DEFAULT_STRATEGY, 0)):
        if max(len(body), cost) <= MAX_RATIO * len(packed):
            break
        # Without matches a byte takes one bit or more.
        packer = zlib.compressobj(fallback, strategy=strategy)
        packed = packer.compress(body) + packer.flush()
    return packed


def unpack(packed: bytes, limit: int) -> bytes:
    """Decompress bytes; raise ValueError if they are damaged or more than ``limit``."""
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(packed, limit + 1)  # one more, because zlib takes 0 for no limit
    except zlib.error as problem:
        raise ValueError(f"the compressed bytes are damaged: {problem}") from problem
    if len(body) > limit:
        raise UnpackedTooLargeError(f"more than {limit:,} bytes when unpacked")
    if not unpacker.eof:
        raise ValueError("the compressed bytes are cut off")
    return body


def load_json(text: bytes, max_values: int = MAX_VALUES) -> Any:
    """Parse JSON; raise ValueError if it is malformed, nested too deeply, or has too many values."""
    if len(text) > MAX_DIRECT and count_values(text) > max_values:
        raise ValueError(f"more than {max_values:,} values of JSON")
    try:
        return json.loads(text)
    except RecursionError as problem:
        raise ValueError("JSON is nested too deeply") from problem


def count_values(text: bytes) -> int:
    """Return a number that is not below the number of values in JSON."""
    # Pairs of backslashes go first: a quote after them is not escaped. What is left of a text has no escaped quotes.
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, is_inside = 1, 0
    # By pieces, because a list of all strings can be much larger than the text.
    for begin in range(0, len(plain), WINDOW):
        parts = plain[begin : begin + WINDOW].split(b'"')
        bare = b"".join(parts[is_inside::2])
        count += sum(map(bare.count, (b"[", b"{", b",", b":")))
        is_inside ^= (len(parts) - 1) % 2
    return count
