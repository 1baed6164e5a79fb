"""Comparison of runs, or of groups of seeds: names that mean the same in one chart, names whose numbers cannot be
compared, and what differs in config, metrics, findings and phases.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np

from barograph.answers.open_run import OpenRun, RunLocation, Window
from barograph.answers.responses import bilingual, to_strict_json
from barograph.answers.views.charts import family_of, group_into_charts, logged_band, metric_records
from barograph.answers.views.phases import phase_seconds
from barograph.base.formatting import flatten, json_number
from barograph.catalogue.headline import crucial_values, headlines
from barograph.catalogue.names import Match
from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.spec import MetricName, Text
from barograph.catalogue.translate import TranslationError
from barograph.diagnosis.health import FirstFinding
from barograph.journal.view import View
from barograph.metrics.comparison import (
    Curve,
    Interval,
    Measure,
    compare_groups,
    is_label,
    is_seed,
    mean_interval,
    seed_of,
    setting_digest,
)

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
    view, meanings = opened.view, opened.meanings()
    meanings.resolve_all()  # while the run is open: the values may decide
    return ComparedRun(opened.location.key, view.info.name, meanings, view.names(), dict(flatten(view.config)), phases)


def comparison(runs: Sequence[ComparedRun]) -> dict[str, Any]:
    """Compare runs; names that mean the same share a chart, under the name of the first run that has it."""
    charts = _Charts()
    for run in runs:
        charts.add(run)
    for run in runs:
        charts.refuse_undecided(run)
    charts.keep_logged_numbers()
    lines, meant, refused = charts.lines, charts.meant, charts.refused
    order = [chart.main for chart in group_into_charts(list(lines), runs[0].meanings)]
    found = [_chart(name, lines[name], meant[name]) for name in dict.fromkeys([*order, *lines])]
    # Charts with several runs first. The sort is stable, so both parts stay in display order.
    found.sort(key=lambda chart: -min(2, len({line["run"] for line in chart["lines"]})))
    return {
        "runs": [{"key": run.key, "name": run.name, "source": run.meanings.source} for run in runs],
        "charts": found,
        "refused": refused,
        "metrics": metric_records(one["metric"] for one in [*found, *refused]),
        "config": list(_run_config(runs)),
        "phases": list(_run_phases(runs)),
    }


Meaning = tuple[str, bool]  # the id of the metric, filled in, and whether the number is of an evaluation


class _Charts:
    """The charts of several runs: a run has at most one line in each, and a chart is named by the first run with it."""

    def __init__(self) -> None:
        self.lines: dict[str, list[dict[str, Any]]] = {}
        self.meant: dict[str, Match | None] = {}
        self.refused: list[dict[str, Any]] = []
        self._of_meaning: dict[Meaning, list[str]] = {}

    def add(self, run: ComparedRun) -> None:
        """Add the lines of a run: to charts of the same name, else of the same meaning, else to new ones."""
        matches = {name: run.meanings.match(name) for name in run.names}
        same = {name: None for name, match in matches.items() if name in self.meant and self._is_alike(name, match)}
        for name in same:
            self._add_line(run, name, matches[name], name)
        others = [name for name in run.names if name not in same]
        # Of several names with one meaning, the one that is the metric itself is compared.
        for name in sorted(others, key=lambda name: _differs(matches[name])):
            self._add_line(run, name, matches[name], self._chart_of(run, name, matches[name]))

    def _is_alike(self, name: str, match: Match | None) -> bool:
        other = self.meant[name]
        if _meaning(match) != _meaning(other):
            return False
        try:
            _relation(match, other)
        except TranslationError:
            return False
        return True

    def _chart_of(self, run: ComparedRun, name: str, match: Match | None) -> str:
        """Return the first chart of the same meaning that the number fits; note why it does not fit another."""
        meaning = _meaning(match)
        reasons = []
        for chart in self._of_meaning.get(meaning, ()) if meaning else ():
            try:
                _relation(match, self.meant[chart])
            except TranslationError as refusal:
                reasons.append(refusal.reason)
                continue
            if all(line["run"] != run.key for line in self.lines[chart]):
                break
        else:
            chart = self._new_chart(run, name, match)
        if reasons and match is not None:
            self.refuse(run, name, match.metric.id, reasons[0])
        return chart

    def _new_chart(self, run: ComparedRun, name: str, match: Match | None) -> str:
        # Under one name two trainers may log two metrics, which must not share an axis.
        origin = match.source if match is not None else run.name
        keys = (name, f"{name} ({origin})", f"{name} ({run.key})", f"{name} ({len(self.meant)})")
        chart = next(key for key in keys if key not in self.meant)
        self.meant[chart] = match
        self.lines[chart] = []
        if match is not None:
            self._of_meaning.setdefault((match.id, match.evaluated), []).append(chart)
        return chart

    def _add_line(self, run: ComparedRun, name: str, match: Match | None, chart: str) -> None:
        same, note = _relation(match, self.meant[chart])
        factor = 1.0 if match is None else match.name.factor or 1.0
        line = {"run": run.key, "name": name, "factor": factor, "same": same, "note": bilingual(note)}
        self.lines[chart].append(line)

    def keep_logged_numbers(self) -> None:
        """Leave the numbers of a chart as they are logged where all its lines have the same scale."""
        for lines in self.lines.values():
            if len({line["factor"] for line in lines}) == 1:
                for line in lines:
                    line["factor"] = 1.0

    def refuse(self, run: ComparedRun, name: str, metric: str | None, reason: Text) -> None:
        """Note that a name is drawn apart from those of the same meaning."""
        self.refused.append({"run": run.key, "name": name, "metric": metric, "reason": bilingual(reason)})

    def refuse_undecided(self, run: ComparedRun) -> None:
        """Note the names of a run that may mean what another run logs."""
        elsewhere = {
            match.metric.id
            for chart, match in self.meant.items()
            if match is not None and any(line["run"] != run.key for line in self.lines[chart])
        }
        for name in run.meanings.ambiguous:
            meanings = run.meanings.resolve(name).meanings
            if elsewhere & meanings.keys():
                self.refuse(run, name, None, _undecided(meanings))


def _undecided(meanings: Mapping[str, tuple[str, ...]]) -> Text:
    options = [f"{id} ({sources[0]})" for id, sources in meanings.items()]
    return Text(
        f"Its meaning is not decided: {' or '.join(options)}. Choose the source of the run's names.",
        f"其含义未定：{' 或 '.join(options)}。请选定该实验名字的来源。",
    )


def _meaning(match: Match | None) -> Meaning | None:
    return None if match is None else (match.id, match.evaluated)


def _differs(match: Match | None) -> bool:
    return match is not None and match.name.difference is not None


def _relation(match: Match | None, other: Match | None) -> tuple[bool, Text | None]:
    """Return whether the numbers of two names of a metric are the same after conversion, and the difference."""
    if match is None or other is None or match.name.difference == other.name.difference:
        return True, None
    differing = [name for name in (match.name, other.name) if name.difference is not None]
    note = _joined_notes(differing)
    for name in differing:
        if not _shares_axis(name):
            raise TranslationError(note)
    converts = all(name.difference is not None and name.difference.kinds == ("unit",) for name in differing)
    return converts, None if converts else note


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
        "here": dict(match.filled) if match else {},
        "band": _band(match, lines),
        "lines": lines,
    }


def _band(match: Match | None, lines: list[dict[str, Any]]) -> dict[str, float | None] | None:
    """Return the healthy range in the scale in which a chart is drawn: the metric's where lines are converted."""
    if match is None or all(line["factor"] == 1.0 for line in lines):
        return logged_band(match)
    healthy = match.metric.healthy
    return None if healthy is None else {"low": healthy.low, "high": healthy.high}


