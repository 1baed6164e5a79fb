"""The data of a report file, which has no server to ask: all of one run, or the curves of a written report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from barograph.answers.groups import RunSeries, bands_view
from barograph.answers.open_run import OpenRun, RunLocation, RunSource, SeriesRequest, Window
from barograph.answers.responses import to_strict_json
from barograph.answers.views.curves import MAX_SERIES, make_curves
from barograph.answers.views.details import details_view, histograms_view, texts_view
from barograph.answers.views.evaluation import evaluation_view
from barograph.answers.views.meanings import meanings_view, names_view
from barograph.answers.views.memory import memory_view
from barograph.answers.views.overview import findings_view, overview
from barograph.answers.views.phases import phases_view, timeline_view
from barograph.answers.views.samples import report_samples
from barograph.base import __version__
from barograph.base.errors import RequestError
from barograph.journal.view import View

MAX_POINTS = 2_000_000  # over all series: browsers still open a file of that size

MAX_HISTOGRAMS = 20


def report_data(view: View, points: int = 400, samples: int = 50) -> dict[str, Any]:
    """Return all data of a run, ready for strict JSON."""
    opened = OpenRun(RunLocation(view.id, view.location), view=view)
    report: dict[str, Any] = to_strict_json(collect_report(opened, points, samples))
    return report


def collect_report(opened: OpenRun, points: int, samples: int) -> dict[str, Any]:
    """Return all data of an open run; with very many metrics the curves have fewer points."""
    view = opened.view
    names = view.names()[:MAX_SERIES]
    window = Window(max(16, min(points, MAX_POINTS // max(1, len(names)))), branches=True)
    wanted = [SeriesRequest(opened.location.key, name) for name in names]
    return {
        "barograph": __version__,
        "made": time.time(),
        "status": {"word": view.status.word, "reason": view.status.reason},
        "overview": overview(opened, points),
        "findings": findings_view(opened),
        "names": names_view(opened),
        "meanings": meanings_view(opened),
        "series": [curve.record() for curve in make_curves(opened, wanted, window)],
        "histograms": [histograms_view(opened, name, MAX_HISTOGRAMS) for name in view.histogram_names()],
        "phases": phases_view(opened, Window(200)),
        "timeline": _timeline(opened),
        "memory": memory_view(opened, None),
        "evaluation": evaluation_view(opened, points),
        "samples": report_samples(opened, samples) if samples else None,
        "details": details_view(opened),
        "texts": texts_view(opened, None, -200, 200),
    }


def _timeline(opened: OpenRun) -> dict[str, Any] | None:
    try:
        return timeline_view(opened, None)
    except RequestError:
        return None


MAX_CURVE_POINTS = 2_000_000  # over all curves: browsers still open a file of that size

MIN_POINTS = 16  # of a curve

BAND_POINTS = 240

BANDS_AT_ONCE = 100

Ends = tuple[float | None, float | None]


def with_curves(report: Mapping[str, Any], runs: RunSource, points: int) -> dict[str, Any]:
    """Return a report with the curves of its charts, ready for strict JSON."""
    charts = [block for block in report["blocks"] if block["kind"] == "chart"]
    wanted = list(dict.fromkeys(one for block in charts for one in _series_of(block)))
    most = max(MIN_POINTS, min(points, MAX_CURVE_POINTS // max(1, len(wanted))))
    bands = list(dict.fromkeys(one for block in charts for one in _bands_of(block)))
    made = [_embedded(runs, line, ends, most) for line, ends in wanted]
    parts = (bands[start : start + BANDS_AT_ONCE] for start in range(0, len(bands), BANDS_AT_ONCE))
    found = [one for part in parts for one in _drawn(runs, part)]
    data: dict[str, Any] = to_strict_json({**report, "series": [one for part in made for one in part], "bands": found})
    return data


def _series_of(block: Mapping[str, Any]) -> Iterator[tuple[RunSeries, Ends]]:
    """Yield the series that a chart draws as they are, with the ends of its steps."""
    ends = block["panel"].get("from"), block["panel"].get("to")
    if block["groups"] is None:
        for chart in (*block["charts"], *filter(None, [block["against"]])):
            is_across = chart is block["against"]
            for line in chart["lines"]:
                yield RunSeries(line["run"], line["name"], 1.0 if is_across else line["factor"]), ends


def _bands_of(block: Mapping[str, Any]) -> Iterator[tuple[RunSeries, ...]]:
    """Yield the groups of series of which a chart draws the means."""
    for group in block["groups"] or ():
        for chart in block["charts"]:
            lines = [line for line in chart["lines"] if line["run"] in group["keys"]]
            if lines:
                yield tuple(RunSeries(line["run"], line["name"], line["factor"]) for line in lines)


def _embedded(runs: RunSource, line: RunSeries, ends: Ends, points: int) -> list[dict[str, Any]]:
    window = Window(points, *ends, branches=True)
    with runs.use(line.run) as opened:
        made = make_curves(opened, [SeriesRequest(line.run, line.name, factor=line.factor)], window)
        return [{**curve.record(), "factor": line.factor, "ends": ends} for curve in made]


def _drawn(runs: RunSource, groups: Sequence[tuple[RunSeries, ...]]) -> Iterator[dict[str, Any]]:
    found = bands_view(runs, groups, BAND_POINTS)["bands"]
    for lines, band in zip(groups, found, strict=True):
        members = [{"run": line.run, "name": line.name, "factor": line.factor} for line in lines]
        yield {"members": members, **band}
