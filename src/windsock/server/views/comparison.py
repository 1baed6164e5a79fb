"""Comparison of runs: names that mean the same across vocabularies, untranslatable names, and differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from windsock.catalogue.resolution import RunNames
from windsock.catalogue.spec import Text
from windsock.catalogue.translate import TranslationError, translate
from windsock.formatting import family, flatten
from windsock.server.responses import bilingual, to_strict_json
from windsock.server.runs.open_runs import OpenRun
from windsock.server.views.charts import group_into_charts, metric_records, names_of
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
    """Compare runs; names are translated into the first one's vocabulary."""
    lines, refused = _lines(runs)
    order = [chart.main for chart in group_into_charts(list(lines), runs[0].meanings)]
    found = [_chart(name, lines[name], runs[0].meanings) for name in dict.fromkeys([*order, *lines])]
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


def _lines(runs: Sequence[ComparedRun]) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """Return the lines of every chart by their name in the first run's vocabulary, and the untranslatable names."""
    lines: dict[str, list[dict[str, Any]]] = {}
    refused = []
    for run in runs:
        for name in run.names:
            try:
                target, factor, same, note = _translated(name, run.meanings, runs[0].meanings.source)
            except TranslationError as refusal:
                metric = run.meanings.match(name)
                reason = {"metric": metric.metric.id if metric else None, "reason": bilingual(refusal.reason)}
                refused.append({"run": run.key, "name": name, **reason})
                continue
            line = {"run": run.key, "name": name, "factor": factor, "same": same, "note": bilingual(note)}
            lines.setdefault(target, []).append(line)
    return lines, refused


def _translated(name: str, meanings: RunNames, to: str | None) -> tuple[str, float, bool, Text | None]:
    """Return a name in the target vocabulary, its factor, whether both mean the same, and a note on differences."""
    match, source = meanings.match(name), meanings.source
    if source == to or source is None or to is None or match is None:
        return name, 1.0, True, None
    translation = translate(name, to, match.source)
    # Lines that share a chart share its axis.
    if translation.factor is None:
        raise TranslationError(translation.note or Text("The values cannot be converted.", "数值无法换算。"))
    return translation.name, translation.factor, translation.same, translation.note


def _chart(name: str, lines: list[dict[str, Any]], meanings: RunNames) -> dict[str, Any]:
    match = meanings.match(name)
    return {
        "key": name,
        "family": match.metric.family if match else f"other:{family(name)}",
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
