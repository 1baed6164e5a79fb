"""All metrics, by id and by name.

They are loaded from one JSON file that is built from the text files, with one metric per line. Names with
placeholders are patterns, in a trie by path segment that finds those which a name fits.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barograph.catalogue.spec import (
    OURS,
    PLAIN_LOOK,
    PLAIN_NEXT,
    Band,
    CatalogueError,
    Difference,
    Metric,
    MetricName,
    Placeholder,
    RelatedMetric,
    Text,
    Trap,
    has_domains,
    of_domain,
    placeholders,
    split_domain,
    unchecked_metric,
)

if TYPE_CHECKING:
    pass

# json and pathlib are imported where they are used: they would double the time of importing the catalogue.
COMPILED_FILE = os.path.join(os.path.dirname(__file__), "compiled.json")

_TEXTS = ("title", "about", "formula", "look", "next")


class Compiled:
    """Everything that the catalogue declares."""

    def __init__(self, found: dict[str, Any]) -> None:
        differences = [None, *(_difference_of(*each) for each in found["differences"])]
        self.metrics = tuple([_metric_of(record, differences) for record in found["metrics"]])
        self.families = {key: (Text(*texts[:2]), Text(*texts[2:])) for key, *texts in found["families"]}
        self.labels = {table: {key: Text(*text) for key, text in texts.items()} for table, texts in found["labels"]}
        self.placeholders = {
            name: Placeholder(name, kind, Text(en, zh), tuple((value, Text(*text)) for value, *text in choices))
            for name, kind, en, zh, choices in found["placeholders"]
        }
        self.headline = [(key, Text(en, zh), tuple(metrics)) for key, en, zh, metrics in found["headline"]]


@cache
def load_compiled() -> Compiled:
    """Load the compiled file."""
    import json

    with open(COMPILED_FILE, "rb") as file:
        return Compiled(json.loads(file.read()))


_DEFAULTS = {"formula": Text("", ""), "look": PLAIN_LOOK, "next": PLAIN_NEXT}


def _metric_of(record: dict[str, Any], differences: list[Difference | None]) -> Metric:
    for name in _TEXTS:
        record[name] = Text(*record[name]) if name in record else _DEFAULTS[name]
    if "healthy" in record:
        low, high, *source = record["healthy"]
        record["healthy"] = Band(low, high, Text(*source))
    record["needs"] = tuple(record.get("needs", ()))
    record["names"] = tuple([_name_of(differences, *name) for name in record.get("names", ())])
    record["traps"] = tuple([Trap(where, Text(*note)) for where, *note in record.get("traps", ())])
    record["related"] = tuple([
        RelatedMetric(to, Text(en, zh), comparable, tuple([(name, value) for name, value in fill]))
        for to, en, zh, comparable, fill in record.get("related", ())
    ])  # fmt: skip
    # The text files were checked when this file was built.
    return unchecked_metric(record)


def _name_of(
    differences: list[Difference | None], pattern: str, producer: str, era: str = "", place: int = 0
) -> MetricName:
    return MetricName(pattern, producer, era, differences[place])


def _difference_of(kinds: list[str], en: str, zh: str, factor: float | None, comparable: bool) -> Difference:
    return Difference(tuple(kinds), Text(en, zh), factor, comparable)


Leaf = TypeVar("Leaf")

Filled = tuple[tuple[str, str], ...]

_PIECE = re.compile(r"\{(\w+)\}")

MAX_GENERALITY = 20  # more than twice the segments of any pattern

_GENERALITY = {"choice": 0, "digits": 1, "one": 2, "many": 3}


def declared_placeholder(name: str) -> Placeholder | None:
    """Return a placeholder of ``placeholders.toml``; None for one that a user's own metric has."""
    return load_compiled().placeholders.get(name)


def placeholder_kind(name: str) -> str:
    """Return the kind of a placeholder; a user's own stands for one segment."""
    placeholder = declared_placeholder(name)
    return "one" if placeholder is None else placeholder.kind


def placeholder_choices(name: str) -> dict[str, Text]:
    """Return the values that a placeholder of kind choice may have, with their meaning."""
    placeholder = declared_placeholder(name)
    return {} if placeholder is None else dict(placeholder.choices)


def fill(pattern: str, filled: Filled) -> str:
    """Replace placeholders with values; those without a value stay."""
    for name, value in filled:
        pattern = pattern.replace(f"{{{name}}}", value)
    return pattern


def expand(pattern: str) -> Iterator[tuple[str, Filled]]:
    """Yield the pattern once per combination of its choices, with the chosen values."""
    names = [name for name in placeholders(pattern) if placeholder_kind(name) == "choice"]
    if not names:
        yield pattern, ()
        return
    # Choices are written out as literal segments, which a look-up finds with one access to a dict.
    for values in itertools.product(*map(placeholder_choices, names)):
        chosen = tuple(zip(names, values, strict=True))
        yield fill(pattern, chosen), chosen


