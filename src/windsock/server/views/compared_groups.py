"""Runs compared as groups of seeds: what differs in config, metrics, findings and phases, for commands and programs."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from windsock.catalogue.crucial import CRUCIAL
from windsock.catalogue.headline import headlines
from windsock.catalogue.registry import REGISTRY
from windsock.comparison.curves import Curve
from windsock.comparison.intervals import Interval, mean_interval
from windsock.comparison.seeds import is_label, is_seed, seed_of, setting_digest
from windsock.comparison.verdict import Measure, compare_groups
from windsock.formatting import json_number
from windsock.server.runs.open_runs import OpenRun, RunLocation
from windsock.server.views.comparison import ComparedRun, compared_run, comparison
from windsock.view import View


@dataclass(frozen=True, slots=True)
class Member:
    """A run of a comparison: ``run.key`` is its place in the order given."""

    opened: OpenRun
    run: ComparedRun


@dataclass(frozen=True, slots=True)
class Group:
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


def _grouped(members: Sequence[Member]) -> list[Group]:
    """Return groups of runs with the same setting; where that is all of them, every run is a group of its own."""
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(setting_digest(member.run.config) or f"run {member.run.key}", []).append(member)
    groups = list(found.values()) if len(found) > 1 else [[member] for member in members]
    names = [group[0].run.name for group in groups]
    return [
        Group(name if names.count(name) == 1 else f"{name} ({group[0].opened.view.id}, {place})", tuple(group))
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
    headline = (id for one in headlines() for id in one.metrics)
    return frozenset((*headline, *(id for one in CRUCIAL for id in one.metrics)))


def _config(groups: Sequence[Group]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the settings that differ between groups, with the value of each group that has one."""
    configs = {group.name: group.members[0].run.config for group in groups}
    for key in dict.fromkeys(key for config in configs.values() for key in config):
        values = {name: config[key] for name, config in configs.items() if key in config}
        # In Python 1, 1.0 and True are equal; in a config they are not.
        kinds = {(type(value), str(value)) for value in values.values()}
        if not is_seed(key) and not is_label(key) and (len(kinds) > 1 or len(values) < len(configs)):
            yield key, values


def _metric(chart: Mapping[str, Any], groups: Sequence[Group]) -> dict[str, Any] | None:
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
        "findings": [
            {"rule": one.rule, "onset": one.onset, "title": {"en": one.title.en, "zh": one.title.zh}} for one in found
        ],
    }


def _phases(groups: Sequence[Group]) -> dict[str, dict[str, Any]]:
    """Return the seconds per step of each phase, of each group that has it."""
    names = dict.fromkeys(name for group in groups for member in group.members for name in member.run.phases)
    return {
        name: {group.name: _interval(mean_interval(_seconds(group, name))) for group in groups if _seconds(group, name)}
        for name in names
    }


def _seconds(group: Group, phase: str) -> list[float]:
    return [member.run.phases[phase][0] for member in group.members if phase in member.run.phases]
