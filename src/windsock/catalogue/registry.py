"""Registry of all metrics, by id and by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Lock

from windsock.catalogue.by_domain import has_domains, of_domain, split_domain
from windsock.catalogue.compiled import load
from windsock.catalogue.patterns import Trie, rank
from windsock.catalogue.spec import OURS, CatalogueError, Metric, MetricName


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
            raise CatalogueError(f"no metric has the id {id!r}; windsock explain --all lists them") from None

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
            for metric in load().metrics:
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
    """Return a metric's names with the id, which windsock writes where a vocabulary has no name."""
    return (*metric.names, MetricName(metric.id, "windsock"))


def vocabulary_name(metric: Metric, vocabulary: str) -> MetricName:
    """Return the name under which windsock writes a metric in a vocabulary (``roll``, ``trl``, ``trinity``)."""
    producer = vocabulary if vocabulary in OURS else f"windsock:{vocabulary}"
    if producer not in OURS:
        raise CatalogueError(f"unknown vocabulary {vocabulary!r}; windsock writes roll, trl and trinity")
    for name in metric.names:
        if name.producer == producer:
            return name
    return replace(names_of(metric)[-1], producer=producer)


REGISTRY = Registry()
