"""Metrics of inference engines: what vLLM and SGLang serve under ``/metrics``, as readings by catalogue id, and the
values of a step from the readings of several engines.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barograph.metrics.probe_values import Value

Sample = tuple[dict[str, str], float]
"""Labels and value; escapes in labels are left as they are."""

NAME = re.compile(r"[A-Za-z_:][\w:]*+", re.ASCII)

# Possessive: a line without an end costs no more than its length.
LINE = re.compile(r'[ \t]*+(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\})?+[ \t]*+(?P<value>[^\s{#]++)', re.ASCII)

LABEL = re.compile(r'([A-Za-z_]\w*+)[ \t]*+=[ \t]*+"((?:[^"\\]|\\.)*+)"', re.ASCII)


def parse(text: str, names: Collection[str]) -> dict[str, list[Sample]]:
    """Return the samples of the named metrics; a line that does not follow the format is skipped."""
    found: dict[str, list[Sample]] = {}
    for line in text.split("\n"):
        name = NAME.match(line)
        if name is None or name[0] not in names:
            continue
        rest = LINE.match(line, name.end())
        if rest is None:
            continue
        try:
            value = float(rest["value"])
        except ValueError:
            continue
        found.setdefault(name[0], []).append((dict(LABEL.findall(rest["labels"] or "")), value))
    return found


RUNNING = "engine/requests/running"

WAITING = "engine/requests/waiting"

CACHE_USE = "engine/kv_cache_use"

CACHE_USE_MAX = "engine/kv_cache_use/max"

PREEMPTIONS = "engine/preemptions"

HIT_RATE = "engine/prefix_cache_hit_rate"

GENERATED = "engine/tokens_per_second/generated"

PROMPT = "engine/tokens_per_second/prompt"

REACHABLE = "engine/reachable"


class Counter(NamedTuple):
    """A counter of an engine, or some of its series."""

    name: str
    modes: tuple[str, ...] = ()  # values of the label ``mode`` that count; empty: all


class HitRate(NamedTuple):
    """Two counters whose quotient is the hit rate."""

    hits: Counter
    queries: Counter


class EngineReading(NamedTuple):
    """A value, and its weight in the mean of a step."""

    value: float
    weight: float = 1.0


SGLANG_TOKENS = "sglang:realtime_tokens_total"  # since 0.5.7; the older counters grow when a request ends

# Of each list the first that an engine serves is read.
COUNTS = {
    RUNNING: ("vllm:num_requests_running", "sglang:num_running_reqs"),
    WAITING: ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
}

SHARES = {
    CACHE_USE: ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
    HIT_RATE: ("sglang:cache_hit_rate",),  # of its last prefill; only where there are no counters
}

RATES = {
    GENERATED: (
        Counter("vllm:generation_tokens_total"),
        Counter(SGLANG_TOKENS, ("decode",)),
        Counter("sglang:generation_tokens_total"),
    ),
    PROMPT: (
        Counter("vllm:prompt_tokens_total"),
        Counter(SGLANG_TOKENS, ("prefill_compute", "prefill_cache")),
        Counter("sglang:prompt_tokens_total"),
    ),
    PREEMPTIONS: (Counter("vllm:num_preemptions_total"), Counter("sglang:num_retracted_requests_total")),
}

HIT_RATES = (
    HitRate(Counter("vllm:prefix_cache_hits_total"), Counter("vllm:prefix_cache_queries_total")),
    HitRate(Counter("vllm:gpu_prefix_cache_hits_total"), Counter("vllm:gpu_prefix_cache_queries_total")),
    HitRate(Counter(SGLANG_TOKENS, ("prefill_cache",)), Counter(SGLANG_TOKENS, ("prefill_compute", "prefill_cache"))),
    HitRate(Counter("sglang:cached_tokens_total"), Counter("sglang:prompt_tokens_total")),
)

COUNTERS = frozenset(
    (*(counter for several in RATES.values() for counter in several), *(one for pair in HIT_RATES for one in pair))
)

NAMES = frozenset(
    (*(name for several in (*COUNTS.values(), *SHARES.values()) for name in several), *(one.name for one in COUNTERS))
)

PREFIXES = ("vllm:", "sglang:")

SAME_REQUESTS = frozenset(("tp_rank", "pp_rank", "moe_ep_rank"))
"""Labels of SGLang's processes that work on the same requests: of their series the largest counts."""

Series = Mapping[frozenset[tuple[str, str]], float]


@dataclass(frozen=True, slots=True)
class Exposition:
    """What one answer of an engine contains."""

    time: float  # of the answer, by a monotonic clock
    gauges: Mapping[str, float]  # by catalogue id
    counters: Mapping[Counter, Series]

    def served(self) -> set[str]:
        """Return the ids of the gauges and rates that the engine has at present."""
        rates = {id for id, counters in RATES.items() if any(counter in self.counters for counter in counters)}
        return rates | self.gauges.keys()


