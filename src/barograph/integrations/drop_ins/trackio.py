"""The interface of Trackio, recorded by barograph: ``import barograph.trackio as trackio``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.integrations.drop_ins.media import Histogram, Html, Table, Text
from barograph.integrations.drop_ins.recorded_run import CountingRun, CurrentRun

__all__ = ["Histogram", "Html", "Markdown", "Run", "Table", "alert", "finish", "init", "log"]

Markdown = Text


class Run(CountingRun):
    """A run of Trackio."""

    module = "trackio"


_current = CurrentRun("trackio", Run)


def init(
    project: str | None = None,
    name: str | None = None,
    group: str | None = None,
    *,
    config: Any = None,
    resume: str = "never",
    **ignored: Any,
) -> Run:
    """Begin a run, and return it; an open one is finished."""
    # Trackio continues the run of a name, which is not unique here.
    settings = {"project": project, "name": name, "group": group, "config": config}
    return _current.init(settings, ignored, reinit=True, resume=resume)


def log(metrics: Mapping[str, Any], step: int | None = None) -> None:
    """Log to the current run."""
    _current.call("log", metrics, step)


def alert(title: str, text: str = "", *args: Any, **kwargs: Any) -> None:
    """Record an alert as a text."""
    _current.call("alert", title, text)


def finish() -> None:
    """End the current run."""
    _current.finish()


def __getattr__(name: str) -> Any:
    return _current.attribute(name)
