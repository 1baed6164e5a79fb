"""Registry of trackers by name.

It has the built-in ones, those of other packages' entry points, and the check for the packages that they need.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from barograph.base.errors import TrackerError, did_you_mean
from barograph.base.installation import install_command
from barograph.recording.tracker import Tracker


def require_package(tracker: str, package: str | None = None) -> None:
    """Raise ``TrackerError`` with the install command where a tracker's package is missing; import nothing."""
    found = importlib.util.find_spec(package or tracker)
    # A folder ./wandb or ./mlflow of earlier runs is found as a namespace package, which has no origin.
    if found is None or found.origin is None:
        raise TrackerError(f"tracker {tracker!r} is not installed: {install_command(tracker)}")


GROUP = "barograph.trackers"

# Names of modules: a tracker is imported only when it is used.
BUILT_IN = {
    "stdout": "barograph.delivery.trackers.text:StdoutTracker",
    "jsonl": "barograph.delivery.trackers.text:JsonlTracker",
    "tensorboard": "barograph.delivery.trackers.tensorboard:TensorBoardTracker",
    "wandb": "barograph.delivery.trackers.wandb:WandbTracker",
    "swanlab": "barograph.delivery.trackers.swanlab:SwanLabTracker",
    "mlflow": "barograph.delivery.trackers.mlflow:MlflowTracker",
    "trackio": "barograph.delivery.trackers.trackio:TrackioTracker",
    "prometheus": "barograph.delivery.trackers.prometheus:PrometheusTracker",
}


def names() -> list[str]:
    """Return the names of all available trackers."""
    return sorted({*BUILT_IN, *(point.name for point in _entry_points())})


def make(name: str, kwargs: Mapping[str, Any]) -> Tracker:
    """Construct a tracker with the user's arguments."""
    kind = _find(name)
    _check_arguments(name, kind, kwargs)
    try:
        tracker = kind(**kwargs)
    except TrackerError:
        raise
    except Exception as problem:
        raise TrackerError(f"tracker {name!r} cannot be set up: {type(problem).__name__}: {problem}") from problem
    if not isinstance(tracker, Tracker):
        raise TrackerError(f"tracker {name!r} ({kind!r}) is missing start, log, finish or in_process")
    return tracker


def _find(name: str) -> Any:
    # Before the entry points, so that no installed package can replace a built-in tracker.
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    for point in _entry_points():
        if point.name == name:
            try:
                return point.load()
            except ImportError as problem:
                raise TrackerError(f"tracker {name!r} cannot be imported from {point.value}: {problem}") from problem
    hint = did_you_mean(name, names(), f"known trackers: {', '.join(names())}")
    raise TrackerError(f"unknown tracker {name!r}: {hint}")


def _entry_points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _check_arguments(name: str, kind: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise for an argument that the tracker does not take, with the nearest name."""
    parameters = inspect.signature(kind).parameters
    # A tracker with **kwargs checks its arguments itself.
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for given in kwargs:
        if given not in parameters:
            hint = did_you_mean(given, parameters, f"expected {', '.join(parameters) or 'no arguments'}", cutoff=0.5)
            raise TrackerError(f"tracker {name!r}: unknown argument {given!r}; {hint}")