def _run_config(runs: Sequence[ComparedRun]) -> Iterator[dict[str, Any]]:
    """Yield the config keys whose values differ."""
    for key in dict.fromkeys(key for run in runs for key in run.config):
        values = [to_strict_json(run.config[key]) if key in run.config else ABSENT for run in runs]
        # In Python 1, 1.0 and True are equal; in a config they are not.
        if any(value != values[0] or type(value) is not type(values[0]) for value in values[1:]):
            yield {"key": key, "values": values}


def _run_phases(runs: Sequence[ComparedRun]) -> Iterator[dict[str, Any]]:
    nothing = None, None
    for name in dict.fromkeys(name for run in runs for name in run.phases):
        pairs = [run.phases.get(name, nothing) for run in runs]
        yield {"name": name, "seconds": [pair[0] for pair in pairs], "share": [pair[1] for pair in pairs]}


@dataclass(frozen=True, slots=True)
class Member:
    """A run of a comparison: ``run.key`` is its place in the order given."""

    opened: OpenRun
    run: ComparedRun


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs that differ only in the seed, under the name of the first of them."""

    name: str
    members: tuple[Member, ...]


def compare_views(views: Sequence[View], patterns: Sequence[str] = (), everything: bool = False) -> dict[str, Any]:
    """Compare runs, those that differ only in the seed as one group, with the first group.

    Metrics are the headline and crucial ones, those whose names match ``patterns``, or all with ``everything``.
    """
    opened = [OpenRun(RunLocation(str(place), view.location), view=view) for place, view in enumerate(views)]
    groups = _grouped([Member(one, compared_run(one)) for one in opened])
    members = [member for group in groups for member in group.members]
    charts = comparison([member.run for member in members])["charts"]
    wanted = [chart for chart in charts if everything or _is_wanted(chart, patterns)]
    return {
        "groups": [
            {
                "name": group.name,
                "runs": [member.opened.view.id for member in group.members],
                "seeds": [seed_of(member.run.config) for member in group.members],
            }
            for group in groups
        ],
        "config": dict(_config(groups)),
        "metrics": [found for chart in wanted if (found := _metric(chart, groups)) is not None],
        "runs": [_judged(member, group.name) for group in groups for member in group.members],
        "phases": _phases(groups),
    }


def _grouped(members: Sequence[Member]) -> list[RunGroup]:
    """Return groups of runs with the same setting; where that is all of them, every run is a group of its own."""
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(setting_digest(member.run.config) or f"run {member.run.key}", []).append(member)
    groups = list(found.values()) if len(found) > 1 else [[member] for member in members]
    names = [group[0].run.name for group in groups]
    return [
        RunGroup(name if names.count(name) == 1 else f"{name} ({group[0].opened.view.id}, {place})", tuple(group))
        for place, (name, group) in enumerate(zip(names, groups, strict=True), 1)
    ]


def _is_wanted(chart: Mapping[str, Any], patterns: Sequence[str]) -> bool:
    if patterns:
        names = [chart["key"], *(line["name"] for line in chart["lines"])]
        return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)
    return chart["metric"] in _vital()


@cache
def _vital() -> frozenset[str]:
    """Return the ids of the headline and crucial metrics."""
    return frozenset(id for one in (*headlines(), *crucial_values()) for id in one.metrics)


def _config(groups: Sequence[RunGroup]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the settings that differ between groups, with the value of each group that has one."""
    configs = {group.name: group.members[0].run.config for group in groups}
    for key in dict.fromkeys(key for config in configs.values() for key in config):
        values = {name: config[key] for name, config in configs.items() if key in config}
        # In Python 1, 1.0 and True are equal; in a config they are not.
        kinds = {(type(value), str(value)) for value in values.values()}
        if not is_seed(key) and not is_label(key) and (len(kinds) > 1 or len(values) < len(configs)):
            yield key, values


