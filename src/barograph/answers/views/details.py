"""Config, environment, writers, relay, events, texts and histograms of a run."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from barograph.answers.open_run import OpenRun
from barograph.answers.records import writer_records, writer_triples
from barograph.base.errors import RequestError
from barograph.base.formatting import flatten
from barograph.delivery.relay.state import read_delivery_states
from barograph.importers.summary import missing, run_warnings

T = TypeVar("T")

RELAY_FIELDS = (
    "tracker", "state", "since", "delivered", "lag", "lag_bytes", "dropped", "skipped", "errors", "error",
    "restarts", "url", "time",
)  # fmt: skip


def details_view(opened: OpenRun) -> dict[str, Any]:
    """Return a run's info, config, environment, writers, relay and notices."""
    view = opened.view
    config = view.config
    return {
        "version": opened.version,
        "info": asdict(view.info),
        "path": str(view.location),
        "origin": None if view.origin is None else asdict(view.origin),
        "config": config,
        "config_flat": [list(pair) for pair in flatten(config)],
        "environment": view.environment,
        "writers": writer_records(view),
        "attempts": writer_triples(view),
        "notices": run_warnings(view),
        "damage": view.damage(),
        "skipped": [
            {"name": name, "reason": reason, "count": count} for name, (reason, count) in view.skipped().items()
        ],
        "missing": missing(view),
        "relay": relay_state(view.path),
    }


def relay_state(folder: Path) -> list[dict[str, Any]]:
    """Return the delivery state of each tracker, without the relay's positions in segments."""
    try:
        states = read_delivery_states(folder)
    except (OSError, ValueError):  # being replaced, or written by a newer barograph
        return []
    return [{name: getattr(state, name) for name in RELAY_FIELDS} for state in states]


def events_view(opened: OpenRun, since: int, limit: int) -> dict[str, Any]:
    """Return the events from number ``since`` on, without heartbeats."""
    events = [event for event in opened.view.events() if event.get("event") != "heartbeat"]
    chosen, place = _page(events, since, limit)
    return {"events": chosen, **place}


def _page(items: list[T], since: int, limit: int) -> tuple[list[T], dict[str, int]]:
    """Return items from one on, a negative number counting from the end, and where the next page begins."""
    first = since if since >= 0 else max(0, len(items) + since)
    chosen = items[first : first + limit]
    return chosen, {"cursor": first + len(chosen), "total": len(items)}


def texts_view(opened: OpenRun, name: str | None, since: int, limit: int) -> dict[str, Any]:
    """Return the logged texts from number ``since`` on."""
    texts = opened.view.texts()
    chosen, place = _page([text for text in texts if name in (None, text.name)], since, limit)
    return {
        "names": list(dict.fromkeys(text.name for text in texts)),
        "texts": [asdict(text) for text in chosen],
        **place,
    }


def histograms_view(opened: OpenRun, name: str, points: int) -> dict[str, Any]:
    """Return at most ``points`` histograms of a name, evenly spaced over steps, always with the last one."""
    found = sorted(opened.view.histograms(name), key=lambda pair: math.inf if pair[0] is None else pair[0])
    if not found:
        raise RequestError(404, f"the run has no histograms named {name!r}; /names lists its histograms")
    # Counted from the end, so that a single point is the last one.
    places = np.unique(np.linspace(len(found) - 1, 0, min(points, len(found))).round().astype(int)).tolist()
    return {
        "name": name,
        "total": len(found),
        "histograms": [{"step": step, **asdict(histogram)} for step, histogram in (found[place] for place in places)],
    }
