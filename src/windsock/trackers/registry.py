"""Finding trackers by name: ours, and those that other packages offer as entry points."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from windsock.errors import TrackerError
from windsock.trackers.protocol import Tracker

GROUP = "windsock.trackers"

OURS = {
    "stdout": "windsock.trackers.stdout:StdoutTracker",
    "jsonl": "windsock.trackers.jsonl:JsonlTracker",
    "tensorboard": "windsock.trackers.tensorboard:TensorBoardTracker",
    "wandb": "windsock.trackers.wandb:WandbTracker",
    "swanlab": "windsock.trackers.swanlab:SwanLabTracker",
    "mlflow": "windsock.trackers.mlflow:MlflowTracker",
    "trackio": "windsock.trackers.trackio:TrackioTracker",
    "prometheus": "windsock.trackers.prometheus:PrometheusTracker",
}


def names() -> list[str]:
    """Return the names of all trackers that can be asked for."""
    return sorted({*OURS, *(point.name for point in _offered())})


def make(name: str, kwargs: Mapping[str, Any]) -> Tracker:
    """Construct the tracker of that name with the user's arguments."""
    kind = _find(name)
    _check_arguments(name, kind, kwargs)
    try:
        tracker = kind(**kwargs)
    except TrackerError:
        raise
    except Exception as problem:
        raise TrackerError(f"tracker {name!r} cannot be set up: {type(problem).__name__}: {problem}") from problem
    if not isinstance(tracker, Tracker):
        raise TrackerError(f"tracker {name!r} ({kind!r}) lacks one of start, log, finish and in_process")
    return tracker


def _find(name: str) -> Any:
    if name in OURS:
        module, _, attribute = OURS[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    for point in _offered():
        if point.name == name:
            try:
                return point.load()
            except ImportError as problem:
                raise TrackerError(f"tracker {name!r} cannot be imported from {point.value}: {problem}") from problem
    near = difflib.get_close_matches(name, names(), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names())}"
    raise TrackerError(f"unknown tracker {name!r}: {hint}")


def _offered() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _check_arguments(name: str, kind: Any, kwargs: Mapping[str, Any]) -> None:
    """Refuse an argument that the tracker does not take, naming the nearest that it does."""
    parameters = inspect.signature(kind).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for given in kwargs:
        if given not in parameters:
            near = difflib.get_close_matches(given, parameters, 1, 0.5)
            takes = ", ".join(parameters) or "no arguments"
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {takes}"
            raise TrackerError(f"tracker {name!r}: unknown argument {given!r}; {hint}")
