"""States side by side in one vector, so that all of them are computed and finished together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.quantities import BY_STATE

Floats = NDArray[np.float64]


class Packing:
    """The places of some states in a vector. There is one object for the same names, compared by identity."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.places: dict[str, slice] = {}
        start = 0
        for name in names:
            width = BY_STATE[name].kind.width
            self.places[name] = slice(start, start + width)
            start += width


@lru_cache(maxsize=1 << 10)  # a training has a few, as its steps have the same states; a reader asks for some of them
def packing_of(names: tuple[str, ...]) -> Packing:
    """Return the packing of states in this order."""
    return Packing(names)


@lru_cache(maxsize=256)
def _together(packing: Packing, more: tuple[str, ...]) -> Packing:
    return packing_of(packing.names + more)


class PackedStates(Mapping[str, Floats]):
    """States by name, in the order of their places in the vector. Read-only."""

    __slots__ = ("packing", "vector")

    def __init__(self, packing: Packing, vector: Floats) -> None:
        self.packing = packing
        self.vector = vector

    @classmethod
    def of(cls, states: Mapping[str, Floats]) -> PackedStates:
        """Return states as they are, or packed."""
        if isinstance(states, cls):
            return states
        return cls(packing_of(tuple(states)), np.concatenate([*states.values()]) if states else np.empty(0))

    def __getitem__(self, name: str) -> Floats:
        return self.vector[self.packing.places[name]]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a state, or the default."""
        place = self.packing.places.get(name)
        return default if place is None else self.vector[place]

    def __contains__(self, name: object) -> bool:
        return name in self.packing.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.packing.places)

    def __len__(self) -> int:
        return len(self.packing.places)

    def joined(self, more: Mapping[str, Floats]) -> PackedStates:
        """Return these states and others with further names."""
        if not more:
            return self
        others = [more.vector] if isinstance(more, PackedStates) else more.values()
        return PackedStates(_together(self.packing, tuple(more)), np.concatenate([self.vector, *others]))
