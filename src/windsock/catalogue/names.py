"""Recognition of logged names: the metric behind a name, and the framework that wrote a run's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from windsock.catalogue.patterns import Filled, fill
from windsock.catalogue.registry import REGISTRY, NameEntry
from windsock.catalogue.spec import ERAS, FRAMEWORKS, OURS, PRODUCERS, CatalogueError, Metric, MetricName

ROLL_TAGS = frozenset(f"@{tag}" for tag in ("mean", "max", "min", "p50", "p99", "std", "sum"))
TRINITY_TAGS = frozenset(f":{tag}" for tag in ("mean", "sum", "max", "min", "last"))
TRL_PREFIXES = ("train/", "eval/", "eval_", "test/", "test_")
"""Prefixes that transformers' tracker integrations add to every key of TRL."""

# The order of PRODUCERS and ERAS decides which meaning of an ambiguous name comes first.
_WRITERS = [(producer, era) for producer in PRODUCERS for era in ("", *ERAS.get(producer, ()))]
_ORDER = {writer: place for place, writer in enumerate(_WRITERS)}
_LIKELIEST = sorted(FRAMEWORKS, key=lambda producer: producer == "trinity")  # its trainer writes veRL's names
_MIN_KNOWN = 0.3  # share of a run's names that must be known to detect a producer
_GENERIC_WEIGHT = 0.25  # a name that only fits a catch-all pattern is weak evidence


@dataclass(frozen=True, slots=True)
class Match:
    """One meaning of a name: the metric, the declared name, the values of placeholders, and prefix and suffix."""

    metric: Metric
    name: MetricName
    filled: Filled = ()
    prefix: str = ""
    suffix: str = ""

    @property
    def id(self) -> str:
        """The metric's id with the placeholders filled in."""
        return fill(self.metric.id, self.filled)

    @property
    def evaluated(self) -> bool:
        """Whether the prefix marks the number as taken on an evaluation set."""
        return self.prefix.startswith(("eval", "test"))

    @property
    def source(self) -> str:
        """The producer of the name, with the era where the entry has one."""
        return self.name.source


@dataclass(frozen=True, slots=True)
class Recognition:
    """Meanings of a name: the most specific matches, windsock's first. Empty for an unknown name."""

    name: str
    matches: tuple[Match, ...]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The different metrics that the name can mean."""
        return tuple({match.metric.id: match.metric for match in self.matches}.values())

    @property
    def ambiguous(self) -> bool:
        """Whether the metric depends on the writer of the name."""
        return len(self.metrics) > 1

    @property
    def match(self) -> Match | None:
        """The first match when all matches are of one metric, else None."""
        return self.matches[0] if len(self.metrics) == 1 else None


@dataclass(frozen=True, slots=True)
class Detection:
    """The producer of a run's names; None where most names are unknown.

    ``confidence`` is the margin of this producer over the second one, times the share of known names; 0 when the
    second explains the names equally well.
    """

    producer: str | None
    era: str
    confidence: float
    evidence: tuple[str, ...]  # names that only this producer writes
    recognised: int
    total: int

    @property
    def source(self) -> str | None:
        """The producer, with the era where it is known: a ``source`` of ``recognise``."""
        return f"{self.producer}/{self.era}" if self.producer and self.era else self.producer


def recognise(name: str, source: str | None = None) -> Recognition:
    """Return the metrics that a logged name can mean.

    ``source`` is the writer: a framework (``verl``) or windsock in a vocabulary (``windsock:roll``), optionally with
    an era after a slash (``trl/grpo``, ``roll/2025-11``). Without it every writer is considered, and the most specific
    pattern wins.
    """
    if source is not None:
        check_source(source)
    # The version is part of the cache's key: ``define`` may change the meaning of a name.
    return _recognise(name, source, REGISTRY.version)


def check_source(source: str) -> None:
    """Raise when the producer or its era is unknown."""
    producer, _, era = source.partition("/")
    if producer not in PRODUCERS:
        raise CatalogueError(f"unknown source {source!r}; it must be one of {', '.join(PRODUCERS)}")
    if era and era not in ERAS.get(producer, ()):
        eras = ", ".join(f"{producer}/{known}" for known in ERAS.get(producer, ())) or f"{producer} alone"
        raise CatalogueError(f"unknown era in source {source!r}; it must be {eras}")


@lru_cache(maxsize=1 << 16)
def _recognise(name: str, source: str | None, version: int) -> Recognition:
    found = list(_ranked_matches(name, source))
    if not found:
        return Recognition(name, ())
    best = min(rank for rank, _ in found)
    matches = sorted((match for rank, match in found if rank == best), key=_place)
    return Recognition(name, tuple(_plainest(matches)))


def _plainest(matches: list[Match]) -> Iterator[Match]:
    """Drop redundant matches: with a prefix stripped although the name is known with it, and with a reducer kept in
    a placeholder although it was also stripped.
    """
    whole = {match.name.producer for match in matches if not match.prefix}
    tagged = {match.name for match in matches if match.suffix}
    for match in matches:
        if (match.prefix and match.name.producer in whole) or (not match.suffix and match.name in tagged):
            continue
        yield match


def _place(match: Match) -> int:
    return _ORDER[match.name.producer, match.name.era]


def _ranked_matches(name: str, source: str | None) -> Iterator[tuple[tuple[int, tuple[int, ...]], Match]]:
    """Yield every match with the rank of its pattern; a stripped prefix counts as a literal segment."""
    trie = REGISTRY.trie
    for entry, filled in [*trie.find(name), *(_spelled_out(name) if "{" in name else ())]:
        if source is None or _by(entry.name, source):
            yield entry.rank, Match(entry.metric, entry.name, filled)
    for stem, prefix, suffix, producer in _stripped(name):
        for entry, filled in trie.find(stem):
            if entry.name.producer == producer and (source is None or _by(entry.name, source)):
                total, kinds = entry.rank
                rank = (total, (0, *kinds) if prefix.endswith("/") else kinds)
                yield rank, Match(entry.metric, entry.name, filled, prefix, suffix)


def _spelled_out(name: str) -> Iterator[tuple[NameEntry, Filled]]:
    """Find a pattern by its own text, as the documentation prints it: ``time/{phase}/total``."""
    return ((entry, ()) for entry in REGISTRY.entries() if entry.name.pattern == name)


def _stripped(name: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name without the prefixes and suffixes that a framework adds, and the framework."""
    if "@" in name:
        stem, at, tag = name.rpartition("@")
        if at + tag in ROLL_TAGS:
            yield stem, "", at + tag, "roll"
    if ":" in name:
        stem, colon, tag = name.rpartition(":")
        if colon + tag in TRINITY_TAGS:
            yield stem, "", colon + tag, "trinity"
    if name.startswith(TRL_PREFIXES):
        prefix = next(prefix for prefix in TRL_PREFIXES if name.startswith(prefix))
        yield name[len(prefix) :], prefix, "", "trl"


