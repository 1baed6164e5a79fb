"""What the probe's values are called: by catalogue id, in the words of the run's vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from windsock.catalogue.patterns import Filled, fill
from windsock.catalogue.registry import written
from windsock.catalogue.spec import Metric

GIB = 2.0**30
Value = tuple[str, Filled, float]
"""A catalogue id, what its placeholders stand for, and the value in the catalogue's unit."""


@cache
def _metrics() -> dict[str, Metric]:
    """Return the families that the probe writes; the others need not be loaded for it."""
    from windsock.catalogue import memory, system, time

    return {metric.id: metric for family in (system, time, memory) for metric in family.METRICS}


def metric(id: str) -> Metric:
    """Return what the catalogue says of one of the probe's metrics."""
    return _metrics()[id]


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
        name = written(metric(id), self._vocabulary)
        found = self._known[id, filled] = fill(name.pattern, filled), name.factor or 1.0
        return found
