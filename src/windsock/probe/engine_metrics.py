"""Metrics of inference engines: what vLLM and SGLang serve under ``/metrics``, as readings by catalogue id.

Names and labels are those of vLLM 0.8 to 0.28 (V0 and V1) and of SGLang 0.4.4 to 0.5.18. Counters are differences
of two expositions; an engine that restarted in between has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from windsock.probe.exposition import Sample, parse

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


class Reading(NamedTuple):
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


def readings(now: Exposition, before: Exposition | None) -> dict[str, Reading]:
    """Return readings by catalogue id: gauges, and rates and counts since the answer before."""
    found = {id: Reading(value) for id, value in now.gauges.items()}
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
            found[id] = Reading(more) if id == PREEMPTIONS else Reading(more / seconds, seconds)
    if pair is not None:
        hits, queries = _increase(now, before, pair.hits), _increase(now, before, pair.queries)
        if 0 < queries >= hits:
            found[HIT_RATE] = Reading(hits / queries, queries)
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
