"""The vocabularies: which metric a logged name stands for, who wrote it, and whose names a whole run uses."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from windsock.catalogue.patterns import Filled, fill
from windsock.catalogue.registry import REGISTRY, Entry
from windsock.catalogue.spec import ERAS, FRAMEWORKS, OURS, PRODUCERS, CatalogueError, Metric, Name

ROLL_TAGS = frozenset(f"@{tag}" for tag in ("mean", "max", "min", "p50", "p99", "std", "sum"))
TRINITY_TAGS = frozenset(f":{tag}" for tag in ("mean", "sum", "max", "min", "last"))
TRL_PREFIXES = ("train/", "eval/", "eval_", "test/", "test_")
"""What transformers' integrations put before every key of TRL."""

_WRITERS = [(producer, era) for producer in PRODUCERS for era in ("", *ERAS.get(producer, ()))]
_ORDER = {writer: place for place, writer in enumerate(_WRITERS)}
_LIKELIEST = sorted(FRAMEWORKS, key=lambda producer: producer == "trinity")  # its trainer writes veRL's names
_ENOUGH = 0.3  # the share of a run's names that must be known before anybody is named
_GENERIC_WEIGHT = 0.25  # a name that only fits a catch-all pattern says little about who wrote it


@dataclass(frozen=True, slots=True)
class Match:
    """One reading of a name: the metric, the entry that says so, and what was taken off or filled in."""

    metric: Metric
    name: Name
    filled: Filled = ()
    prefix: str = ""
    suffix: str = ""

    @property
    def id(self) -> str:
        """The metric's id with the placeholders filled in."""
        return fill(self.metric.id, self.filled)

    @property
    def evaluated(self) -> bool:
        """Whether the number was taken on an evaluation set, which the prefix says."""
        return self.prefix.startswith(("eval", "test"))

    @property
    def source(self) -> str:
        """Who wrote the name, as ``recognise`` takes it: the producer, with the era where the entry has one."""
        return f"{self.name.producer}/{self.name.era}" if self.name.era else self.name.producer


@dataclass(frozen=True, slots=True)
class Recognition:
    """What a name can mean: every reading that fits best, ours first. Empty when nobody is known to write it."""

    name: str
    matches: tuple[Match, ...]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The different metrics that the name can stand for."""
        return tuple({match.metric.id: match.metric for match in self.matches}.values())

    @property
    def ambiguous(self) -> bool:
        """Whether it depends on the writer which metric is meant."""
        return len(self.metrics) > 1

    @property
    def match(self) -> Match | None:
        """The first reading when all readings are of one metric, else None."""
        return self.matches[0] if len(self.metrics) == 1 else None


@dataclass(frozen=True, slots=True)
class Detection:
    """Whose names a run uses, or nobody's where most are unknown.

    ``confidence`` is how much better this producer explains the names than the next one, times the share of names that
    are known; 0 when another explains them as well.
    """

    producer: str | None
    era: str
    confidence: float
    evidence: tuple[str, ...]  # names that only this producer writes
    recognised: int
    total: int

    @property
    def source(self) -> str | None:
        """The producer, with the era where it is known, as ``recognise`` takes it."""
        return f"{self.producer}/{self.era}" if self.producer and self.era else self.producer


def recognise(name: str, source: str | None = None) -> Recognition:
    """Say what a logged name stands for.

    ``source`` says who wrote it: a framework (``verl``), one of ours (``windsock:roll``), either with an era behind a
    slash (``trl/grpo``, ``roll/2025-11``). Without it every writer is considered, and the most specific pattern wins.
    """
    if source is not None:
        check_source(source)
    return _recognise(name, source, REGISTRY.version)


def check_source(source: str) -> None:
    """Raise when nobody by that name, or no such era of theirs, is known."""
    producer, _, era = source.partition("/")
    if producer not in PRODUCERS:
        raise CatalogueError(f"source {source!r} is unknown; it must be one of {', '.join(PRODUCERS)}")
    if era and era not in ERAS.get(producer, ()):
        eras = ", ".join(f"{producer}/{known}" for known in ERAS.get(producer, ())) or f"{producer} alone"
        raise CatalogueError(f"source {source!r} names an unknown era; it must be {eras}")


@lru_cache(maxsize=1 << 16)
def _recognise(name: str, source: str | None, version: int) -> Recognition:
    found = list(_readings(name, source))
    if not found:
        return Recognition(name, ())
    best = min(rank for rank, _ in found)
    matches = sorted((match for rank, match in found if rank == best), key=_place)
    return Recognition(name, tuple(_plainest(matches)))


def _plainest(matches: list[Match]) -> Iterator[Match]:
    """Drop readings that another one makes needless: a prefix taken off a name that is known with it, and a reducer
    left in a placeholder that was also taken off.
    """
    whole = {match.name.producer for match in matches if not match.prefix}
    tagged = {match.name for match in matches if match.suffix}
    for match in matches:
        if (match.prefix and match.name.producer in whole) or (not match.suffix and match.name in tagged):
            continue
        yield match


def _place(match: Match) -> int:
    return _ORDER[match.name.producer, match.name.era]


def _readings(name: str, source: str | None) -> Iterator[tuple[tuple[int, tuple[int, ...]], Match]]:
    """Yield every reading with the rank of its pattern; a prefix that was taken off counts as a plain segment."""
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


def _spelled_out(name: str) -> Iterator[tuple[Entry, Filled]]:
    """Find a pattern by its own text, as the documentation prints it."""
    return ((entry, ()) for entry in REGISTRY.entries() if entry.name.pattern == name)


def _stripped(name: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name without what one framework is known to add to its names."""
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


def _by(name: Name, source: str) -> bool:
    producer, _, era = source.partition("/")
    if name.producer == "windsock":  # ids are written in every vocabulary of ours
        return producer.startswith("windsock")
    if producer == "windsock":
        return name.producer in OURS
    return name.producer == producer and (not era or name.era in ("", era))


def detect(names: Iterable[str]) -> Detection:
    """Tell from all names of a run which framework wrote them."""
    seen = list(dict.fromkeys(names))
    writers = {name: _writers(name) for name in seen}
    known = {name: found for name, found in writers.items() if found}
    scores: Counter[str] = Counter()
    for found in known.values():
        for producer, weight in found.items():
            scores[producer] += weight  # type: ignore[assignment]
    share = len(known) / len(seen) if seen else 0.0
    if share < _ENOUGH:
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
    """Return the era that fits most names, when one fits more than every other."""
    votes: Counter[str] = Counter()
    for name in names:
        eras = {match.name.era for match in recognise(name, producer).matches}
        if "" not in eras:
            votes.update(eras)
    ranked = votes.most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return ""
    return ranked[0][0]


def nearest(name: str, count: int = 5) -> list[str]:
    """Return known names that look like the one given, the closest first."""
    known = {pattern.lower(): pattern for pattern in (entry.name.pattern for entry in REGISTRY.entries())}
    close = difflib.get_close_matches(name.lower(), known, count, 0.5)
    tail = name.lower().rpartition("/")[2]
    holding = [pattern for pattern in known if len(tail) > 2 and tail in pattern]
    return [known[pattern] for pattern in dict.fromkeys((*close, *sorted(holding, key=len)))][:count]
