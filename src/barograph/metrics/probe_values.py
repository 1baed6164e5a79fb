"""Values of the probe by catalogue id: their names in the run's vocabulary, and the throughput of a step, its counts
over its duration.

There is no window and no lag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from barograph.catalogue.registry import REGISTRY, Filled, fill, vocabulary_name

GIB = 2.0**30

MAX_PHASES = 1000  # names of phases in one process that have metrics; a name has up to a hundred

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
"""Metrics of which every process has a part, and how the parts add up (``barograph.journal.merge.ranks``)."""

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


class PhaseNames:
    """The names of phases that have metrics: the first ones of a process. ``tell`` is called once, when one is not."""

    def __init__(self, tell: Callable[[Exception], None]) -> None:
        self._tell = tell
        self._told = False
        self._admitted: set[str] = set()

    def admit(self, name: str) -> bool:
        """Return whether a phase of this name has metrics."""
        if name in self._admitted:
            return True
        if len(self._admitted) < MAX_PHASES:
            self._admitted.add(name)
            return True
        if not self._told:
            self._told = True
            self._tell(
                ValueError(
                    f"more than {MAX_PHASES:,} different names of phases: {name!r} and further ones are recorded "
                    "without metrics; give phases of one kind one name"
                )
            )
        return False


def rates(
    amounts: Mapping[str, float], totals: Mapping[str, float], seconds: float, devices: int | None = None
) -> Iterator[Value]:
    """Yield a step's rates and counters.

    ``amounts`` are this step's counts and ``seconds`` its duration; ``totals`` are the counts since the run began.
    Values that were not counted are missing, and so are rates of a step of no duration, and rates
    per device where the number of devices is unknown.
    """
    tokens, episodes = amounts.get("tokens"), amounts.get("episodes")
    if tokens is not None:
        yield "system/tokens", (), tokens
        if seconds > 0:
            yield "system/tokens_per_second", (), tokens / seconds
            if devices:
                yield "system/tokens_per_second_per_device", (), tokens / seconds / devices
    if episodes is not None and seconds > 0:
        yield "system/episodes_per_second", (), episodes / seconds
    for counter in ("samples", "episodes"):
        if counter in totals:
            yield f"system/{counter}", (), totals[counter]