def _metric(chart: Mapping[str, Any], groups: Sequence[RunGroup]) -> dict[str, Any] | None:
    """Return a metric of the groups; None where fewer than two of them have it."""
    lines = {line["run"]: line for line in chart["lines"]}
    curves = {
        group.name: [_curve(member, lines[member.run.key]) for member in group.members if member.run.key in lines]
        for group in groups
    }
    curves = {name: found for name, found in curves.items() if found}
    if len(curves) < 2:
        return None
    direction = REGISTRY.metric(chart["metric"]).direction if chart["metric"] else "none"
    result = compare_groups(curves, direction)
    return {
        "name": chart["key"],
        "metric": chart["metric"],
        "title": chart["title"],
        "direction": direction,
        "steps": result.steps,
        "groups": {
            name: {"last": _measure(one.last), "area": _measure(one.area)} for name, one in result.groups.items()
        },
    }


def _curve(member: Member, line: Mapping[str, Any]) -> Curve:
    series = member.opened.view.series(line["name"])
    with np.errstate(over="ignore", invalid="ignore"):
        return series.steps.astype(float), series.values * line["factor"]


def _measure(measure: Measure) -> dict[str, Any]:
    difference = measure.difference
    return {
        **_interval(measure.mean),
        "values": [_finite(value) for value in measure.values],
        "difference": None if difference is None else {**_interval(difference), "word": measure.word},
    }


def _interval(interval: Interval) -> dict[str, Any]:
    ends = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    return {**{name: _finite(value) for name, value in ends.items()}, "runs": interval.count}


def _finite(value: float) -> float | str | None:
    return json_number(value) if math.isfinite(value) else None


def _judged(member: Member, group: str) -> dict[str, Any]:
    view, diagnosis = member.opened.view, member.opened.diagnosis()
    found = [finding for finding in diagnosis.findings if finding.severity != "info"]
    return {
        "run": view.id,
        "name": view.name,
        "path": str(view.location),
        "group": group,
        "verdict": diagnosis.verdict,
        "findings": [asdict(FirstFinding.of(one)) for one in found],
    }


def _phases(groups: Sequence[RunGroup]) -> dict[str, dict[str, Any]]:
    """Return the seconds per step of each phase, of each group that has it."""
    names = dict.fromkeys(name for group in groups for member in group.members for name in member.run.phases)
    return {
        name: {group.name: _interval(mean_interval(_seconds(group, name))) for group in groups if _seconds(group, name)}
        for name in names
    }


def _seconds(group: RunGroup, phase: str) -> list[float]:
    return [member.run.phases[phase][0] for member in group.members if phase in member.run.phases]
