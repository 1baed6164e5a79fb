"""All data of a run in one record, for a report file."""

from __future__ import annotations

import time
from typing import Any

from windsock import __version__
from windsock.server.responses import RequestError, to_strict_json
from windsock.server.runs.open_runs import OpenRun, RunLocation
from windsock.server.views.charts import names_view
from windsock.server.views.curves import MAX_SERIES, SeriesRequest, Window, make_curves
from windsock.server.views.details import details_view, histograms_view, texts_view
from windsock.server.views.evaluation import evaluation_view
from windsock.server.views.findings import findings_view
from windsock.server.views.meanings import meanings_view
from windsock.server.views.memory import memory_view
from windsock.server.views.overview import overview
from windsock.server.views.phases import phases_view, timeline_view
from windsock.server.views.samples import report_samples
from windsock.view import View

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
        "windsock": __version__,
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
