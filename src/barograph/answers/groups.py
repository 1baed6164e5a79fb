"""Groups of runs, such as the seeds of a setting: curves of means with bands, and whether one group beats another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barograph.answers.open_run import RunSource
from barograph.answers.responses import interval_record, to_strict_json
from barograph.answers.views.charts import metric_records
from barograph.base.errors import RequestError
from barograph.catalogue.headline import headlines
from barograph.catalogue.registry import REGISTRY
from barograph.metrics.comparison import MIN_SEEDS, Comparison, Curve, Measure, aligned, band, compare_groups

MAX_BANDS = 200  # in one request
MAX_MEMBERS = 64
FIRST = ("validation", "reward")
"""The headline values by which groups are compared, if nothing else is chosen, the best first."""


@dataclass(frozen=True, slots=True)
class RunSeries:
    """A series of a run, and the factor by which its numbers are those of the chart."""

    run: str
    name: str
    factor: float = 1.0


def read_curves(runs: RunSource, lines: Iterable[RunSeries]) -> dict[RunSeries, Curve]:
    """Return the steps and values of series; each run is opened once, and a series that it lacks is empty."""
    found: dict[RunSeries, Curve] = {}
    wanted = list(dict.fromkeys(lines))
    for run in dict.fromkeys(line.run for line in wanted):
        with runs.use(run) as opened:
            for line in wanted:
                if line.run != run:
                    continue
                series = opened.find_series(line.name)
                if series is None:
                    found[line] = np.empty(0), np.empty(0)
                else:
                    found[line] = series.steps.astype(float), series.values * line.factor
    return found


def bands_view(runs: RunSource, groups: Sequence[Sequence[RunSeries]], points: int) -> dict[str, Any]:
    """Return for each group of series the mean at common steps with its 95 % interval, and every run there."""
    if len(groups) > MAX_BANDS or any(len(group) > MAX_MEMBERS for group in groups):
        raise RequestError(413, f"at most {MAX_BANDS} groups of {MAX_MEMBERS} runs are drawn at once")
    curves = read_curves(runs, (line for group in groups for line in group))
    return {"bands": [_band([curves[line] for line in group], points) for group in groups]}


def _band(curves: Sequence[Curve], points: int) -> dict[str, Any]:
    steps, values = aligned(curves, points)
    mean, low, high, count = band(values)
    columns = {"x": steps, "mean": mean, "low": low, "high": high}
    return {
        **{name: to_strict_json(column.tolist()) for name, column in columns.items()},
        "count": count.tolist(),
        "runs": to_strict_json(values.tolist()),
    }


def groups_view(
    runs: RunSource, groups: Sequence[Mapping[str, Any]], compared: Mapping[str, Any], asked: str | None
) -> dict[str, Any]:
    """Compare groups of runs by one metric: that of the chart asked for, else validation, else reward.

    ``compared`` is the comparison of all the runs, which knows the names of the metric in each.
    """
    charts = {chart["key"]: chart for chart in compared["charts"] if chart["lines"]}
    chart = charts.get(asked or "") or _first_chart(charts.values())
    direction = REGISTRY.metric(chart["metric"]).direction if chart and chart["metric"] else "none"
    lines = (
        {line["run"]: RunSeries(line["run"], line["name"], line["factor"]) for line in chart["lines"]} if chart else {}
    )
    curves = read_curves(runs, lines.values())
    result = compare_groups(
        {str(n): [curves[lines[run]] for run in group["keys"] if run in lines] for n, group in enumerate(groups)},
        direction,
    )
    return {
        "groups": groups,
        "min_seeds": MIN_SEEDS,
        "chart": chart["key"] if chart else None,
        "metric": chart["metric"] if chart else None,
        "direction": direction,
        "metrics": metric_records([chart["metric"]] if chart else []),
        "steps": result.steps,
        "results": _results(result),
    }


def _first_chart(charts: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the chart of validation, else of the reward, else the first; that of most runs among equals."""
    order = {id: place for place, id in enumerate(_first_metrics())}
    ranked = sorted(charts, key=lambda chart: (order.get(chart["metric"], len(order)), -len(chart["lines"])))
    return ranked[0] if ranked else None


def _first_metrics() -> list[str]:
    by_key = {headline.key: headline for headline in headlines()}
    return [id for key in FIRST for id in by_key[key].metrics]


def _results(result: Comparison) -> list[dict[str, Any]]:
    return [{"last": _measure(one.last), "area": _measure(one.area)} for one in result.groups.values()]


def _measure(measure: Measure) -> dict[str, Any]:
    """Return a measure as JSON; a mean or difference that there is none of is NaN."""
    difference = measure.difference
    return {
        "mean": to_strict_json(interval_record(measure.mean)),
        "difference": None if difference is None else to_strict_json(interval_record(difference)),
        "word": measure.word,
    }
