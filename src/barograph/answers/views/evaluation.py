"""Evaluation on task sets: statistics over k and steps, and coverage; the catalogue parses the names."""

from __future__ import annotations

from typing import Any

from barograph.answers.open_run import OpenRun, SeriesRequest, Window
from barograph.answers.responses import bilingual
from barograph.answers.views.charts import STATISTICS, metric_records
from barograph.answers.views.curves import make_curve
from barograph.catalogue.names import Match

COVERAGE = "/coverage/"
OF_METRIC = "/{taskset}/{metric}/"
MAIN_PARTS = (None, "mean")  # the part of a statistic that is its value


def evaluation_view(opened: OpenRun, points: int) -> dict[str, Any]:
    """Return the task sets of a run with their statistics."""
    matches = opened.matches()
    sets: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    coverage: dict[tuple[str, str], dict[str, Any]] = {}
    validation: dict[tuple[str, str | None], dict[str, Any]] = {}
    for name, match in matches.items():
        id, filled = match.metric.id, dict(match.filled)
        suite, taskset = id.partition("/")[0], filled.get("taskset") or filled.get("dataset") or ""
        if COVERAGE in id and match.metric.family in ("eval", "validation"):
            coverage.setdefault((suite, taskset), {})[id.rpartition("/")[2]] = _last_value(opened, name)
        elif OF_METRIC in id and match.metric.family == "eval":
            statistic = {**_statistic(match), **_statistic_record(opened, name, match, points)}
            sets.setdefault((suite, taskset, filled.get("metric", "")), []).append(statistic)
        elif match.metric.family == "validation":
            _add_validation(validation, match, _statistic_record(opened, name, match, points))
    return {
        "version": opened.version,
        "sets": [
            {"suite": suite, "taskset": taskset, "metric": metric, "statistics": found, "by_k": _by_k(found)}
            for (suite, taskset, metric), found in sets.items()
        ],
        "coverage": [
            {"suite": suite, "taskset": taskset, "counts": counts} for (suite, taskset), counts in coverage.items()
        ],
        "validation": list(validation.values()),
        "metrics": metric_records(
            match.metric.id for match in matches.values() if match.metric.family in ("eval", "validation")
        ),
    }


def _add_validation(found: dict[tuple[str, str | None], dict[str, Any]], match: Match, record: dict[str, Any]) -> None:
    """Add a name of the validation; mean, maximum and minimum of one value share a chart."""
    stem, _, statistic = match.metric.id.rpartition("/")
    is_triple, tag = statistic in STATISTICS, dict(match.filled).get("tag")
    chart = found.setdefault((stem if is_triple else match.metric.id, tag), {"tag": tag, "curves": {}})
    chart["curves"][statistic if is_triple else "line"] = record.pop("curve")
    # The mean gives the chart its name and last value, wherever it comes in the order of names.
    if statistic in ("mean", "line") or "name" not in chart:
        chart |= record


def _statistic(match: Match) -> dict[str, Any]:
    """Split a name: ``best@4/max`` is the statistic ``best`` with k 4 and the part ``max``."""
    tail, filled = match.metric.id.partition(OF_METRIC)[2], dict(match.filled)
    statistic, _, part = tail.replace("@{k}", "").replace("{k}", "").partition("/")
    return {
        "statistic": statistic,
        "part": (filled.get("stat") if part == "{stat}" else part) or None,
        "k": int(filled["k"]) if filled.get("k") else None,
    }


def _statistic_record(opened: OpenRun, name: str, match: Match, points: int) -> dict[str, Any]:
    difference = match.name.difference
    return {
        "name": name,
        "id": match.metric.id,
        **_last_value(opened, name),
        "note": bilingual(difference.note) if difference else None,
        "curve": make_curve(opened, SeriesRequest(opened.location.key, name), Window(points)).record(),
    }


def _last_value(opened: OpenRun, name: str) -> dict[str, Any]:
    series = opened.series(name)
    return {"name": name, "last": series.last, "first": float(series.values[0]), "step": int(series.steps[-1])}


def _by_k(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return each statistic's first and last values over k."""
    by: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        if one["k"] is not None and one["part"] in MAIN_PARTS:
            by.setdefault(one["statistic"], []).append(one)
    return {
        statistic: {
            "k": [one["k"] for one in ordered],
            "first": [one["first"] for one in ordered],
            "last": [one["last"] for one in ordered],
        }
        for statistic, ones in by.items()
        for ordered in [sorted(ones, key=lambda one: int(one["k"]))]
    }
