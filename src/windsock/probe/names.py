"""What the probe's values are called: by catalogue id, in the words of the run's vocabulary."""

from __future__ import annotations

from collections.abc import Iterable

from windsock.catalogue.patterns import Filled, fill
from windsock.catalogue.registry import REGISTRY, vocabulary_name

GIB = 2.0**30
Value = tuple[str, Filled, float]
"""A catalogue id, what its placeholders stand for, and the value in the catalogue's unit."""


class Names:
    """Names values in one vocabulary, and remembers how."""

    def __init__(self, vocabulary: str) -> None:
        self._vocabulary = vocabulary
        self._known: dict[tuple[str, Filled], tuple[str, float]] = {}

    def named(self, values: Iterable[Value]) -> dict[str, float]:
        """Return values by name, in the unit that the vocabulary documents."""
        found = {}
        for id, filled, value in values:
            name, factor = self._known.get((id, filled)) or self._find(id, filled)
            found[name] = value / factor
        return found

    def _find(self, id: str, filled: Filled) -> tuple[str, float]:
        name = vocabulary_name(REGISTRY.metric(id), self._vocabulary)
        found = self._known[id, filled] = fill(name.pattern, filled), name.factor or 1.0
        return found
