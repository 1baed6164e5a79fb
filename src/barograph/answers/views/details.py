"""Config, environment, writers, relay, events, texts and histograms of a run."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from barograph.answers.open_run import OpenRun
from barograph.answers.records import writer_records, writer_triples
from barograph.base.errors import RequestError
from barograph.base.formatting import flatten
from barograph.delivery.relay.state import read_delivery_states
from barograph.importers.summary import missing, run_warnings

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
    first = _first(since, len(events))
    chosen = events[first : first + limit]
    return {"events": chosen, "cursor": first + len(chosen), "total": len(events)}


def _first(since: int, total: int) -> int:
    """Return the index of the first requested item; a negative one counts from the end."""
    return since if since >= 0 else max(0, total + since)


def texts_view(opened: OpenRun, name: str | None, since: int, limit: int) -> dict[str, Any]:
    """Return the logged texts from number ``since`` on."""
    texts = opened.view.texts()
    wanted = [text for text in texts if name in (None, text.name)]
    first = _first(since, len(wanted))
    chosen = wanted[first : first + limit]
    return {
        "names": list(dict.fromkeys(text.name for text in texts)),
        "texts": [asdict(text) for text in chosen],
        "cursor": first + len(chosen),
        "total": len(wanted),
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
