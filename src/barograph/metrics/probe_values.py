"""Values of the probe by catalogue id: their names in the run's vocabulary, and the throughput of a step, its counts
over its duration. There is no window and no lag. Times of phases are intervals that may overlap: clipping, union, total
length, and the overlap of spans that nest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from barograph.catalogue.registry import REGISTRY, Filled, fill, vocabulary_name

Interval = tuple[float, float]
NestedSpan = tuple[int, int, str, float, float]
"""Id of a span, id of the one that it is in (0: none), lane, start and end."""

MAX_NESTING = 100  # spans in each other; a damaged file may say that they are so in a circle


def clip(intervals: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """Return the parts of the intervals between ``start`` and ``end``."""
    return [(max(a, start), min(b, end)) for a, b in intervals if min(b, end) > max(a, start)]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals that cover the same time, sorted."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    """Return the length of the intervals' union."""
    return sum(end - start for start, end in union(intervals))


def overlap(lanes: Iterable[Iterable[Interval]]) -> float:
    """Return how long two or more lanes are active at once."""
    changes = sorted((moment, change) for lane in lanes for a, b in union(lane) for moment, change in ((a, 1), (b, -1)))
    # At one moment, ends (-1) sort before starts (1): touching intervals do not overlap.
    total, running, before = 0.0, 0, 0.0
    for moment, change in changes:
        if running > 1:
            total += moment - before
        running, before = running + change, moment
    return total


def coverage(spans: Sequence[NestedSpan], start: float, end: float) -> tuple[float, float]:
    """Return how long spans are open between two moments, and how long those of two or more lanes are at once.

    A span and those inside it are not at once: of these only the innermost count.
    """
    inside = [
        (id, parent, lane, max(began, start), min(ended, end))
        for id, parent, lane, began, ended in spans
        if min(ended, end) > max(began, start)
    ]
    covered = length((began, ended) for *_, began, ended in inside)
    if len({lane for _, _, lane, _, _ in inside}) < 2:
        return covered, 0.0
    # Of all spans: one that ended before may have been between two that are open.
    parents = {id: parent for id, parent, *_ in spans}
    return covered, overlap(_innermost(inside, parents).values())


def outer_spans(spans: Iterable[NestedSpan], inner: Iterable[int]) -> list[NestedSpan]:
    """Return the spans with the ids of ``inner`` and those around them."""
    wanted, found = set(inner) - {0}, []
    # A span has a larger id than the one that it is in.
    for span in sorted(spans, reverse=True) if wanted else ():
        if span[0] in wanted:
            wanted.add(span[1])
            found.append(span)
    return found


def _innermost(spans: Sequence[NestedSpan], parents: Mapping[int, int]) -> dict[str, list[Interval]]:
    """Return by lane when one of its spans is open and no span inside that one is."""
    inner: dict[int, list[Interval]] = {}
    for id, parent, _, began, ended in spans:
        # All outer spans and not only the next: a span may end after the one that it is in.
        for _ in range(MAX_NESTING):
            if parent not in parents or parent == id:
                break
            inner.setdefault(parent, []).append((began, ended))
            parent = parents[parent]
    lanes: dict[str, list[Interval]] = {}
    for id, _, lane, began, ended in spans:
        lanes.setdefault(lane, []).extend(_gaps(union(inner.get(id, ())), began, ended))
    return lanes


def _gaps(covered: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """Return the time between two moments that sorted, disjoint intervals leave."""
    found = []
    for began, ended in covered:
        if began > start:
            found.append((start, min(began, end)))
        start = max(start, ended)
        if start >= end:
            return found
    return [*found, (start, end)]


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