def rank(pattern: str) -> tuple[int, tuple[int, ...]]:
    """Return how general a pattern is; the smaller rank is the more specific one.

    Where a placeholder may stand for any number of segments, a pattern with more segments is more specific.
    """
    if "{" not in pattern:
        return 0, (0,) * (pattern.count("/") + 1)
    segments = pattern.split("/")
    kinds = tuple(_generality(segment) for segment in segments)
    room = max(MAX_GENERALITY - 2 * len(segments), 0) if any(map(_is_many, segments)) else 0
    return sum(kinds) + room, kinds


def _generality(segment: str) -> int:
    if "{" not in segment:
        return 0
    whole = _PIECE.fullmatch(segment)
    if whole is None:
        return 1
    return _GENERALITY[placeholder_kind(whole[1])]


@lru_cache(maxsize=1 << 12)
def is_open(pattern: str) -> bool:
    """Return whether the last segment of a pattern may be anything."""
    whole = _PIECE.fullmatch(pattern.rpartition("/")[2])
    return whole is not None and placeholder_kind(whole[1]) in ("one", "many")


_NO_LIMIT = 1 << 30


def _is_many(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}") and placeholder_kind(segment[1:-1]) == "many"


class _Node(Generic[Leaf]):
    """A node of the trie. A name has at least ``least`` and at most ``most`` segments below it."""

    __slots__ = ("digits", "has_placeholders", "least", "leaves", "literal", "many", "mixed", "most", "one")

    def __init__(self) -> None:
        self.literal: dict[str, _Node[Leaf]] = {}
        # By the first character of the segment, which spares most expressions; "" where it is a placeholder's.
        self.mixed: dict[str, dict[str, tuple[re.Pattern[str], _Node[Leaf]]]] = {}
        self.digits: dict[str, _Node[Leaf]] = {}
        self.one: dict[str, _Node[Leaf]] = {}
        self.many: dict[str, _Node[Leaf]] = {}
        self.leaves: list[tuple[Leaf, Filled]] = []
        self.least, self.most = _NO_LIMIT, 0
        self.has_placeholders = False

    def widen(self, below: int, endless: bool) -> None:
        """Widen the limits for a pattern with so many segments below this node."""
        if below < self.least:
            self.least = below
        if endless:
            self.most = _NO_LIMIT
        elif below > self.most:
            self.most = below

    def child(self, segment: str) -> _Node[Leaf]:
        """Return the node below, for one segment of a pattern; make it when it is missing."""
        if "{" not in segment:
            found = self.literal.get(segment)
            if found is None:
                found = self.literal[segment] = _Node()
            return found
        self.has_placeholders = True
        whole = _PIECE.fullmatch(segment)
        if whole is None:
            start = "" if segment[0] == "{" else segment[0]
            return self.mixed.setdefault(start, {}).setdefault(segment, (_mixed(segment), _Node()))[1]
        branches = {"many": self.many, "digits": self.digits}.get(placeholder_kind(whole[1]), self.one)
        return branches.setdefault(whole[1], _Node())


