"""The curves of a written report, for a file that has no server to ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windsock.server.responses import to_strict_json
from windsock.server.runs.open_runs import RunSource
from windsock.server.views.curves import SeriesRequest, Window, make_curves
from windsock.server.views.groups import Line, bands_view

MAX_POINTS = 2_000_000  # over all curves: browsers still open a file of that size
MIN_POINTS = 16  # of a curve
BAND_POINTS = 240
BANDS_AT_ONCE = 100
Ends = tuple[float | None, float | None]


def with_curves(report: Mapping[str, Any], runs: RunSource, points: int) -> dict[str, Any]:
    """Return a report with the curves of its charts, ready for strict JSON."""
    charts = [block for block in report["blocks"] if block["kind"] == "chart"]
    wanted = list(dict.fromkeys(one for block in charts for one in _series_of(block)))
    most = max(MIN_POINTS, min(points, MAX_POINTS // max(1, len(wanted))))
    bands = list(dict.fromkeys(one for block in charts for one in _bands_of(block)))
    made = [_embedded(runs, line, ends, most) for line, ends in wanted]
    parts = (bands[start : start + BANDS_AT_ONCE] for start in range(0, len(bands), BANDS_AT_ONCE))
    found = [one for part in parts for one in _drawn(runs, part)]
    data: dict[str, Any] = to_strict_json({**report, "series": [one for part in made for one in part], "bands": found})
    return data


def _series_of(block: Mapping[str, Any]) -> Iterator[tuple[Line, Ends]]:
    """Yield the series that a chart draws as they are, with the ends of its steps."""
    ends = block["panel"].get("from"), block["panel"].get("to")
    if block["groups"] is None:
        for chart in (*block["charts"], *filter(None, [block["against"]])):
            is_across = chart is block["against"]
            for line in chart["lines"]:
                yield Line(line["run"], line["name"], 1.0 if is_across else line["factor"]), ends


def _bands_of(block: Mapping[str, Any]) -> Iterator[tuple[Line, ...]]:
    """Yield the groups of series of which a chart draws the means."""
    for group in block["groups"] or ():
        for chart in block["charts"]:
            lines = [line for line in chart["lines"] if line["run"] in group["keys"]]
            if lines:
                yield tuple(Line(line["run"], line["name"], line["factor"]) for line in lines)


def _embedded(runs: RunSource, line: Line, ends: Ends, points: int) -> list[dict[str, Any]]:
    window = Window(points, *ends, branches=True)
    with runs.use(line.run) as opened:
        made = make_curves(opened, [SeriesRequest(line.run, line.name, factor=line.factor)], window)
        return [{**curve.record(), "factor": line.factor, "ends": ends} for curve in made]


def _drawn(runs: RunSource, groups: Sequence[tuple[Line, ...]]) -> Iterator[dict[str, Any]]:
    found = bands_view(runs, groups, BAND_POINTS)["bands"]
    for lines, band in zip(groups, found, strict=True):
        members = [{"run": line.run, "name": line.name, "factor": line.factor} for line in lines]
        yield {"members": members, **band}
