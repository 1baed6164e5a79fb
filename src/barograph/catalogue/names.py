"""Recognition of logged names: every metric that a name can mean, by the sources that write it.

They are found in a trie by path segment. ``resolution`` decides between these meanings with what else is known about a
run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from barograph.catalogue.registry import (
    PIECE,
    REGISTRY,
    Filled,
    Key,
    NameEntry,
    expand,
    fill,
    is_many,
    is_open,
    placeholder_kind,
)
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


Found = tuple[NameEntry, str, str]
"""A declared name that a name fits, and the prefix and suffix that were stripped from the name."""


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


_NO_LIMIT = 1 << 30


class _Node:
    """A node of the trie. A name has at least ``least`` and at most ``most`` segments below it."""

    __slots__ = ("digits", "has_placeholders", "keys", "least", "literal", "many", "mixed", "most", "one")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        # By the first character of the segment, which spares most expressions; "" where it is a placeholder's.
        self.mixed: dict[str, dict[str, tuple[re.Pattern[str], _Node]]] = {}
        self.digits: dict[str, _Node] = {}
        self.one: dict[str, _Node] = {}
        self.many: dict[str, _Node] = {}
        self.keys: list[tuple[Key, Filled]] = []
        self.least, self.most = _NO_LIMIT, 0
        self.has_placeholders = False

    def add(self, segments: list[str], key: Key, chosen: Filled) -> None:
        """Store a key under the segments of a pattern."""
        endless = max((at for at, segment in enumerate(segments) if is_many(segment)), default=-1)
        node = self
        for at, segment in enumerate(segments):
            node.widen(len(segments) - at, at <= endless)
            node = node.child(segment)
        node.widen(0, False)
        node.keys.append((key, chosen))

    def widen(self, below: int, endless: bool) -> None:
        """Widen the limits for a pattern with so many segments below this node."""
        if below < self.least:
            self.least = below
        if endless:
            self.most = _NO_LIMIT
        elif below > self.most:
            self.most = below

    def child(self, segment: str) -> _Node:
        """Return the node below, for one segment of a pattern; make it when it is missing."""
        if "{" not in segment:
            found = self.literal.get(segment)
            if found is None:
                found = self.literal[segment] = _Node()
            return found
        self.has_placeholders = True
        whole = PIECE.fullmatch(segment)
        if whole is None:
            start = "" if segment[0] == "{" else segment[0]
            return self.mixed.setdefault(start, {}).setdefault(segment, (_mixed(segment), _Node()))[1]
        branches = {"many": self.many, "digits": self.digits}.get(placeholder_kind(whole[1]), self.one)
        return branches.setdefault(whole[1], _Node())


class Trie:
    """Patterns by path segment. A look-up follows the segments of the name: its cost hardly grows with the patterns.

    The part below a first segment is built when a name first begins with it: most processes use few of them.
    ``patterns`` returns the patterns that begin with a segment; for "", those with a placeholder in it.
    """

    __slots__ = ("_nodes", "_patterns", "_placed")

    def __init__(self, patterns: Callable[[str], Sequence[tuple[str, Key]]]) -> None:
        self._patterns = patterns
        self._nodes: dict[str, _Node] = {}
        # What the first placeholder may be. Those that may be anything are under "".
        self._placed: dict[str, list[tuple[str, Filled, Key]]] = {}
        for spelled, chosen, key in _spelled_choices(patterns("")):
            head = spelled.partition("/")[0]
            self._placed.setdefault("" if "{" in head else head, []).append((spelled, chosen, key))

    def find(self, name: str) -> list[tuple[Key, Filled]]:
        """Return every key whose pattern the name fits, with the values of the placeholders."""
        found: list[tuple[Key, Filled]] = []
        segments = name.split("/")
        for head in ("", segments[0]) if segments[0] else ("",):
            node = self._nodes.get(head) or self._built(head)
            if node is not None:
                _walk(node, segments, 0, len(segments), (), found)
        return found

    def _built(self, head: str) -> _Node | None:
        patterns = [*(_spelled_choices(self._patterns(head)) if head else ()), *self._placed.get(head, ())]
        if not patterns:
            return None
        node = _Node()
        for spelled, chosen, key in patterns:
            node.add(spelled.split("/"), key, chosen)
        # Without a lock: threads that build it at the same time get equal nodes, and one of them stays.
        return self._nodes.setdefault(head, node)


def _spelled_choices(patterns: Sequence[tuple[str, Key]]) -> Iterator[tuple[str, Filled, Key]]:
    for pattern, key in patterns:
        for spelled, chosen in expand(pattern):
            yield spelled, chosen, key


@lru_cache(maxsize=1)
def _trie(version: int) -> Trie:
    return Trie(REGISTRY.patterns)


def _mixed(segment: str) -> re.Pattern[str]:
    parts = PIECE.split(segment)
    return re.compile("".join(re.escape(p) if i % 2 == 0 else _group(p) for i, p in enumerate(parts)))


def _group(name: str) -> str:
    return rf"(?P<{name}>\d+)" if placeholder_kind(name) == "digits" else f"(?P<{name}>[^/]+?)"


def _walk(node: _Node, segments: list[str], at: int, end: int, filled: Filled, found: list[tuple[Key, Filled]]) -> None:
    # Without the limits a placeholder for many segments would try every split of the name.
    while node.least <= end - at <= node.most:
        if at == end:
            found.extend([(key, filled + chosen) for key, chosen in node.keys])
            return
        if node.has_placeholders:
            _walk_placeholders(node, segments, at, end, filled, found)
        child = node.literal.get(segments[at])
        if child is None:
            return
        node, at = child, at + 1


def _mixed_of(node: _Node, segment: str) -> list[tuple[re.Pattern[str], _Node]]:
    """Return the expressions of a node that a segment may fit, by its first character."""
    found: list[tuple[re.Pattern[str], _Node]] = []
    for start in ("", segment[:1]):
        if start in node.mixed and segment:
            found.extend(node.mixed[start].values())
    return found


def _walk_placeholders(
    node: _Node, segments: list[str], at: int, end: int, filled: Filled, found: list[tuple[Key, Filled]]
) -> None:
    segment = segments[at]
    for expression, child in _mixed_of(node, segment) if node.mixed else ():
        fits = expression.fullmatch(segment)
        if fits:
            _walk(child, segments, at + 1, end, filled + tuple(fits.groupdict().items()), found)
    if node.digits and segment.isdecimal():
        for name, child in node.digits.items():
            _walk(child, segments, at + 1, end, (*filled, (name, segment)), found)
    if node.one and segment:
        left = end - at - 1
        for name, child in node.one.items():
            if child.least <= left <= child.most:
                _walk(child, segments, at + 1, end, (*filled, (name, segment)), found)
    for name, child in node.many.items():
        # The limits of the child leave few ends that are worth a try.
        for stop in range(max(at + 1, end - child.most), end - child.least + 1):
            _walk(child, segments, stop, end, (*filled, (name, "/".join(segments[at:stop]))), found)


def _find(name: str) -> tuple[list[Found], list[Filled]]:
    """Return the declared names that a name fits, and the values of their placeholders."""
    trie = _trie(REGISTRY.version)
    hits = _hits(trie, name)
    if "{" in name:
        hits += _spelled_out(name)
    if "@" in name or ":" in name or name.startswith(TRL_PREFIXES):
        for stem, prefix, suffix, producers in _stripped(name):
            hits += [hit for hit in _hits(trie, stem, prefix, suffix) if hit[0][0].name.producer in producers]
    return [one for one, _ in hits], [values for _, values in hits]


def _hits(trie: Trie, name: str, prefix: str = "", suffix: str = "") -> list[tuple[Found, Filled]]:
    return [((REGISTRY.entry(key), prefix, suffix), filled) for key, filled in trie.find(name)]


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
