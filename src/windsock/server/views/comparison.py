"""Comparison of runs: names that mean the same in one chart, names whose numbers cannot be compared, differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from windsock.catalogue.names import Match
from windsock.catalogue.resolution import RunNames
from windsock.catalogue.spec import MetricName, Text
from windsock.catalogue.translate import TranslationError
from windsock.formatting import flatten
from windsock.server.responses import bilingual, to_strict_json
from windsock.server.runs.open_runs import OpenRun
from windsock.server.views.charts import family_of, group_into_charts, metric_records, names_of
from windsock.server.views.curves import Window
from windsock.server.views.phases import phase_seconds

ABSENT = {"absent": True}


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """The data of one compared run, so that the run need not stay locked."""

    key: str
    name: str
    meanings: RunNames
    names: list[str]
    config: dict[str, Any]
    phases: dict[str, tuple[float, float | None]] = field(default_factory=dict)


def compared_run(opened: OpenRun) -> ComparedRun:
    """Return the data of a run that a comparison needs."""
    found = phase_seconds(opened, Window(1))
    phases = {one["name"]: (one["seconds"][0], one["share"]) for one in found["phases"]} if found else {}
    view, meanings = opened.view, names_of(opened)
    meanings.resolve_all()  # while the run is open: the values may decide
    return ComparedRun(opened.location.key, view.info.name, meanings, view.names(), dict(flatten(view.config)), phases)


def comparison(runs: Sequence[ComparedRun]) -> dict[str, Any]:
    """Compare runs; names that mean the same share a chart, under the name of the first run that has it."""
    lines, meant, refused = _lines(runs)
    order = [chart.main for chart in group_into_charts(list(lines), runs[0].meanings)]
    found = [_chart(name, lines[name], meant[name]) for name in dict.fromkeys([*order, *lines])]
    # Charts with several runs first. The sort is stable, so both parts stay in display order.
    found.sort(key=lambda chart: -min(2, len({line["run"] for line in chart["lines"]})))
    return {
        "runs": [{"key": run.key, "name": run.name, "source": run.meanings.source} for run in runs],
        "charts": found,
        "refused": refused,
        "metrics": metric_records(one["metric"] for one in [*found, *refused]),
        "config": list(_config(runs)),
        "phases": list(_phases(runs)),
    }


Meaning = tuple[str, bool]  # the id of the metric, filled in, and whether the number is of an evaluation


def _lines(
    runs: Sequence[ComparedRun],
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Match | None], list[dict[str, Any]]]:
    """Return the lines of every chart, what each chart means, and the names whose numbers fit no chart.

    A chart has the name that the first run with this meaning gives it.
    """
    lines: dict[str, list[dict[str, Any]]] = {}
    meant: dict[str, Match | None] = {}
    first: dict[Meaning, str] = {}  # chart of each meaning
    refused = []
    for run in runs:
        for name in run.names:
            match = run.meanings.match(name)
            chart = _chart_of(name, match, meant, first)
            try:
                factor, same, note = _relation(match, meant.setdefault(chart, match))
            except TranslationError as refusal:
                reason = {"metric": match.metric.id if match else None, "reason": bilingual(refusal.reason)}
                refused.append({"run": run.key, "name": name, **reason})
                continue
            line = {"run": run.key, "name": name, "factor": factor, "same": same, "note": bilingual(note)}
            lines.setdefault(chart, []).append(line)
    return lines, meant, refused


def _chart_of(name: str, match: Match | None, meant: dict[str, Match | None], first: dict[Meaning, str]) -> str:
    """Return the chart of a name: the one with the same name and meaning, with the same meaning, or a new one."""
    if name in meant and _meaning(meant[name]) == _meaning(match):
        return name
    # Under one name two trainers may log two metrics, which must not share an axis.
    new = name if name not in meant or match is None else f"{name} ({match.source})"
    return new if match is None else first.setdefault((match.id, match.evaluated), new)


def _meaning(match: Match | None) -> Meaning | None:
    return None if match is None else (match.id, match.evaluated)


def _relation(match: Match | None, other: Match | None) -> tuple[float, bool, Text | None]:
    """Return the factor to the number of another name of the metric, whether they are the same, and the difference."""
    if match is None or other is None or match.name.difference == other.name.difference:
        return 1.0, True, None
    differing = [name for name in (match.name, other.name) if name.difference is not None]
    note = _joined_notes(differing)
    for name in differing:
        if not _shares_axis(name):
            raise TranslationError(note)
    factor = (match.name.factor or 1.0) / (other.name.factor or 1.0)
    converts = all(name.difference is not None and name.difference.kinds == ("unit",) for name in differing)
    return factor, converts, None if converts else note


def _joined_notes(names: Sequence[MetricName]) -> Text:
    notes = [(name.source, name.difference.note) for name in names if name.difference is not None]
    return Text(
        " ".join(f"{source}: {note.en}" for source, note in notes),
        "".join(f"{source}：{note.zh}" for source, note in notes),
    )


def _shares_axis(name: MetricName) -> bool:
    """Return whether a number can be drawn beside the metric: a difference in what is averaged is a note."""
    difference = name.difference
    if difference is None:
        return True
    return difference.comparable and (difference.factor is not None or _SAME_SCALE.issuperset(difference.kinds))


_SAME_SCALE = frozenset(("window", "reducer", "population", "mask", "moment", "clamp", "ddof", "sentinel"))


def _chart(name: str, lines: list[dict[str, Any]], match: Match | None) -> dict[str, Any]:
    return {
        "key": name,
        "family": family_of(name, match),
        "metric": match.metric.id if match else None,
        "title": bilingual(match.metric.title) if match else None,
        "lines": lines,
    }


def _config(runs: Sequence[ComparedRun]) -> Iterator[dict[str, Any]]:
    """Yield the config keys whose values differ."""
    for key in dict.fromkeys(key for run in runs for key in run.config):
        values = [to_strict_json(run.config[key]) if key in run.config else ABSENT for run in runs]
        # In Python 1, 1.0 and True are equal; in a config they are not.
        if any(value != values[0] or type(value) is not type(values[0]) for value in values[1:]):
            yield {"key": key, "values": values}


def _phases(runs: Sequence[ComparedRun]) -> Iterator[dict[str, Any]]:
    nothing = None, None
    for name in dict.fromkeys(name for run in runs for name in run.phases):
        pairs = [run.phases.get(name, nothing) for run in runs]
        yield {"name": name, "seconds": [pair[0] for pair in pairs], "share": [pair[1] for pair in pairs]}