class Trie(Generic[Leaf]):
    """Patterns by path segment. A look-up follows the segments of the name: its cost hardly grows with the patterns."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[Leaf] = _Node()

    def add(self, pattern: str, leaf: Leaf) -> None:
        """Store a leaf under a pattern."""
        for spelled, chosen in expand(pattern):
            segments = spelled.split("/")
            endless = max((at for at, segment in enumerate(segments) if _is_many(segment)), default=-1)
            node = self._root
            for at, segment in enumerate(segments):
                node.widen(len(segments) - at, at <= endless)
                node = node.child(segment)
            node.widen(0, False)
            node.leaves.append((leaf, chosen))

    def find(self, name: str) -> list[tuple[Leaf, Filled]]:
        """Return every leaf whose pattern the name fits, with the values of the placeholders."""
        found: list[tuple[Leaf, Filled]] = []
        segments = name.split("/")
        _walk(self._root, segments, 0, len(segments), (), found)
        return found


def _mixed(segment: str) -> re.Pattern[str]:
    parts = _PIECE.split(segment)
    return re.compile("".join(re.escape(p) if i % 2 == 0 else _group(p) for i, p in enumerate(parts)))


def _group(name: str) -> str:
    return rf"(?P<{name}>\d+)" if placeholder_kind(name) == "digits" else f"(?P<{name}>[^/]+?)"


def _walk(
    node: _Node[Leaf], segments: list[str], at: int, end: int, filled: Filled, found: list[tuple[Leaf, Filled]]
) -> None:
    # Without the limits a placeholder for many segments would try every split of the name.
    while node.least <= end - at <= node.most:
        if at == end:
            found.extend([(leaf, filled + chosen) for leaf, chosen in node.leaves])
            return
        if node.has_placeholders:
            _walk_placeholders(node, segments, at, end, filled, found)
        child = node.literal.get(segments[at])
        if child is None:
            return
        node, at = child, at + 1


def _mixed_of(node: _Node[Leaf], segment: str) -> list[tuple[re.Pattern[str], _Node[Leaf]]]:
    """Return the expressions of a node that a segment may fit, by its first character."""
    found: list[tuple[re.Pattern[str], _Node[Leaf]]] = []
    for start in ("", segment[:1]):
        if start in node.mixed and segment:
            found.extend(node.mixed[start].values())
    return found


def _walk_placeholders(
    node: _Node[Leaf], segments: list[str], at: int, end: int, filled: Filled, found: list[tuple[Leaf, Filled]]
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


@dataclass(frozen=True, slots=True, eq=False)
class NameEntry:
    """One name of one metric, and how general its pattern is."""

    metric: Metric
    name: MetricName
    rank: tuple[int, tuple[int, ...]]


Found = tuple[NameEntry, str, str]
"""A declared name that a name fits, and the prefix and suffix that were stripped from the name."""


class Registry:
    """All known metrics. The one instance loads the catalogue at its first use; ``define`` adds to it."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._trie: Trie[Found] | None = None
        self._owners: dict[tuple[str, str, str], str] = {}
        self._taught: dict[str, Metric] = {}
        self._lock = Lock()
        self._loaded = False
        self._version = 0

    def add(self, metric: Metric) -> None:
        """Add a metric; raise when another one has its id or one of its names."""
        self._load()
        self._add(metric)

    def teach(self, metric: Metric) -> None:
        """Keep a metric that a user's file describes, by its id alone: its name holds only for the runs beside it."""
        self._taught[metric.id] = metric

    def remove(self, id: str) -> None:
        """Remove a metric that ``define`` added."""
        metric = self._metrics.pop(id)
        for name in names_of(metric):
            del self._owners[name.pattern, name.producer, name.era]
        self._changed()

    def metric(self, id: str) -> Metric:
        """Return the metric with this id."""
        self._load()
        try:
            return self._metrics.get(id) or self._taught.get(id) or self._of_domain(id)
        except KeyError:
            raise CatalogueError(f"no metric has the id {id!r}; barograph explain --all lists them") from None

    def metrics(self, family: str | None = None) -> list[Metric]:
        """Return the metrics, of one family or all, in the order of the families."""
        self._load()
        return [metric for metric in self._metrics.values() if family in (None, metric.family)]

    def entries(self) -> Iterator[NameEntry]:
        """Yield every name of every metric."""
        for metric in self.metrics():
            for name in names_of(metric):
                yield NameEntry(metric, name, rank(name.pattern))

    @property
    def trie(self) -> Trie[Found]:
        """Trie of all names, also of those by domain, built at its first use."""
        # Without a lock: threads that build it at the same time get equal tries, and one of them stays.
        trie = self._trie
        if trie is None:
            trie = Trie()
            for entry in self.entries():
                trie.add(entry.name.pattern, (entry, "", ""))
            for metric in filter(has_domains, self.metrics()):
                for name in names_of(of_domain(metric)):
                    trie.add(name.pattern, (NameEntry(of_domain(metric), name, rank(name.pattern)), "", ""))
            self._trie = trie
        return trie

    def _of_domain(self, id: str) -> Metric:
        """Return the metric of one domain; raise KeyError where the id is not of one."""
        base, domain = split_domain(id)
        metric = self._metrics[base]
        if not domain or not has_domains(metric):
            raise KeyError(id)
        return of_domain(metric, domain)

    @property
    def version(self) -> int:
        """A number that changes with every metric added or removed."""
        self._load()
        return self._version

    def _load(self) -> None:
        if self._loaded:
            return
        with self._lock:
            if self._loaded:
                return
            for metric in load_compiled().metrics:
                self._add(metric)
            # Last, since other threads look at it without the lock.
            self._loaded = True

    def _add(self, metric: Metric) -> None:
        if metric.id in self._metrics:
            other = self._metrics[metric.id]
            raise CatalogueError(f"metric {metric.id!r} exists already: {other.title.en!r} in family {other.family!r}")
        # All checks come before the first change: a metric that is refused leaves nothing behind.
        names = [(name.pattern, name.producer, name.era) for name in names_of(metric)]
        for pattern, producer, era in names:
            owner = self._owners.get((pattern, producer, era))
            if owner is not None:
                both = f"metric {metric.id!r} and metric {owner!r}"
                raise CatalogueError(f"{both} both have the name {pattern!r} of {producer}")
        self._owners.update(dict.fromkeys(names, metric.id))
        self._metrics[metric.id] = metric
        self._changed()

    def _changed(self) -> None:
        self._trie = None
        self._version += 1


def names_of(metric: Metric) -> tuple[MetricName, ...]:
    """Return a metric's names with the id, which barograph writes where a vocabulary has no name."""
    return (*metric.names, MetricName(metric.id, "barograph"))


def vocabulary_name(metric: Metric, vocabulary: str) -> MetricName:
    """Return the name under which barograph writes a metric in a vocabulary (``roll``, ``trl``, ``trinity``)."""
    producer = vocabulary if vocabulary in OURS else f"barograph:{vocabulary}"
    if producer not in OURS:
        raise CatalogueError(f"unknown vocabulary {vocabulary!r}; barograph writes roll, trl and trinity")
    for name in metric.names:
        if name.producer == producer:
            return name
    return replace(names_of(metric)[-1], producer=producer)


REGISTRY = Registry()
