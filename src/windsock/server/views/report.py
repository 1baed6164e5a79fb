"""A run in one JSON: all that a file to send to a colleague needs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from windsock import __version__
from windsock.samples.query import Query
from windsock.server.responses import RequestError, strict
from windsock.server.runs.open_runs import Entry, Opened
from windsock.server.views.charts import names_view
from windsock.server.views.curves import MOST_SERIES, Wanted, Window, curves
from windsock.server.views.details import details_view, histograms_view, samples_view, texts_view
from windsock.server.views.evaluation import evaluation_view
from windsock.server.views.memory import memory_view
from windsock.server.views.overview import overview
from windsock.server.views.phases import phases_view, timeline_view

MOST_POINTS = 2_000_000  # of all series together: a file of that size still opens
HISTOGRAMS = 20


def report_data(folder: Path, points: int = 400, samples: int = 50) -> dict[str, Any]:
    """Gather everything of a run that lies in a folder, as strict JSON can carry it."""
    kind = "journal" if any(folder.glob("*.seg")) or (folder / "run.json").exists() else "tensorboard"
    opened = Opened(Entry(folder.name, folder, "journal" if kind == "journal" else "tensorboard"), folder.parent)
    found: dict[str, Any] = strict(report_of(opened, points, samples))
    return found


def report_of(opened: Opened, points: int, samples: int) -> dict[str, Any]:
    """Gather everything of an opened run; with very many metrics the curves are coarser."""
    view = opened.view
    names = view.names()[:MOST_SERIES]
    window = Window(max(16, min(points, MOST_POINTS // max(1, len(names)))), branches=True)
    return {
        "windsock": __version__,
        "made": time.time(),
        "status": {"word": view.status.word, "reason": view.status.reason},
        "overview": overview(opened, points),
        "names": names_view(opened),
        "series": [curve.record() for curve in curves(opened, (Wanted(opened.entry.key, n) for n in names), window)],
        "histograms": [histograms_view(opened, name, HISTOGRAMS) for name in view.histogram_names()],
        "phases": phases_view(opened, Window(200)),
        "timeline": _timeline(opened),
        "memory": memory_view(opened, None),
        "evaluation": evaluation_view(opened, points),
        "samples": samples_view(opened, Query(sort="-step"), 0, samples) if samples else None,
        "details": details_view(opened),
        "texts": texts_view(opened, None, -200, 200),
    }


def _timeline(opened: Opened) -> dict[str, Any] | None:
    try:
        return timeline_view(opened, None)
    except RequestError:
        return None
