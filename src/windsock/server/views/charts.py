"""Names as charts: what the catalogue says of each, families, and mean, maximum and minimum as one picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from windsock.catalogue.describe import band_text
from windsock.catalogue.labels import families as family_labels
from windsock.catalogue.labels import label
from windsock.catalogue.names import Match, detect, recognise
from windsock.catalogue.registry import REGISTRY
from windsock.catalogue.spec import Metric, Text
from windsock.formatting import family, natural
from windsock.readable import Readable
from windsock.server.responses import said
from windsock.server.runs.open_runs import Opened
from windsock.server.views.curves import axes
from windsock.summary import source_of

STATISTICS = ("mean", "max", "min")
OTHER = "other:"
SIGNLESS = ("1", "count", "fraction", "probability", "reward", "reward²", "as reported")


@cache
def metric_record(metric: Metric) -> dict[str, Any]:
    """Return what the catalogue says of a metric, in both languages."""
    band = metric.healthy
    return {
        "id": metric.id,
        "family": metric.family,
        "title": said(metric.title),
        "about": said(metric.about),
        "unit": {lang: label("units", metric.unit, lang) for lang in ("en", "zh")},
        "sign": "" if metric.unit in SIGNLESS else metric.unit.replace("sequence", "seq"),
        "population": metric.population,
        "statistic": metric.statistic,
        "direction": metric.direction,
        "estimator": metric.estimator,
        "crucial": metric.crucial,
        "band": None
        if band is None
        else {
            "low": band.low,
            "high": band.high,
            "text": {lang: band_text(band, lang) for lang in ("en", "zh")},
            "source": said(band.source),
        },
        "look": said(metric.look),
        "next": said(metric.next),
        "needs": list(metric.needs),
    }


def metric_records(ids: Iterable[str | None]) -> dict[str, Any]:
    """Return records of metrics, each once."""
    return {id: metric_record(REGISTRY.metric(id)) for id in dict.fromkeys(ids) if id is not None}


def match_of(name: str, source: str | None) -> Match | None:
    """Return what a name stands for: by who wrote it, else where everybody means the same."""
    anybodys = recognise(name)
    by_source = recognise(name, source).matches if source is not None and anybodys.matches else ()
    return by_source[0] if by_source else anybodys.match


def source(opened: Opened) -> str | None:
    """Return whose names a run uses."""
    return opened.once("source", lambda: source_of(opened.view, opened.view.names()), 60.0)


@dataclass(slots=True)
class Chart:
    """One picture: a line, or a line in the band of its extremes."""

    key: str
    family: str
    match: Match | None
    lines: dict[str, str] = field(default_factory=dict)

    @property
    def main(self) -> str:
        """The name whose line it is."""
        return self.lines.get("mean") or next(iter(self.lines.values()))

    def record(self) -> dict[str, Any]:
        """Return it as JSON."""
        difference = self.match.name.difference if self.match else None
        return {
            "key": self.key,
            "family": self.family,
            "metric": self.match.metric.id if self.match else None,
            "main": self.main,
            "lines": self.lines,
            "here": dict(self.match.filled) if self.match else {},
            "note": said(difference.note) if difference else None,
        }


def charts(names: Sequence[str], source: str | None) -> list[Chart]:
    """Group names into charts, in the order in which they are shown."""
    found: dict[Any, Chart] = {}
    present = frozenset(names)
    for name in names:
        match = match_of(name, source)
        place, key, statistic = _known_place(name, match) if match else _unknown_place(name, present)
        chart = found.setdefault(place, Chart(key, match.metric.family if match else OTHER + family(name), match))
        if statistic in chart.lines:  # two names for one thing: each has its own chart
            found[name] = Chart(name, chart.family, match, {"line": name})
            continue
        chart.lines[statistic] = name
        if statistic == "mean":
            chart.match = match
    return sorted((_plain(chart) for chart in found.values()), key=_order)


def _plain(chart: Chart) -> Chart:
    """A single name is a line, and its chart is called like it."""
    if len(chart.lines) == 1:
        (name,) = chart.lines.values()
        chart.key, chart.lines = name, {"line": name}
    return chart


def _known_place(name: str, match: Match) -> tuple[Any, str, str]:
    stem, _, last = match.metric.id.rpartition("/")
    if last not in STATISTICS or match.metric.statistic != last:
        return name, name, "line"
    return (stem, match.filled, match.prefix, match.suffix, match.source), _without(name, last), last


def _without(name: str, statistic: str) -> str:
    for mark in ("/", "_", "@", ":"):
        if name.endswith(mark + statistic):
            return name.removesuffix(mark + statistic)
    return name.replace(f"{statistic}_", "", 1)


def _unknown_place(name: str, present: frozenset[str]) -> tuple[Any, str, str]:
    stem, mark, last = name.rpartition("/")
    triple = last in STATISTICS and f"{stem}/mean" in present and f"{stem}/max" in present
    return (("unknown", stem), stem, last) if triple and mark else (name, name, "line")


def _order(chart: Chart) -> tuple[Any, ...]:
    ordered = list(family_labels())
    if chart.match is None:
        return len(ordered), natural(chart.family), 0, natural(chart.main)
    return ordered.index(chart.family), [], _places(REGISTRY.version)[chart.match.metric.id], natural(chart.main)


@cache
def _places(version: int) -> dict[str, int]:
    return {metric.id: place for place, metric in enumerate(REGISTRY.metrics())}


def families(found: Sequence[Chart]) -> list[dict[str, Any]]:
    """Return the families of charts in their order, with titles."""
    counts: dict[str, int] = {}
    for chart in found:
        counts[chart.family] = counts.get(chart.family, 0) + 1
    return [{"key": key, **_family_words(key), "charts": count} for key, count in counts.items()]


def _family_words(key: str) -> dict[str, Any]:
    if key.startswith(OTHER):
        prefix = key.removeprefix(OTHER)
        title = Text(prefix, prefix) if prefix else Text("Other", "其他")
        return {"title": said(title), "intro": None}
    title, intro = family_labels()[key]
    return {"title": said(title), "intro": said(intro)}


def names_view(opened: Opened) -> dict[str, Any]:
    """Return every metric of a run as charts with their explanations."""
    view, whose = opened.view, source(opened)
    names = view.names()
    found = charts(names, whose)
    detected = detect(names)
    return {
        "version": opened.version,
        "source": whose,
        "detected": {
            "producer": detected.producer,
            "era": detected.era,
            "confidence": detected.confidence,
            "recognised": detected.recognised,
            "total": detected.total,
        },
        "names": len(names),
        "families": families(found),
        "charts": [chart.record() for chart in found],
        "metrics": metric_records(chart.match.metric.id if chart.match else None for chart in found),
        "histograms": view.histogram_names(),
        "axes": axes(view),
        "writers": writers_of(view),
    }


def writers_of(view: Readable) -> list[list[Any]]:
    """Return role, rank and attempt of every writer."""
    return [[writer.role, writer.rank, writer.attempt] for writer in view.writers()]