def read(text: str, time: float) -> Exposition | None:
    """Return the contents of an answer, or None if it is not that of an engine."""
    if not any(prefix in text for prefix in PREFIXES):
        return None
    found = parse(text, NAMES)
    gauges: dict[str, float] = {}
    for ids, is_share in ((COUNTS, False), (SHARES, True)):
        for id, names in ids.items():
            values = next((series for name in names if (series := _series(found.get(name, ())).values())), None)
            if values:
                gauges[id] = sum(values) / (len(values) if is_share else 1)
    counters = {counter: _series(found.get(counter.name, ()), counter.modes) for counter in COUNTERS}
    return Exposition(time, gauges, {counter: series for counter, series in counters.items() if series})


def _series(samples: Iterable[Sample], modes: tuple[str, ...] = ()) -> dict[frozenset[tuple[str, str]], float]:
    """Return the finite samples by the labels that tell requests apart."""
    found: dict[frozenset[tuple[str, str]], float] = {}
    for labels, value in samples:
        # SGLang serves the total with an empty priority, and the parts with a number.
        if labels.get("priority") or (modes and labels.get("mode") not in modes) or not math.isfinite(value):
            continue
        key = frozenset(item for item in labels.items() if item[0] not in SAME_REQUESTS)
        found[key] = max(value, found.get(key, value))
    return found


def readings(now: Exposition, before: Exposition | None) -> dict[str, EngineReading]:
    """Return readings by catalogue id: gauges, and rates and counts since the answer before."""
    found = {id: EngineReading(value) for id, value in now.gauges.items()}
    if CACHE_USE in found:
        found[CACHE_USE_MAX] = found[CACHE_USE]
    pair = next((pair for pair in HIT_RATES if pair.queries in now.counters and _has_hits(now, pair)), None)
    if pair is not None:
        found.pop(HIT_RATE, None)
    if before is None or now.time <= before.time or _restarted(now, before):
        return found
    seconds = now.time - before.time
    for id, counters in RATES.items():
        counter = next((one for one in counters if one in now.counters), None)
        if counter is not None:
            more = _increase(now, before, counter)
            found[id] = EngineReading(more) if id == PREEMPTIONS else EngineReading(more / seconds, seconds)
    if pair is not None:
        hits, queries = _increase(now, before, pair.hits), _increase(now, before, pair.queries)
        if 0 < queries >= hits:
            found[HIT_RATE] = EngineReading(hits / queries, queries)
    return found


def _has_hits(now: Exposition, pair: HitRate) -> bool:
    # SGLang makes a series with its first event: none of this mode are no hits so far.
    return pair.hits in now.counters or pair.hits.name == pair.queries.name


def _restarted(now: Exposition, before: Exposition) -> bool:
    """Return whether a counter has fallen or vanished: what was counted in between is not known."""
    return any(
        not series.keys() <= now.counters.get(counter, {}).keys()
        or any(now.counters[counter][key] < value for key, value in series.items())
        for counter, series in before.counters.items()
    )


def _increase(now: Exposition, before: Exposition, counter: Counter) -> float:
    """Return how much a counter has grown; one that was absent has grown from 0."""
    series, old = now.counters.get(counter, {}), before.counters.get(counter)
    if old is None:
        return sum(series.values())
    # A further series may be that of a server which has run for long: it counts from its second reading.
    return sum(value - old[key] for key, value in series.items() if key in old)


ADD_UP = frozenset((RUNNING, WAITING, GENERATED, PROMPT, PREEMPTIONS))
"""Metrics whose values of several engines are added; of the others the mean, the largest or the quotient is taken."""


class Summary:
    """The readings of one metric of one engine in a step."""

    __slots__ = ("largest", "sum", "weight")

    def __init__(self) -> None:
        self.sum = self.weight = 0.0
        self.largest = float("-inf")

    def add(self, reading: EngineReading) -> None:
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
        self, engine: str, readings: Mapping[str, EngineReading], phases: Iterable[str], served: Iterable[str] = ()
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
            self._summary(REACHABLE, None, engine).add(EngineReading(1.0))

    def add_failure(self, engine: str, is_down: bool) -> None:
        """Add that an engine did not answer; one that is down is not waited for."""
        with self._lock:
            if is_down:
                self._down.add(engine)
            self._summary(REACHABLE, None, engine).add(EngineReading(0.0))

    def _summary(self, id: str, phase: str | None, engine: str) -> Summary:
        return self._found.setdefault((id, phase), {}).setdefault(engine, Summary())

    def take(self) -> Iterator[Value]:
        """Yield the values of the step, by engine too if there are several, and reset."""
        with self._lock:
            for engine in self._down:  # while it is down it is asked ever more rarely
                if engine not in self._found.get((REACHABLE, None), ()):
                    self._summary(REACHABLE, None, engine).add(EngineReading(0.0))
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
