"""All metrics, by id and by name.

They are read from one JSON file that is built from the text files. Names with placeholders are patterns.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from barograph.base.lazy import lazy
from barograph.catalogue.spec import (
    OURS,
    Band,
    CatalogueError,
    Difference,
    Headline,
    Metric,
    MetricName,
    Placeholder,
    RelatedMetric,
    Text,
    Trap,
    has_domains,
    of_domain,
    placeholders,
    problems,
    split_domain,
)

# json is imported where it is used, and pathlib is not: they would double the time of importing the catalogue.
COMPILED_FILE = os.path.join(os.path.dirname(__file__), "compiled.json")

_TEXTS = ("title", "about", "formula", "look", "next")


Key = tuple[str, int]
"""The id of a metric, and the place of one of its names."""


class Compiled:
    """Everything that the catalogue declares: in sections, with one line of JSON for each key, read when it is needed.

    To read all of it takes ten times as long as the first look-up of a name.
    """

    def __init__(self, text: bytes) -> None:
        self._lines: dict[str, dict[str, bytes]] = {}
        self._metrics: dict[str, Metric] = {}
        for line in text.splitlines():
            key, _, value = line[1:].partition(b'":')
            if value == b" {":
                section = self._lines[key.decode()] = {}
            elif value:
                section[key.decode()] = value

    def _read(self, section: str, key: str) -> Any:
        import json

        return json.loads(self._lines[section][key].rstrip(b","))

    def _section(self, section: str) -> dict[str, Any]:
        return {key: self._read(section, key) for key in self._lines[section]}

    @property
    def ids(self) -> Iterable[str]:
        """The ids of all metrics."""
        return self._lines["metrics"]

    def metric(self, id: str) -> Metric | None:
        """Return the metric with this id."""
        if id not in self._metrics and id in self._lines["metrics"]:
            made = _metric_of({"id": id, **self._read("metrics", id)}, self._differences)
            self._metrics.setdefault(id, made)  # atomic: threads get the same
        return self._metrics.get(id)

    def patterns(self, head: str) -> list[tuple[str, Key]]:
        """Return the names that begin with a segment, as ``by_first_segment`` has them."""
        found = self._read("names", head) if head in self._lines["names"] else ()
        return [(pattern, (id, place)) for pattern, id, place in found]

    @lazy
    def _differences(self) -> list[Difference | None]:
        differences = self._section("differences").values()
        return [None, *(Difference(tuple(kinds), Text(*note), *rest) for kinds, note, *rest in differences)]

    @lazy
    def families(self) -> dict[str, tuple[Text, Text]]:
        """Title and introduction of every family."""
        return {key: (Text(*title), Text(*intro)) for key, (title, intro) in self._section("families").items()}

    @lazy
    def labels(self) -> dict[str, dict[str, Text]]:
        """The tables of ``labels.toml``."""
        tables = self._section("labels").items()
        return {table: {key: Text(*text) for key, text in texts.items()} for table, texts in tables}

    @lazy
    def placeholders(self) -> dict[str, Placeholder]:
        """The placeholders of ``placeholders.toml``."""
        return {
            name: Placeholder(name, kind, Text(*about), tuple((value, Text(*text)) for value, text in choices))
            for name, kind, about, choices in self._section("placeholders").values()
        }

    @lazy
    def headlines(self) -> tuple[Headline, ...]:
        """The values that are shown first, in this order."""
        return self._headlines("headline")

    @lazy
    def crucial(self) -> tuple[Headline, ...]:
        """The values that show whether a run is healthy."""
        return self._headlines("crucial")

    def _headlines(self, section: str) -> tuple[Headline, ...]:
        values = self._section(section).values()
        return tuple(Headline(key, Text(*title), tuple(ids), Text(*meaning)) for key, title, ids, meaning in values)


@cache
def load_compiled() -> Compiled:
    """Load the compiled file."""
    with open(COMPILED_FILE, "rb") as file:
        return Compiled(file.read())


def _metric_of(record: dict[str, Any], differences: list[Difference | None]) -> Metric:
    values = record | {name: Text(*record[name]) for name in _TEXTS if name in record}
    if "healthy" in record:
        low, high, source = record["healthy"]
        values["healthy"] = Band(low, high, Text(*source))
    values["needs"] = tuple(record.get("needs", ()))
    values["names"] = tuple([_name_of(differences, *name) for name in record.get("names", ())])
    values["traps"] = tuple([Trap(where, Text(*note)) for where, note in record.get("traps", ())])
    values["related"] = tuple([
        RelatedMetric(to, Text(*note), comparable, tuple([(name, value) for name, value in fill]))
        for to, note, comparable, fill in record.get("related", ())
    ])  # fmt: skip
    return Metric(**values)


def _name_of(
    differences: list[Difference | None], pattern: str, producer: str, era: str = "", place: int = 0
) -> MetricName:
    return MetricName(pattern, producer, era, differences[place])


Filled = tuple[tuple[str, str], ...]

PIECE = re.compile(r"\{(\w+)\}")

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
    room = max(MAX_GENERALITY - 2 * len(segments), 0) if any(map(is_many, segments)) else 0
    return sum(kinds) + room, kinds


def _generality(segment: str) -> int:
    if "{" not in segment:
        return 0
    whole = PIECE.fullmatch(segment)
    if whole is None:
        return 1
    return _GENERALITY[placeholder_kind(whole[1])]


def is_many(segment: str) -> bool:
    """Return whether a segment of a pattern stands for any number of segments."""
    return segment.startswith("{") and segment.endswith("}") and placeholder_kind(segment[1:-1]) == "many"


@lru_cache(maxsize=1 << 12)
def is_open(pattern: str) -> bool:
    """Return whether the last segment of a pattern may be anything."""
    whole = PIECE.fullmatch(pattern.rpartition("/")[2])
    return whole is not None and placeholder_kind(whole[1]) in ("one", "many")


@dataclass(frozen=True, slots=True, eq=False)
class NameEntry:
    """One name of one metric, and how general its pattern is."""

    metric: Metric
    name: MetricName
    rank: tuple[int, tuple[int, ...]]


class Registry:
    """All known metrics. The one instance loads the catalogue at its first use; ``define`` adds to it.

    Metrics are made when they are first asked for: a process needs few of them.
    """

    def __init__(self) -> None:
        self.version = 0  # changes with every metric added or removed
        self._defined: dict[str, Metric] = {}
        self._taught: dict[str, Metric] = {}
        self._entries: dict[Key, NameEntry] = {}
        self._defined_patterns: dict[str, list[tuple[str, Key]]] = {}

    @lazy
    def _compiled(self) -> Compiled:
        return load_compiled()

    @lazy
    def _owners(self) -> dict[tuple[str, str, str], str]:
        """The metric of each name."""
        return {key: metric.id for metric in self.metrics() for key in _name_keys(metric)}

    def add(self, metric: Metric) -> None:
        """Add a metric; raise when it is incomplete, or another one has its id or one of its names."""
        for problem in problems(metric):
            raise CatalogueError(f"metric {metric.id!r}: {problem}")
        other = self._known(metric.id)
        if other is not None:
            raise CatalogueError(f"metric {metric.id!r} exists already: {other.title.en!r} in family {other.family!r}")
        # All checks come before the first change: a metric that is refused leaves nothing behind.
        keys = _name_keys(metric)
        for key in keys:
            if key in self._owners:
                both = f"metric {metric.id!r} and metric {self._owners[key]!r}"
                raise CatalogueError(f"{both} both have the name {key[0]!r} of {key[1]}")
        self._owners.update(dict.fromkeys(keys, metric.id))
        self._defined[metric.id] = metric
        self._changed()

    def teach(self, metric: Metric) -> None:
        """Keep a metric that a user's file describes, by its id alone: its name holds only for the runs beside it."""
        self._taught[metric.id] = metric

    def remove(self, id: str) -> None:
        """Remove a metric that ``define`` added."""
        for key in _name_keys(self._defined.pop(id)):
            del self._owners[key]
        self._changed()

    def metric(self, id: str) -> Metric:
        """Return the metric with this id."""
        metric = self._known(id) or self._taught.get(id) or self._of_domain(id)
        if metric is None:
            raise CatalogueError(f"no metric has the id {id!r}; barograph explain --all lists them")
        return metric

    def metrics(self, family: str | None = None) -> list[Metric]:
        """Return the metrics, of one family or all, in the order of the families."""
        found = map(self.metric, (*self._compiled.ids, *self._defined))
        return [metric for metric in found if family in (None, metric.family)]

    def entries(self) -> Iterator[NameEntry]:
        """Yield every name of every metric."""
        for metric in self.metrics():
            for place in range(len(names_of(metric))):
                yield self.entry((metric.id, place))

    def patterns(self, head: str) -> list[tuple[str, Key]]:
        """Return the names that begin with a segment, also those by domain; for "", those that begin with any one."""
        return self._compiled.patterns(head) + self._defined_patterns.get(head, [])

    def entry(self, key: Key) -> NameEntry:
        """Return a name, always as the same object."""
        entry = self._entries.get(key)
        if entry is None:
            metric = self.metric(key[0])
            name = names_of(metric)[key[1]]
            entry = self._entries.setdefault(key, NameEntry(metric, name, rank(name.pattern)))
        return entry

    def _known(self, id: str) -> Metric | None:
        return self._defined.get(id) or self._compiled.metric(id)

    def _of_domain(self, id: str) -> Metric | None:
        """Return the metric of one domain; None where the id is not of one."""
        base, domain = split_domain(id)
        metric = self._known(base)
        return of_domain(metric, domain) if domain and metric is not None and has_domains(metric) else None

    def _changed(self) -> None:
        self._entries, self._defined_patterns = {}, by_first_segment(self._defined.values())
        self.version += 1


def _name_keys(metric: Metric) -> list[tuple[str, str, str]]:
    return [(name.pattern, name.producer, name.era) for name in names_of(metric)]


def names_of(metric: Metric) -> tuple[MetricName, ...]:
    """Return a metric's names with the id, which barograph writes where a vocabulary has no name."""
    return (*metric.names, MetricName(metric.id, "barograph"))


def by_first_segment(metrics: Iterable[Metric]) -> dict[str, list[tuple[str, Key]]]:
    """Return every name of metrics and of those by domain, by its first segment; "" is one with a placeholder."""
    found: dict[str, list[tuple[str, Key]]] = {}
    whole = list(metrics)
    for metric in (*whole, *map(of_domain, filter(has_domains, whole))):
        for place, name in enumerate(names_of(metric)):
            head = name.pattern.partition("/")[0]
            found.setdefault("" if "{" in head else head, []).append((name.pattern, (metric.id, place)))
    return found


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
