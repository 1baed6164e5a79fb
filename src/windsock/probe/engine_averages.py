"""Values of a step from the readings of several engines."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping

from windsock.probe.engine_metrics import (
    CACHE_USE_MAX,
    GENERATED,
    HIT_RATE,
    PREEMPTIONS,
    PROMPT,
    REACHABLE,
    RUNNING,
    WAITING,
    Reading,
)
from windsock.probe.names import Value

ADD_UP = frozenset((RUNNING, WAITING, GENERATED, PROMPT, PREEMPTIONS))
"""Metrics whose values of several engines are added; of the others the mean, the largest or the quotient is taken."""


class Summary:
    """The readings of one metric of one engine in a step."""

    __slots__ = ("largest", "sum", "weight")

    def __init__(self) -> None:
        self.sum = self.weight = 0.0
        self.largest = float("-inf")

    def add(self, reading: Reading) -> None:
        """Add a reading."""
        self.sum += reading.value * reading.weight
        self.weight += reading.weight
        self.largest = max(self.largest, reading.value)

    def value(self, id: str) -> float:
        """Return the largest reading, the sum, or the weighted mean: what the metric is."""
        return self.largest if id == CACHE_USE_MAX else self.sum if id == PREEMPTIONS else self.sum / self.weight


class EngineAverages:
    """Readings of all engines since the last commit, in total, by engine and by phase."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a SIGTERM handler may finish the run at any point
        self._served: dict[str, set[str]] = {}  # by engine: the metrics of its last answer
        self._down: set[str] = set()
        self._found: dict[tuple[str, str | None], dict[str, Summary]] = {}  # by id and phase, then by engine

    def add_engine(self, engine: str) -> None:
        """Add an engine that will be read."""
        with self._lock:
            self._served.setdefault(engine, set())

    def add(
        self, engine: str, readings: Mapping[str, Reading], phases: Iterable[str], served: Iterable[str] = ()
    ) -> None:
        """Add the readings of an engine that answered, taken while these phases were open.

        ``served`` are the metrics that it has at present, also those without a reading yet: rates need two answers.
        """
        with self._lock:
            self._down.discard(engine)
            self._served[engine] = {*served, *readings}
            for id, reading in readings.items():
                for phase in (None, *phases):
                    self._summary(id, phase, engine).add(reading)
            self._summary(REACHABLE, None, engine).add(Reading(1.0))

    def add_failure(self, engine: str, is_down: bool) -> None:
        """Add that an engine did not answer; one that is down is not waited for."""
        with self._lock:
            if is_down:
                self._down.add(engine)
            self._summary(REACHABLE, None, engine).add(Reading(0.0))

    def _summary(self, id: str, phase: str | None, engine: str) -> Summary:
        return self._found.setdefault((id, phase), {}).setdefault(engine, Summary())

    def take(self) -> Iterator[Value]:
        """Yield the values of the step, by engine too if there are several, and reset."""
        with self._lock:
            for engine in self._down:  # while it is down it is asked ever more rarely
                if engine not in self._found.get((REACHABLE, None), ()):
                    self._summary(REACHABLE, None, engine).add(Reading(0.0))
            found, self._found = self._found, {}
            served = {engine: set(ids) for engine, ids in self._served.items() if engine not in self._down}
            several = len(self._served) > 1
        for (id, phase), by_engine in found.items():
            # A sum without an engine that was only not read in this step would look like a fall.
            if id not in ADD_UP or all(engine in by_engine for engine, ids in served.items() if id in ids):
                place = (id, ()) if phase is None else (f"{id}/during/{{phase}}", (("phase", phase),))
                yield *place, _over_engines(id, list(by_engine.values()))
            if several and phase is None:
                for engine, summary in by_engine.items():
                    yield f"{id}/by/{{engine}}", (("engine", engine),), summary.value(id)


def _over_engines(id: str, summaries: list[Summary]) -> float:
    values = [summary.value(id) for summary in summaries]
    if id in ADD_UP:
        return sum(values)
    if id == CACHE_USE_MAX:
        return max(values)
    if id == HIT_RATE:  # over all tokens that were looked up, on whichever engine
        return sum(summary.sum for summary in summaries) / sum(summary.weight for summary in summaries)
    return sum(values) / len(values)
