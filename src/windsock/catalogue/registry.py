"""All metrics, by id and by every name anybody gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from threading import Lock

from windsock.catalogue.patterns import Trie, rank
from windsock.catalogue.spec import FAMILIES, OURS, CatalogueError, Metric, Name


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One name of one metric, and how general its pattern is."""

    metric: Metric
    name: Name
    rank: tuple[int, tuple[int, ...]]


class Registry:
    """The metrics that are known. There is one; it loads the families when first asked, and ``define`` adds to it."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._trie: Trie[Entry] | None = None
        self._taken: dict[tuple[str, str, str], str] = {}
        self._lock = Lock()
        self._loaded = False
        self._version = 0

    def add(self, metric: Metric) -> None:
        """Add a metric; refuse an id or a name that another one has, naming both."""
        self._load()
        self._add(metric)

    def remove(self, id: str) -> None:
        """Forget a metric that ``define`` added."""
        metric = self._metrics.pop(id)
        for name in names_of(metric):
            del self._taken[name.pattern, name.producer, name.era]
        self._changed()

    def metric(self, id: str) -> Metric:
        """Return the metric with this id."""
        self._load()
        try:
            return self._metrics[id]
        except KeyError:
            raise CatalogueError(f"no metric has the id {id!r}; windsock explain --all lists them") from None

    def metrics(self, family: str | None = None) -> list[Metric]:
        """Return the metrics, of one family or all, in the order of the families."""
        self._load()
        return [metric for metric in self._metrics.values() if family in (None, metric.family)]

    def entries(self) -> Iterator[Entry]:
        """Yield every name of every metric."""
        for metric in self.metrics():
            for name in names_of(metric):
                yield Entry(metric, name, rank(name.pattern))

    @property
    def trie(self) -> Trie[Entry]:
        """The names as a trie, built when first needed."""
        trie = self._trie
        if trie is None:
            trie = Trie()
            for entry in self.entries():
                trie.add(entry.name.pattern, entry)
            self._trie = trie
        return trie

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
            for family in FAMILIES[:-1]:  # custom metrics are the user's
                for metric in import_module(f"windsock.catalogue.{family}").METRICS:
                    self._add(metric)
            self._loaded = True

    def _add(self, metric: Metric) -> None:
        if metric.id in self._metrics:
            other = self._metrics[metric.id]
            raise CatalogueError(
                f"metric {metric.id!r} is there already: {other.title.en!r} in family {other.family!r}"
            )
        names = [(name.pattern, name.producer, name.era) for name in names_of(metric)]
        for pattern, producer, era in names:
            owner = self._taken.get((pattern, producer, era))
            if owner is not None:
                both = f"metric {metric.id!r} and metric {owner!r}"
                raise CatalogueError(f"{both} both claim the name {pattern!r} of {producer}")
        self._taken.update(dict.fromkeys(names, metric.id))
        self._metrics[metric.id] = metric
        self._changed()

    def _changed(self) -> None:
        self._trie = None
        self._version += 1


def names_of(metric: Metric) -> tuple[Name, ...]:
    """Return a metric's names, the id among them: it is what we write where a vocabulary has no name."""
    return (*metric.names, Name(metric.id, "windsock"))


def written(metric: Metric, vocabulary: str) -> Name:
    """Return the name under which windsock writes a metric in a vocabulary (``roll``, ``trl``, ``trinity``)."""
    producer = vocabulary if vocabulary in OURS else f"windsock:{vocabulary}"
    if producer not in OURS:
        raise CatalogueError(f"windsock writes the vocabularies roll, trl and trinity, not {vocabulary!r}")
    for name in metric.names:
        if name.producer == producer:
            return name
    return replace(names_of(metric)[-1], producer=producer)


REGISTRY = Registry()
