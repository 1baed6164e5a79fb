"""Several runs side by side: names that mean the same across vocabularies, refusals with their reasons, differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from windsock.catalogue.names import recognise
from windsock.catalogue.spec import Text
from windsock.catalogue.translate import TranslationError, translate
from windsock.formatting import family, flatten
from windsock.server.answers import said, strict
from windsock.server.library import Opened
from windsock.server.naming import charts, match_of, metric_records, source
from windsock.server.phases import shares
from windsock.server.pictures import Window

ABSENT = {"absent": True}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the runs that are compared: all that is needed once it is let go of again."""

    key: str
    name: str
    source: str | None
    names: list[str]
    config: dict[str, Any]
    phases: dict[str, tuple[float, float | None]] = field(default_factory=dict)


def side_of(opened: Opened) -> Side:
    """Take what a comparison needs of a run."""
    found = shares(opened, Window(1))
    phases = {one["name"]: (one["seconds"][0], one["share"]) for one in found["phases"]} if found else {}
    view = opened.view
    return Side(opened.entry.key, view.info.name, source(opened), view.names(), dict(flatten(view.config)), phases)


def comparison(sides: Sequence[Side]) -> dict[str, Any]:
    """Compare runs; the first one's vocabulary is the common tongue."""
    lines, refused = _lines(sides)
    order = [chart.main for chart in charts(list(lines), sides[0].source)]
    found = [_chart(name, lines[name], sides[0].source) for name in dict.fromkeys([*order, *lines])]
    found.sort(key=lambda chart: -min(2, len({line["run"] for line in chart["lines"]})))
    return {
        "runs": [{"key": side.key, "name": side.name, "source": side.source} for side in sides],
        "charts": found,
        "refused": refused,
        "metrics": metric_records(one["metric"] for one in [*found, *refused]),
        "config": list(_config(sides)),
        "phases": list(_phases(sides)),
    }


def _lines(sides: Sequence[Side]) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """Return the lines of every chart, by the name that the first run has or would have, and what is refused."""
    lines: dict[str, list[dict[str, Any]]] = {}
    refused = []
    for side in sides:
        for name in side.names:
            try:
                target, factor, same, note = _in_tongue(name, side.source, sides[0].source)
            except TranslationError as refusal:
                metric = match_of(name, side.source)
                reason = {"metric": metric.metric.id if metric else None, "reason": said(refusal.reason)}
                refused.append({"run": side.key, "name": name, **reason})
                continue
            line = {"run": side.key, "name": name, "factor": factor, "same": same, "note": said(note)}
            lines.setdefault(target, []).append(line)
    return lines, refused


def _in_tongue(name: str, source: str | None, to: str | None) -> tuple[str, float, bool, Text | None]:
    """Return a name in the common tongue, what to multiply with, whether it is the same, and what must be said."""
    if source == to or source is None or to is None or not recognise(name, source).matches:
        return name, 1.0, True, None
    translation = translate(name, to, source)
    if translation.factor is None:
        raise TranslationError(translation.note or Text("No arithmetic bridges the difference.", "无法换算。"))
    return translation.name, translation.factor, translation.same, translation.note


def _chart(name: str, lines: list[dict[str, Any]], source: str | None) -> dict[str, Any]:
    match = match_of(name, source)
    return {
        "key": name,
        "family": match.metric.family if match else f"other:{family(name)}",
        "metric": match.metric.id if match else None,
        "title": said(match.metric.title) if match else None,
        "lines": lines,
    }


def _config(sides: Sequence[Side]) -> Iterator[dict[str, Any]]:
    """Yield the entries of the configs that are not the same in all."""
    for key in dict.fromkeys(key for side in sides for key in side.config):
        values = [strict(side.config[key]) if key in side.config else ABSENT for side in sides]
        if any(value != values[0] or type(value) is not type(values[0]) for value in values[1:]):
            yield {"key": key, "values": values}


def _phases(sides: Sequence[Side]) -> Iterator[dict[str, Any]]:
    nothing = None, None
    for name in dict.fromkeys(name for side in sides for name in side.phases):
        pairs = [side.phases.get(name, nothing) for side in sides]
        yield {"name": name, "seconds": [pair[0] for pair in pairs], "share": [pair[1] for pair in pairs]}