def _by(name: MetricName, source: str) -> bool:
    producer, _, era = source.partition("/")
    if name.producer == "windsock":  # windsock writes ids in every vocabulary
        return producer.startswith("windsock")
    if producer == "windsock":
        return name.producer in OURS
    return name.producer == producer and (not era or name.era in ("", era))


def detect(names: Iterable[str]) -> Detection:
    """Detect from all names of a run which framework wrote them."""
    seen = list(dict.fromkeys(names))
    writers = {name: _writers(name) for name in seen}
    known = {name: found for name, found in writers.items() if found}
    scores: Counter[str] = Counter()
    for found in known.values():
        for producer, weight in found.items():
            scores[producer] += weight  # type: ignore[assignment]
    share = len(known) / len(seen) if seen else 0.0
    if share < _MIN_KNOWN:
        return Detection(None, "", 0.0, (), len(known), len(seen))
    (first, score), *others = sorted(scores.items(), key=lambda item: (-item[1], _LIKELIEST.index(item[0])))
    rival = others[0][1] if others else 0.0
    evidence = tuple(name for name, found in known.items() if set(found) == {first})
    return Detection(first, _era(known, first), share * (1.0 - rival / score), evidence, len(known), len(seen))


def _writers(name: str) -> dict[str, float]:
    return {
        match.name.producer: _GENERIC_WEIGHT if _generic(match) else 1.0
        for match in recognise(name).matches
        if match.name.producer in FRAMEWORKS
    }


def _generic(match: Match) -> bool:
    return (
        match.metric.id in ("time/{operation}", "pipeline/{key}", "sample/{key}") or "as reported" in match.metric.unit
    )


def _era(names: Iterable[str], producer: str) -> str:
    """Return the era that fits most names; "" when two fit equally many."""
    votes: Counter[str] = Counter()
    for name in names:
        eras = {match.name.era for match in recognise(name, producer).matches}
        if "" not in eras:  # a name that all eras write is no evidence
            votes.update(eras)
    ranked = votes.most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return ""
    return ranked[0][0]


def nearest(name: str, count: int = 5) -> list[str]:
    """Return known names that are similar to a name, the closest first."""
    import difflib

    known = {pattern.lower(): pattern for pattern in (entry.name.pattern for entry in REGISTRY.entries())}
    close = difflib.get_close_matches(name.lower(), known, count, 0.5)
    tail = name.lower().rpartition("/")[2]
    # Similarity of the whole misses a name in another family: its last part is often the same.
    containing = [pattern for pattern in known if len(tail) > 2 and tail in pattern]
    return [known[pattern] for pattern in dict.fromkeys((*close, *sorted(containing, key=len)))][:count]
