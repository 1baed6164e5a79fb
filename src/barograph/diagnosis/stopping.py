"""Requests to end a training: the step at which all of its processes end, and the request of a person or program."""

from __future__ import annotations

import math

import numpy as np

from barograph.base.errors import BarographError
from barograph.base.files.mounts import is_remote
from barograph.journal import findings
from barograph.journal.findings import StopRequest
from barograph.journal.view import View

STOP_SECONDS = 3.0  # until every process of the run has seen a request to stop
REMOTE_STOP_SECONDS = 90.0  # where they see it through a network file system
MIN_STOP_STEPS = 2
MIN_SECONDS = 0.2  # between two steps, for the pace
PACE_POINTS = 20


def stop_step(view: View, step: int, pace: float | None) -> int | None:
    """Return the step to stop at, after a step: one that no process has done before it has seen the request.

    ``pace`` is in steps per second. If it is None and there are several processes, no step is known.
    """
    if len({(writer.role, writer.rank) for writer in view.writers()}) == 1:
        return step
    if pace is None:
        return None
    seconds = REMOTE_STOP_SECONDS if is_remote(view.path) else STOP_SECONDS
    return step + max(MIN_STOP_STEPS, math.ceil(seconds * pace))


def ask_to_stop(view: View, reason: str) -> StopRequest:
    """Ask the processes of a run to end, and return the request; raise BarographError where that has no effect.

    ``run.should_stop`` of the training tells it. A request that was made before since the run started stays.
    """
    if view.origin is not None:
        raise BarographError(f"run {view.id} is a log of another program, which does not hear of requests")
    if view.status.ended:
        raise BarographError(f"run {view.id} has ended: it is {view.status.word}")
    made = findings.read_stop(view.path)
    if made is not None and made.time >= _started(view):
        return made  # another one would name another step, which not every process may see in time
    step = stop_step(view, view.newest_step or 0, _pace(view))
    assert step is not None
    return findings.request_stop(view.path, step, reason)


def _started(view: View) -> float:
    starts = (event.get("time", 0.0) for event in view.events() if event.get("event") == "start")
    return max(starts, default=view.info.created)


def _pace(view: View) -> float:
    """Return the steps per second of the fastest of the last steps."""
    series = next((view.series(name) for name in view.names()), None)
    if series is None or len(series) < 2:
        return 1 / MIN_SECONDS
    seconds = np.maximum(np.diff(series.times[-PACE_POINTS:]), MIN_SECONDS)
    return float((np.diff(series.steps[-PACE_POINTS:]) / seconds).max())
