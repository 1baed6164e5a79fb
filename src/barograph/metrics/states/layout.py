"""All states of a step in one vector.

A layout has the name, the kind and the place of each state in the vector. A vector is stored with the hash of its
layout: vectors with equal hashes are merged slot by slot, without looking at the names. States that are mostly zero are
stored in few bytes: a bit for each slot, then the numbers of the slots that have one. A state of counts in bins has
hundreds of slots, most of them empty. The bits make the size of the vector at most 64 times that of the bytes, whatever
they contain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats
from barograph.metrics.states.kinds import KINDS, StateKind

TYPES = {b"B": "<u1", b"H": "<u2", b"I": "<u4", b"f": "<f4", b"d": "<f8"}
"""The first byte, and the type of the numbers: the smallest that has them exactly. Journals have it."""
AT_ONCE = 32  # states that are decoded together
SIZES = np.array([np.dtype(TYPES[bytes((code,))]).itemsize if bytes((code,)) in TYPES else 0 for code in range(256)])
"""The bytes of a number, by the first byte."""
BITS = np.array([byte.bit_count() for byte in range(256)], np.uint8)
bits_of = getattr(np, "bitwise_count", BITS.__getitem__)  # NumPy 1 has no function for it


def encode_sparse(vector: Floats) -> bytes:
    """Return the bytes of a vector that is mostly zero."""
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
def _summed(bodies: Sequence[bytes], width: int) -> Floats:
    """Return the sum of encoded vectors; raise ValueError if one is damaged or has another width."""
    total = np.zeros(width)
    for begin in range(0, len(bodies), AT_ONCE):
        used, numbers = _used_slots(bodies[begin : begin + AT_ONCE], width)
        # Most slots are empty: the numbers are added without a vector for each state.
        total += np.bincount(np.flatnonzero(used) % width, numbers, width)
    return total


def _decoded(bodies: Sequence[bytes], width: int) -> Floats:
    """Return encoded vectors, one in a row; raise ValueError if one is damaged or has another width."""
    used, numbers = _used_slots(bodies, width)
    vectors = np.zeros(used.shape)
    vectors[used] = numbers
    return vectors


def intact_sparse(joined: bytes, lengths: NDArray[np.int64], width: int, start: int = 0) -> NDArray[np.bool_]:
    """Return which encoded sparse vectors can be decoded and have this width.

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


# Without slots: cached_property stores its results in the instance's dict.
@dataclass(frozen=True)
class Layout:
    """Names and kinds of states, in order. Layouts with the same entries are equal and have the same hash."""

    entries: tuple[tuple[str, str], ...]  # name, kind

    @classmethod
    def from_kinds(cls, kinds: Mapping[str, StateKind]) -> Layout:
        """Return the layout of some states, in alphabetical order, so that every process has the same."""
        return cls(tuple(sorted((name, kind.name) for name, kind in kinds.items())))

    @cached_property
    def hash(self) -> int:
        """8 bytes of BLAKE2b over the description. Journals store it: it must never change."""
        return int.from_bytes(blake2b(self.describe().encode(), digest_size=8).digest(), "little")

    @cached_property
    def places(self) -> dict[str, slice]:
        """The slots of each state."""
        found, start = {}, 0
        for name, kind in self.entries:
            found[name] = slice(start, start + KINDS[kind].width)
            start += KINDS[kind].width
        return found

    @cached_property
    def width(self) -> int:
        """The length of a vector."""
        return sum(KINDS[kind].width for _, kind in self.entries)

    def describe(self) -> str:
        """Return the layout as JSON, as the journal stores it: an array of pairs of name and kind."""
        # The hash is over this text, so the separators must not change.
        return json.dumps(self.entries, separators=(",", ":"))

    def empty(self) -> Floats:
        """Return the vector of no data."""
        return np.concatenate([KINDS[kind].empty() for _, kind in self.entries]) if self.entries else np.empty(0)

    def unpack(self, vector: Floats) -> dict[str, Floats]:
        """Return the states of a vector by name."""
        return {name: vector[place] for name, place in self.places.items()}

    def merge(self, vectors: Sequence[Floats] | Floats) -> Floats:
        """Merge the vectors of micro-batches, ranks or roles; the result of none is the empty vector.

        A vector may also be a stack of vectors, such as one of each step: those in the same place are merged.
        """
        if not len(vectors):
            return self.empty()
        stacked = vectors if isinstance(vectors, np.ndarray) else np.stack(vectors)
        merged = np.empty(stacked.shape[1:])
        for kind, slots in self._by_kind:
            # All states of a kind are one stack: the cost is that of a few NumPy calls, not of one per state.
            merged[..., slots] = _merge_stack(kind, stacked[..., slots])
        return merged

    @cached_property
    def parts(self) -> tuple[tuple[Layout, slice | NDArray[np.int64]], ...]:
        """The layouts of the sparse states, of those of each domain, and last of the others, with their slots.

        Each has its own place in a journal, so that the layout of the others, which are always there, does not change
        from step to step.
        """
        groups: dict[tuple[int, str], list[tuple[str, str]]] = {}
        for name, kind in self.entries:
            _, of_domain, domain = name.rpartition("/by/")
            key = (0, "") if KINDS[kind].is_sparse else (1, domain) if of_domain else (2, "")
            groups.setdefault(key, []).append((name, kind))
        if len(groups) < 2:
            return ((self, slice(None)),)
        found = []
        for _, entries in sorted(groups.items()):
            slots = [np.arange(self.places[name].start, self.places[name].stop) for name, _ in entries]
            found.append((Layout(tuple(entries)), np.concatenate(slots)))
        return tuple(found)

    @cached_property
    def is_sparse(self) -> bool:
        """Whether all states are sparse."""
        return bool(self.entries) and all(KINDS[kind].is_sparse for _, kind in self.entries)

    def merge_encoded(self, bodies: Sequence[bytes]) -> Floats:
        """Merge encoded vectors; raise ValueError if one is damaged or of another layout."""
        if self.is_sparse:
            return _summed(bodies, self.width)
        return self.merge(list(_decoded(bodies, self.width)))

    @cached_property
    def _by_kind(self) -> list[tuple[StateKind, NDArray[np.int64]]]:
        """The slots of all states of each kind as one array, so that each kind is merged by one call."""
        slots: dict[str, list[range]] = {}
        for (_, kind), place in zip(self.entries, self.places.values(), strict=True):
            slots.setdefault(kind, []).append(range(place.start, place.stop))
        return [(KINDS[kind], np.array([list(r) for r in ranges])) for kind, ranges in slots.items()]


def _merge_stack(kind: StateKind, states: Floats) -> Floats:
    """Merge the states along the first axis: one half with the other, until one state is left.

    For n states this takes log(n) calls, and rounding errors grow with log(n) too.
    """
    while len(states) > 1:
        half = len(states) // 2
        merged = kind.merge(states[:half], states[half : 2 * half])
        states = np.concatenate([merged, states[2 * half :]])
    return np.asarray(states[0])
