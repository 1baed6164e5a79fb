"""Memory of a step: the four moments of every phase by device, and the names of peaks and host memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from barograph.answers.open_run import OpenRun
from barograph.answers.responses import bilingual
from barograph.answers.views.charts import metric_records
from barograph.base.formatting import natural
from barograph.catalogue.names import Match
from barograph.catalogue.registry import placeholder_choices
from barograph.journal.view import View
from barograph.metrics.probe_values import GIB

LEVELS = ("allocated", "reserved", "max_allocated", "max_reserved")
STAIR = "memory/{phase}/{moment}/"
FRACTION = "memory/{phase}/end/onload/max_reserved_frac/{device}"
PEAK = "memory/{phase}/{moment}/max_reserved/{device}"
STEP_PEAKS = ("memory/step/max_allocated", "memory/step/max_reserved")
MOMENTS = list(placeholder_choices("moment"))


def memory_view(opened: OpenRun, step: int | None) -> dict[str, Any]:
    """Return the memory of a step; by default of the last step that recorded any."""
    memory_metrics = {name: match for name, match in opened.matches().items() if match.metric.family == "memory"}
    at = _last_step(opened, memory_metrics) if step is None else step
    stairs = _stairs(opened, memory_metrics, at) if at is not None else []
    return {
        "step": at,
        "steps": opened.view.steps,
        "unit": "GiB",
        "devices": sorted({stair["device"] for stair in stairs}, key=natural),
        "capacity": _capacity(opened, memory_metrics),
        "stairs": stairs,
        "peaks": {
            "max_allocated": [name for name, match in memory_metrics.items() if "/max_allocated/" in match.metric.id],
            "step": [name for name, match in memory_metrics.items() if match.metric.id in STEP_PEAKS],
        },
        "host": [*_names_under(memory_metrics, "memory/host/"), *_names_under(memory_metrics, "memory/cpu/")],
        "moments": {moment: bilingual(text) for moment, text in placeholder_choices("moment").items()},
        "metrics": metric_records(match.metric.id for match in memory_metrics.values()),
    }


def _names_under(memory_metrics: dict[str, Match], start: str) -> list[str]:
    return [name for name, match in memory_metrics.items() if match.metric.id.startswith(start)]


def _is_stair(match: Match) -> bool:
    what = match.metric.id.removeprefix(STAIR).partition("/")[0]
    return match.metric.id.startswith(STAIR) and what in LEVELS and "device" in dict(match.filled)


def _last_step(opened: OpenRun, memory_metrics: dict[str, Match]) -> int | None:
    """Return the last step with memory of a phase, else the run's last step."""
    ends = [opened.find_series(name) for name, match in memory_metrics.items() if _is_stair(match)]
    steps = opened.view.steps
    found = [int(series.steps[-1]) for series in ends if series is not None and len(series)]
    return max(found, default=steps[1] if steps else None)


def _stairs(opened: OpenRun, memory_metrics: dict[str, Match], step: int) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for name, match in memory_metrics.items():
        filled = dict(match.filled)
        if not _is_stair(match):
            continue
        what = match.metric.id.removeprefix(STAIR).partition("/")[0]
        value = _value_at(opened, name, step)
        if value is not None:
            place = filled["phase"], filled["moment"], filled["device"]
            names = dict(zip(("phase", "moment", "device"), place, strict=True))
            found.setdefault(place, names)[what] = value * (match.name.factor or 1.0)
    # Phases are shown in the order in which they ran; those without spans follow.
    order = _phase_order(opened, step)
    phases = {phase: order.get(phase, len(order) + n) for n, phase in enumerate(dict.fromkeys(p for p, _, _ in found))}
    ordered = sorted(found, key=lambda place: (phases[place[0]], MOMENTS.index(place[1]), natural(place[2])))
    return [found[place] for place in ordered]


def _phase_order(opened: OpenRun, step: int) -> dict[str, int]:
    table = opened.span_table()
    names = [table.texts[number] for number in table.column("name")[table.steps == step].tolist()]
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def _value_at(opened: OpenRun, name: str, step: int) -> float | None:
    """Return the value that was logged at this step, or None."""
    series = opened.find_series(name)
    if series is None:
        return None
    place = int(np.searchsorted(series.steps, step))
    return float(series.values[place]) if place < len(series) and series.steps[place] == step else None


def _capacity(opened: OpenRun, memory_metrics: dict[str, Match]) -> dict[str, float]:
    """Return the size of each device: as recorded, else its peak divided by the peak's logged fraction."""
    found = _device_sizes(opened.view)
    peaks = {frozenset(match.filled): name for name, match in memory_metrics.items() if match.metric.id == PEAK}
    for name, match in memory_metrics.items():
        device = dict(match.filled).get("device", "")
        if match.metric.id != FRACTION or device in found:
            continue
        peak = peaks.get(frozenset((*match.filled, ("moment", "end/onload"))))
        fraction = opened.series(name).last
        if peak and fraction > 0:
            found[device] = opened.series(peak).last / fraction
    return found


def _device_sizes(view: View) -> dict[str, float]:
    devices = [device for event in view.events() if event.get("event") == "devices" for device in event["devices"]]
    return {str(device["index"]): device["total"] / GIB for device in devices if device.get("total")}
