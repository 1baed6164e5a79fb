"""Memory of a step as a staircase: the four moments of every phase, by device, and what is known beside."""

from __future__ import annotations

from typing import Any

import numpy as np

from windsock.catalogue.names import Match
from windsock.catalogue.patterns import choices
from windsock.errors import RunNotFoundError
from windsock.formatting import natural
from windsock.journal.series import Series
from windsock.probe.names import GIB
from windsock.readable import Readable
from windsock.server.responses import said
from windsock.server.runs.open_runs import Opened
from windsock.server.views.charts import match_of, metric_records, source
from windsock.server.views.curves import Wanted, series_of

HELD = ("allocated", "reserved", "max_allocated", "max_reserved")
STAIR = "memory/{phase}/{moment}/"
FRACTION = "memory/{phase}/end/onload/max_reserved_frac/{device}"
PEAK = "memory/{phase}/{moment}/max_reserved/{device}"
STEP_PEAKS = ("memory/step/max_allocated", "memory/step/max_reserved")
MOMENTS = list(choices("moment"))


def memory_view(opened: Opened, step: int | None) -> dict[str, Any]:
    """Return the staircase of a step; without one, of the last that has any."""
    view, whose = opened.view, source(opened)
    matches = {name: match for name in view.names() if (match := match_of(name, whose)) is not None}
    held = {name: match for name, match in matches.items() if match.metric.family == "memory"}
    steps = view.steps
    at = _last_step(opened, held) if step is None else step
    stairs = _stairs(opened, held, at) if at is not None else []
    return {
        "step": at,
        "steps": steps,
        "unit": "GiB",
        "devices": sorted({stair["device"] for stair in stairs}, key=natural),
        "capacity": _capacity(opened, held),
        "stairs": stairs,
        "peaks": {
            "max_allocated": [name for name, match in held.items() if "/max_allocated/" in match.metric.id],
            "step": [name for name, match in held.items() if match.metric.id in STEP_PEAKS],
        },
        "host": [*_of(held, "memory/host/"), *_of(held, "memory/cpu/")],
        "moments": {moment: said(text) for moment, text in choices("moment").items()},
        "metrics": metric_records(match.metric.id for match in held.values()),
    }


def _of(held: dict[str, Match], start: str) -> list[str]:
    return [name for name, match in held.items() if match.metric.id.startswith(start)]


def _is_stair(match: Match) -> bool:
    what = match.metric.id.removeprefix(STAIR).partition("/")[0]
    return match.metric.id.startswith(STAIR) and what in HELD and "device" in dict(match.filled)


def _last_step(opened: Opened, held: dict[str, Match]) -> int | None:
    """Return the last step with a stair, else the run's last."""
    ends = [_series(opened, name) for name, match in held.items() if _is_stair(match)]
    steps = opened.view.steps
    found = [int(series.steps[-1]) for series in ends if series is not None and len(series)]
    return max(found, default=steps[1] if steps else None)


def _stairs(opened: Opened, held: dict[str, Match], step: int) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for name, match in held.items():
        filled = dict(match.filled)
        if not _is_stair(match):
            continue
        what = match.metric.id.removeprefix(STAIR).partition("/")[0]
        value = _value_at(opened, name, step)
        if value is not None:
            place = filled["phase"], filled["moment"], filled["device"]
            names = dict(zip(("phase", "moment", "device"), place, strict=True))
            found.setdefault(place, names)[what] = value * (match.name.factor or 1.0)
    order = _phase_order(opened, step)
    phases = {phase: order.get(phase, len(order) + n) for n, phase in enumerate(dict.fromkeys(p for p, _, _ in found))}
    ordered = sorted(found, key=lambda place: (phases[place[0]], MOMENTS.index(place[1]), natural(place[2])))
    return [found[place] for place in ordered]


def _phase_order(opened: Opened, step: int) -> dict[str, int]:
    spans = opened.once("spans", lambda: opened.view.phases(), 2.0)
    return {name: place for place, name in enumerate(dict.fromkeys(s.name for s in spans if s.step == step))}


def _series(opened: Opened, name: str) -> Series | None:
    try:
        return series_of(opened, Wanted("", name))
    except RunNotFoundError:
        return None


def _value_at(opened: Opened, name: str, step: int) -> float | None:
    """Return what was logged for just this step."""
    series = _series(opened, name)
    if series is None:
        return None
    place = int(np.searchsorted(series.steps, step))
    return float(series.values[place]) if place < len(series) and series.steps[place] == step else None


def _capacity(opened: Opened, held: dict[str, Match]) -> dict[str, float]:
    """Return the size of each device: as the run found it, else from its peak, logged also as a fraction of it."""
    found = _sizes(opened.view)
    peaks = {frozenset(match.filled): name for name, match in held.items() if match.metric.id == PEAK}
    for name, match in held.items():
        device = dict(match.filled).get("device", "")
        if match.metric.id != FRACTION or device in found:
            continue
        peak = peaks.get(frozenset((*match.filled, ("moment", "end/onload"))))
        fraction = series_of(opened, Wanted("", name)).last
        if peak and fraction > 0:
            found[device] = series_of(opened, Wanted("", peak)).last / fraction
    return found


def _sizes(view: Readable) -> dict[str, float]:
    told = [event["devices"] for event in view.events() if event.get("event") == "devices" and "devices" in event]
    devices = [device for several in told for device in several if isinstance(device, dict)]
    return {str(device["index"]): device["total"] / GIB for device in devices if device.get("total")}
