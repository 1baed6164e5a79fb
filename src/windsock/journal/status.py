"""Who is still alive: what a writer's events, its process and the clock say about it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from windsock.model import Status
from windsock.process import machine_id, process_start

HEARTBEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0  # without a heartbeat: something is wrong
LOST_SECONDS = 3600.0  # without a heartbeat from another machine: it is gone
IDLE_SECONDS = 1800.0  # heartbeats but no row: the training hangs


def writer_status(events: Iterable[dict[str, Any]], last_row: float | None, now: float | None = None) -> Status:
    """Tell how a writer is doing from its events and the time of its last row."""
    now = time.time() if now is None else now
    start: dict[str, Any] = {}
    heard = last_row or 0.0
    for event in events:
        heard = max(heard, float(event.get("time", 0.0)))
        if event.get("event") == "start":
            start = event
        elif event.get("event") == "finish":
            return Status(event.get("status", "finished"), event.get("reason", ""))
    if not start:
        return _by_silence(now - heard)
    if start.get("machine") != machine_id():
        return _by_silence(now - heard)
    if process_start(start.get("pid", -1)) != start.get("born"):
        return Status("killed", "its process is gone and said no farewell")
    if now - heard > SILENT_SECONDS:
        return Status("stalled", f"no heartbeat for {now - heard:.0f} s, though its process lives")
    idle = now - (last_row or float(start.get("time", now)))
    if idle > float(start.get("idle_seconds", IDLE_SECONDS)):
        return Status("stalled", f"nothing logged for {idle:.0f} s")
    return Status("running")


def _by_silence(silence: float) -> Status:
    """Judge a writer of another machine, of which only the journal can be seen."""
    if silence <= SILENT_SECONDS:
        return Status("running")
    if silence <= LOST_SECONDS:
        return Status("stalled", f"not heard of for {silence:.0f} s")
    return Status("killed", "not heard of for over an hour")


def run_status(writers: Iterable[Status]) -> Status:
    """Tell how a run is doing from how its writers are: alive while any is, else the worst of their ends."""
    statuses = list(writers)
    for word in ("running", "stalled", "crashed", "killed", "finished"):
        for status in statuses:
            if status.word == word:
                return status
    return Status("killed", "it never wrote anything")
