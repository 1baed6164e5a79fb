"""Recognition of logged names: every metric that a name can mean, by the sources that write it.

``resolution`` decides between these meanings with what else is known about a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from barograph.catalogue.registry import REGISTRY, Filled, Found, fill, is_open
from barograph.catalogue.sources import TRL_PREFIXES, NameShape, Rank, heir_bits, own_bits, source_bits, sources_of
from barograph.catalogue.spec import ERAS, PRODUCERS, Metric, MetricName

ROLL_TAGS = frozenset(f"@{tag}" for tag in ("mean", "max", "min", "p50", "p99", "std", "sum"))

TRINITY_TAGS = frozenset(f":{tag}" for tag in ("mean", "sum", "max", "min", "last"))

_WITH_PREFIXES = ("trl", "transformers", "ms-swift", "llama-factory", "axolotl")

# The order of PRODUCERS and ERAS decides which meaning of an ambiguous name comes first.
_WRITERS = [(producer, era) for producer in PRODUCERS for era in ("", *ERAS.get(producer, ()))]

_ORDER = {writer: place for place, writer in enumerate(_WRITERS)}


# Tuples, which are made three times as fast as frozen dataclasses: a run may have many thousands of them.
class Match(NamedTuple):
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
    """Meanings of a name: the most specific matches, barograph's first. Empty for an unknown name."""

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


class Candidate(NamedTuple):
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

    ``source`` is the writer: a framework (``verl``) or barograph in a vocabulary (``barograph:roll``), optionally with
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
    """Return every meaning of a name that is the most specific one of at least one source, barograph's first."""
    return shaped(name)[1]


def shaped(name: str) -> tuple[NameShape, tuple[Candidate, ...]]:
    """Return the candidates of a name with their shape."""
    # The version is part of the cache's key: ``define`` may change the meaning of a name.
    return _shaped(name, REGISTRY.version)


@lru_cache(maxsize=1 << 16)
def _shaped(name: str, version: int) -> tuple[NameShape, tuple[Candidate, ...]]:
    found, filled = _find(name)
    shape = _shape(tuple(found))
    if not found:
        return shape, ()
    listed = []
    for place, rank, bits in shape.places:
        entry, prefix, suffix = found[place]
        listed.append(Candidate(Match(entry.metric, entry.name, filled[place], prefix, suffix), rank, bits))
    return shape, tuple(listed)


@lru_cache(maxsize=1 << 13)
def _shape(found: tuple[Found, ...]) -> NameShape:
    groups: dict[tuple[Rank, int], list[int]] = {}
    for place, one in enumerate(found):
        written = one[0].name
        # A name of one era is more specific than one of all eras, and that than one of another framework.
        groups.setdefault((_rank(one), 0 if written.era else 1), []).append(place)
        if heir_bits(written.producer):
            groups.setdefault((_rank(one), 2), []).append(place)
    chosen: dict[int, int] = {}
    taken = 0
    for rank, level in sorted(groups):
        here = 0
        for place in _plainest(found, groups[rank, level]):
            written = found[place][0].name
            bits = heir_bits(written.producer) if level == 2 else own_bits(written.producer, written.era)
            here |= bits
            if new := bits & ~taken:
                chosen[place] = chosen.get(place, 0) | new
        taken |= here
    ordered = sorted(chosen, key=lambda place: _ORDER[found[place][0].name.producer, found[place][0].name.era])
    strong = weak = 0
    for place, bits in chosen.items():
        if is_open(found[place][0].name.pattern):
            weak |= bits
        else:
            strong |= bits
    places = tuple((place, _rank(found[place]), chosen[place]) for place in ordered)
    return NameShape(places, strong, weak, len({found[place][0].metric.id for place in chosen}))


def _rank(found: Found) -> Rank:
    """Return the rank of the pattern; a stripped prefix counts as a literal segment."""
    total, kinds = found[0].rank
    return total, (0, *kinds) if found[1].endswith("/") else kinds


def _plainest(found: tuple[Found, ...], places: list[int]) -> Iterator[int]:
    """Drop redundant matches: with a prefix stripped although the name is known with it, and with a reducer kept in
    a placeholder although it was also stripped.
    """
    whole = {found[place][0].name.producer for place in places if not found[place][1]}
    tagged = {found[place][0].name for place in places if found[place][2]}
    for place in places:
        entry, prefix, suffix = found[place]
        if (prefix and entry.name.producer in whole) or (not suffix and entry.name in tagged):
            continue
        yield place


def _find(name: str) -> tuple[list[Found], list[Filled]]:
    """Return the declared names that a name fits, and the values of their placeholders."""
    trie = REGISTRY.trie
    hits = trie.find(name)
    if "{" in name:
        hits += _spelled_out(name)
    if "@" in name or ":" in name or name.startswith(TRL_PREFIXES):
        for stem, prefix, suffix, producers in _stripped(name):
            hits += [
                ((entry, prefix, suffix), values)
                for (entry, _, _), values in trie.find(stem)
                if entry.name.producer in producers
            ]
    return [one for one, _ in hits], [values for _, values in hits]


def _spelled_out(name: str) -> Iterator[tuple[Found, Filled]]:
    """Find a pattern by its own text, as the documentation prints it: ``time/{phase}/total``."""
    return (((entry, "", ""), ()) for entry in REGISTRY.entries() if entry.name.pattern == name)


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
