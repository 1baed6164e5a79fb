"""Names of the probe's metrics in the run's vocabulary, by catalogue id."""

from __future__ import annotations

from collections.abc import Iterable

from windsock.catalogue.patterns import Filled, fill
from windsock.catalogue.registry import REGISTRY, vocabulary_name

GIB = 2.0**30
COUNTS = {
    "system/tokens": "sum",
    "system/tokens_per_second": "sum",
    "system/tokens_per_second_per_device": "sum",
    "system/generated_tokens_per_second": "sum",
    "system/train_tokens_per_second": "sum",
    "system/episodes_per_second": "sum",
    "system/mfu/{model}": "sum",
    "system/samples": "total",
    "system/episodes": "total",
}
"""Metrics of which every process has a part, and how the parts add up (``windsock.probe.ranks``)."""
Value = tuple[str, Filled, float]
"""A catalogue id, the values of its placeholders, and the number in the catalogue's unit."""


class Names:
    """Cache of metric names in one vocabulary."""

    def __init__(self, vocabulary: str) -> None:
        self._vocabulary = vocabulary
        self.counts: dict[str, str] = {}  # the names so far whose values add up over processes, and how
        # The same names are written at every commit, and to find one is a search in the catalogue.
        self._known: dict[tuple[str, Filled], tuple[str, float]] = {}

    def named(self, values: Iterable[Value]) -> dict[str, float]:
        """Return values by name, in the vocabulary's unit."""
        found = {}
        for id, filled, value in values:
            name, factor = self._known.get((id, filled)) or self._find(id, filled)
            found[name] = value / factor
        return found

    def _find(self, id: str, filled: Filled) -> tuple[str, float]:
        name = vocabulary_name(REGISTRY.metric(id), self._vocabulary)
        found = self._known[id, filled] = fill(name.pattern, filled), name.factor or 1.0
        if id in COUNTS:
            self.counts[found[0]] = COUNTS[id]
        return found
