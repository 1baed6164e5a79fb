"""Metric names grouped into charts, with the catalogue's explanations and families.

Mean, maximum and minimum of one quantity share a chart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from barograph.answers.responses import bilingual
from barograph.base.formatting import family, natural
from barograph.catalogue.describe import band_text, family_labels, label
from barograph.catalogue.names import Match
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.spec import BY, Metric, Text, split_domain
from barograph.catalogue.user_metrics import Guess, guess

STATISTICS = ("mean", "max", "min")

OTHER = "other:"

UNITS_WITHOUT_SIGN = ("1", "count", "fraction", "probability", "reward", "reward²", "as reported")


@cache
def metric_record(metric: Metric) -> dict[str, Any]:
    """Return a metric of the catalogue as a JSON record, in both languages."""
    band = metric.healthy
    return {
        "id": metric.id,
        "family": metric.family,
        "title": bilingual(metric.title),
        "about": bilingual(metric.about),
        "unit": {lang: label("units", metric.unit, lang) for lang in ("en", "zh")},
        "sign": "" if metric.unit in UNITS_WITHOUT_SIGN else metric.unit.replace("sequence", "seq"),
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
            "source": bilingual(band.source),
        },
        "look": bilingual(metric.look),
        "next": bilingual(metric.next),
        "needs": list(metric.needs),
    }


def logged_band(match: Match | None) -> dict[str, float | None] | None:
    """Return the healthy range of a metric in the unit and sign in which a name is logged; None where it has none."""
    band = match.metric.healthy if match else None
    if match is None or band is None:
        return None
    factor, kinds = match.name.factor, match.name.difference.kinds if match.name.difference else ()
    if factor is None:
        if "unit" in kinds:  # a count has no range of a share
            return None
        factor = -1.0 if "sign" in kinds else 1.0
    low, high = (None if end is None else end / factor for end in (band.low, band.high))
    return {"low": low, "high": high} if factor > 0 else {"low": high, "high": low}


def metric_records(ids: Iterable[str | None]) -> dict[str, Any]:
    """Return the records of metrics by id."""
    return {id: metric_record(REGISTRY.metric(id)) for id in dict.fromkeys(ids) if id is not None}


@dataclass(slots=True)
class Chart:
    """One chart: a line, or a line with the band of its extremes."""

    key: str
    family: str
    match: Match | None
    lines: dict[str, str] = field(default_factory=dict)

    @property
    def main(self) -> str:
        """The name of the chart's line."""
        return self.lines.get("mean") or next(iter(self.lines.values()))

    def record(self) -> dict[str, Any]:
        """Return the chart as a JSON record."""
        difference = self.match.name.difference if self.match else None
        return {
            "key": self.key,
            "family": self.family,
            "metric": self.match.metric.id if self.match else None,
            "main": self.main,
            "lines": self.lines,
            "here": dict(self.match.filled) if self.match else {},
            "note": bilingual(difference.note) if difference else None,
            "band": logged_band(self.match),
            "guessed": guess_record(self.main) if self.match is None else None,
        }


def guess_record(name: str) -> dict[str, Any] | None:
    """Return family, unit and direction that the form of an unknown name suggests, and a text of them."""
    found = guess(name)
    return {**asdict(found), "text": bilingual(_guess_text(found))} if found else None


def _guess_text(found: Guess) -> Text:
    tables = (("units", found.unit), ("directions", "" if found.direction == "none" else found.direction))
    en, zh = ([label(table, key, lang) for table, key in tables if key] for lang in ("en", "zh"))
    if found.family:
        title = family_labels()[found.family][0]
        en, zh = [title.en, *en], [title.zh, *zh]
    return Text("; ".join(en), "；".join(zh))


def family_of(name: str, match: Match | None) -> str:
    """Return the family of a name: the metric's, the one that its form suggests, or the beginning of the name."""
    if match is not None:
        return match.metric.family
    found = guess(name)
    return found.family if found and found.family else OTHER + family(name)


def group_into_charts(names: Sequence[str], meanings: RunNames) -> list[Chart]:
    """Group names into charts, in display order."""
    found: dict[Any, Chart] = {}
    present = frozenset(names)
    for name in names:
        match = meanings.match(name)
        place, key, statistic = _known_place(name, match) if match else _unknown_place(name, present)
        chart = found.setdefault(place, Chart(key, family_of(name, match), match))
        if statistic in chart.lines:  # two names of one quantity: one chart each
            found[name] = Chart(name, chart.family, match, {"line": name})
            continue
        chart.lines[statistic] = name
        if statistic == "mean":  # the text beside a chart is about its line
            chart.match = match
    return sorted((_without_statistic(chart) for chart in found.values()), key=_order)


def _without_statistic(chart: Chart) -> Chart:
    """Return a chart of a single name with that name as key."""
    if len(chart.lines) == 1:
        (name,) = chart.lines.values()
        chart.key, chart.lines = name, {"line": name}
    return chart


def _known_place(name: str, match: Match) -> tuple[Any, str, str]:
    stem, _, last = split_domain(match.metric.id)[0].rpartition("/")
    if last not in STATISTICS or match.metric.statistic != last:
        return name, name, "line"
    base, domain = split_domain(name) if BY in match.metric.id else (name, "")
    key = f"{_strip_statistic(base, last)}{BY if domain else ''}{domain}"
    # Two writers may mean different numbers by one metric, so their lines have charts of their own.
    return (stem, match.filled, match.prefix, match.suffix, match.source), key, last


def _strip_statistic(name: str, statistic: str) -> str:
    for separator in ("/", "_", "@", ":"):
        if name.endswith(separator + statistic):
            return name.removesuffix(separator + statistic)
    return name.replace(f"{statistic}_", "", 1)


def _unknown_place(name: str, present: frozenset[str]) -> tuple[Any, str, str]:
    stem, separator, last = name.rpartition("/")
    # An unknown name may end in "max" or "min" by chance; beside a mean it is a statistic.
    triple = last in STATISTICS and f"{stem}/mean" in present and f"{stem}/max" in present
    return (("unknown", stem), stem, last) if triple and separator else (name, name, "line")


def _order(chart: Chart) -> tuple[Any, ...]:
    ordered, places = list(family_labels()), _places(REGISTRY.version)
    if chart.family.startswith(OTHER):
        return len(ordered), natural(chart.family), 0, False, natural(chart.main)
    if chart.match is None:  # its family is guessed
        return ordered.index(chart.family), [], len(places) + 1, False, natural(chart.main)
    id, domain = split_domain(chart.match.metric.id)
    return ordered.index(chart.family), [], places.get(id, len(places)), bool(domain), natural(chart.main)


@cache
def _places(version: int) -> dict[str, int]:
    return {metric.id: place for place, metric in enumerate(REGISTRY.metrics())}


def family_records(found: Sequence[Chart]) -> list[dict[str, Any]]:
    """Return the families of charts in display order, with titles."""
    counts: dict[str, int] = {}
    for chart in found:
        counts[chart.family] = counts.get(chart.family, 0) + 1
    return [{"key": key, **_family_texts(key), "charts": count} for key, count in counts.items()]


def _family_texts(key: str) -> dict[str, Any]:
    if key.startswith(OTHER):
        prefix = key.removeprefix(OTHER)
        title = Text(prefix, prefix) if prefix else Text("Other", "其他")
        return {"title": bilingual(title), "intro": None}
    title, intro = family_labels()[key]
    return {"title": bilingual(title), "intro": bilingual(intro)}
