"""Recognition of logged names: every metric that a name can mean, by the sources that write it.

``resolution`` decides between these meanings with what else is known about a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from windsock.catalogue.patterns import Filled, fill, is_open
from windsock.catalogue.registry import REGISTRY, NameEntry
from windsock.catalogue.sources import heir_bits, own_bits, source_bits, sources_of
from windsock.catalogue.spec import ERAS, PRODUCERS, Metric, MetricName

ROLL_TAGS = frozenset(f"@{tag}" for tag in ("mean", "max", "min", "p50", "p99", "std", "sum"))
TRINITY_TAGS = frozenset(f":{tag}" for tag in ("mean", "sum", "max", "min", "last"))
TRL_PREFIXES = ("train/", "eval/", "eval_", "test/", "test_")
"""Prefixes that transformers adds to the keys of an evaluation, and its tracker integrations to every key."""
_WITH_PREFIXES = ("trl", "transformers", "ms-swift", "llama-factory")

# The order of PRODUCERS and ERAS decides which meaning of an ambiguous name comes first.
_WRITERS = [(producer, era) for producer in PRODUCERS for era in ("", *ERAS.get(producer, ()))]
_ORDER = {writer: place for place, writer in enumerate(_WRITERS)}

Rank = tuple[int, tuple[int, ...]]


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
class Candidate:
    """One meaning of a name, how general its pattern is, and the sources of which it is the most specific meaning."""

    match: Match
    rank: Rank
    bits: int

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources, the likeliest first."""
        return tuple(sources_of(self.bits))

    @property
    def generic(self) -> bool:
        """Whether the pattern takes any name with the same beginning, which says little about its writer."""
        return is_open(self.match.name.pattern)


def recognise(name: str, source: str | None = None) -> Recognition:
    """Return the metrics that a logged name can mean.

    ``source`` is the writer: a framework (``verl``) or windsock in a vocabulary (``windsock:roll``), optionally with
    a trainer or version after a slash (``trl/grpo``, ``verl/0.9``). Without it every writer is considered, and the
    most specific pattern wins.
    """
    # The version is part of the cache's key: ``define`` may change the meaning of a name.
    return _recognise(name, source, REGISTRY.version)


@lru_cache(maxsize=1 << 16)
def _recognise(name: str, source: str | None, version: int) -> Recognition:
    bits = -1 if source is None else source_bits(source)
    found = [candidate for candidate in candidates(name) if candidate.bits & bits]
    best = min((candidate.rank for candidate in found), default=None)
    return Recognition(name, tuple(candidate.match for candidate in found if candidate.rank == best))


def candidates(name: str) -> tuple[Candidate, ...]:
    """Return every meaning of a name that is the most specific one of at least one source, windsock's first."""
    return _candidates(name, REGISTRY.version)


@lru_cache(maxsize=1 << 16)
def _candidates(name: str, version: int) -> tuple[Candidate, ...]:
    matches = list(_ranked_matches(name))
    if len(matches) == 1:
        ((rank, match),) = matches
        producer = match.name.producer
        return (Candidate(match, rank, own_bits(producer, match.name.era) | heir_bits(producer)),)
    groups: dict[tuple[Rank, int], list[Match]] = {}
    for rank, match in matches:
        # A name of one era is more specific than one of all eras, and that than one of another framework.
        groups.setdefault((rank, 0 if match.name.era else 1), []).append(match)
        if heir_bits(match.name.producer):
            groups.setdefault((rank, 2), []).append(match)
    found: dict[int, tuple[Match, Rank, int]] = {}  # by identity: hashing a match takes long
    taken = 0
    for rank, level in sorted(groups):
        here = 0
        for match in _plainest(groups[rank, level]):
            written = match.name
            bits = heir_bits(written.producer) if level == 2 else own_bits(written.producer, written.era)
            here |= bits
            if new := bits & ~taken:
                earlier = found[id(match)][2] if id(match) in found else 0
                found[id(match)] = (match, rank, earlier | new)
        taken |= here
    return tuple(sorted((Candidate(*each) for each in found.values()), key=lambda one: _place(one.match)))


def _plainest(matches: list[Match]) -> Iterator[Match]:
    """Drop redundant matches: with a prefix stripped although the name is known with it, and with a reducer kept in
    a placeholder although it was also stripped.
    """
    if not any(match.prefix or match.suffix for match in matches):
        yield from matches
        return
    whole = {match.name.producer for match in matches if not match.prefix}
    tagged = {match.name for match in matches if match.suffix}
    for match in matches:
        if (match.prefix and match.name.producer in whole) or (not match.suffix and match.name in tagged):
            continue
        yield match


def _place(match: Match) -> int:
    return _ORDER[match.name.producer, match.name.era]


def _ranked_matches(name: str) -> Iterator[tuple[Rank, Match]]:
    """Yield every match with the rank of its pattern; a stripped prefix counts as a literal segment."""
    trie = REGISTRY.trie
    for entry, filled in [*trie.find(name), *(_spelled_out(name) if "{" in name else ())]:
        yield entry.rank, Match(entry.metric, entry.name, filled)
    for stem, prefix, suffix, producers in _stripped(name):
        for entry, filled in trie.find(stem):
            if entry.name.producer in producers:
                total, kinds = entry.rank
                rank = (total, (0, *kinds) if prefix.endswith("/") else kinds)
                yield rank, Match(entry.metric, entry.name, filled, prefix, suffix)


def _spelled_out(name: str) -> Iterator[tuple[NameEntry, Filled]]:
    """Find a pattern by its own text, as the documentation prints it: ``time/{phase}/total``."""
    return ((entry, ()) for entry in REGISTRY.entries() if entry.name.pattern == name)


def _stripped(name: str) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the name without the prefixes and suffixes that frameworks add, and these frameworks."""
    if "@" in name:
        stem, at, tag = name.rpartition("@")
        if at + tag in ROLL_TAGS:
            yield stem, "", at + tag, ("roll",)
    if ":" in name:
        stem, colon, tag = name.rpartition(":")
        if colon + tag in TRINITY_TAGS:
            yield stem, "", colon + tag, ("trinity",)
    if name.startswith(TRL_PREFIXES):
        prefix = next(prefix for prefix in TRL_PREFIXES if name.startswith(prefix))
        yield name[len(prefix) :], prefix, "", _WITH_PREFIXES


def nearest(name: str, count: int = 5) -> list[str]:
    """Return known names that are similar to a name, the closest first."""
    import difflib

    known = {pattern.lower(): pattern for pattern in (entry.name.pattern for entry in REGISTRY.entries())}
    close = difflib.get_close_matches(name.lower(), known, count, 0.5)
    tail = name.lower().rpartition("/")[2]
    # Similarity of the whole misses a name in another family: its last part is often the same.
    containing = [pattern for pattern in known if len(tail) > 2 and tail in pattern]
    return [known[pattern] for pattern in dict.fromkeys((*close, *sorted(containing, key=len)))][:count]
