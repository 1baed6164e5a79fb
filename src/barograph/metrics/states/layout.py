"""All states of a step in one vector.

A layout has the name, the kind and the place of each state in the vector. A vector is stored with the hash of its
layout: vectors with equal hashes are merged slot by slot, without looking at the names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats
from barograph.metrics.states import sparse
from barograph.metrics.states.kinds import KINDS, StateKind


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

    @classmethod
    def parse(cls, description: str) -> Layout:
        """Return the layout of a description."""
        return cls(tuple((str(name), str(kind)) for name, kind in json.loads(description)))

    def empty(self) -> Floats:
        """Return the vector of no data."""
        return np.concatenate([KINDS[kind].empty() for _, kind in self.entries]) if self.entries else np.empty(0)

    def pack(self, states: Mapping[str, Floats]) -> Floats:
        """Return the vector of some states; the others are empty."""
        if self.entries and len(states) == len(self.entries):
            return np.concatenate([states[name] for name, _ in self.entries])
        vector = self.empty()
        for name, state in states.items():
            vector[self.places[name]] = state
        return vector

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
            return sparse.summed(bodies, self.width)
        return self.merge(list(sparse.decoded(bodies, self.width)))

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
