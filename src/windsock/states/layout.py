"""All states of a step in one vector.

A layout says which state, of which kind, lies where. Its hash is what travels with a vector: processes with equal
hashes merge their vectors slot by slot without knowing a single name, however many metrics there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from windsock.states.kinds import KINDS, StateKind

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Layout:
    """Named states in order. Two layouts with the same entries are the same, with the same hash."""

    entries: tuple[tuple[str, str], ...]  # name, kind

    @classmethod
    def of(cls, kinds: Mapping[str, StateKind]) -> Layout:
        """Lay out states, alphabetically, so that every process arrives at the same layout."""
        return cls(tuple(sorted((name, kind.name) for name, kind in kinds.items())))

    @cached_property
    def hash(self) -> int:
        """What identifies the layout: 8 bytes of BLAKE2b over its description."""
        return int.from_bytes(blake2b(self.describe().encode(), digest_size=8).digest(), "little")

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each state lies."""
        found, start = {}, 0
        for name, kind in self.entries:
            found[name] = slice(start, start + KINDS[kind].width)
            start += KINDS[kind].width
        return found

    @cached_property
    def width(self) -> int:
        """How long a vector is."""
        return sum(KINDS[kind].width for _, kind in self.entries)

    def describe(self) -> str:
        """Return the layout as JSON, for the journal: an array of names and kinds."""
        return json.dumps(self.entries, separators=(",", ":"))

    @classmethod
    def parse(cls, description: str) -> Layout:
        """Read what ``describe`` wrote."""
        return cls(tuple((str(name), str(kind)) for name, kind in json.loads(description)))

    def empty(self) -> Floats:
        """Return the vector of no data."""
        return np.concatenate([KINDS[kind].empty() for _, kind in self.entries]) if self.entries else np.empty(0)

    def pack(self, states: Mapping[str, Floats]) -> Floats:
        """Put states into a vector; those not given are empty."""
        vector = self.empty()
        for name, state in states.items():
            vector[self.places[name]] = state
        return vector

    def unpack(self, vector: Floats) -> dict[str, Floats]:
        """Take a vector apart."""
        return {name: vector[place] for name, place in self.places.items()}

    def merge(self, vectors: Sequence[Floats]) -> Floats:
        """Merge the vectors of many micro-batches, ranks or roles; of none, the empty vector."""
        return reduce(self._merge_two, vectors, self.empty())

    def _merge_two(self, a: Floats, b: Floats) -> Floats:
        merged = np.empty(self.width)
        for kind, slots in self._by_kind:
            merged[slots] = kind.merge(a[slots], b[slots])
        return merged

    @cached_property
    def _by_kind(self) -> list[tuple[StateKind, NDArray[np.int64]]]:
        """The slots of all states of each kind, as one array: merging takes as many calls as there are kinds."""
        slots: dict[str, list[range]] = {}
        for (_, kind), place in zip(self.entries, self.places.values(), strict=True):
            slots.setdefault(kind, []).append(range(place.start, place.stop))
        return [(KINDS[kind], np.array([list(r) for r in ranges])) for kind, ranges in slots.items()]
