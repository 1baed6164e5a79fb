"""The interface of SwanLab, recorded by barograph: ``import barograph.swanlab as swanlab``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.base.model import Status
from barograph.integrations.drop_ins.media import Html, Text
from barograph.integrations.drop_ins.recorded_run import CountingRun, CurrentRun, from_environment

__all__ = ["Html", "Run", "Text", "finish", "get_run", "has_run", "init", "log", "login"]

VARIABLES = {
    "SWANLAB_PROJ_NAME": "project", "SWANLAB_PROJECT": "project", "SWANLAB_EXP_NAME": "name", "SWANLAB_RUN_ID": "id",
    "SWANLAB_GROUP": "group", "SWANLAB_MODE": "mode", "SWANLAB_LOG_DIR": "dir",
}  # fmt: skip


class Run(CountingRun):
    """A run of SwanLab."""

    module = "swanlab"

    def finish(self, state: Any = "success", error: str | None = None, **_: Any) -> None:
        """End the run; ``state`` may be that it has crashed."""
        self.end(Status("crashed", error or str(state)) if error or state in ("crashed", "aborted") else None)


_current = CurrentRun("swanlab", Run)


def init(
    project: str | None = None,
    workspace: str | None = None,
    experiment_name: str | None = None,
    description: str | None = None,
    *,
    name: str | None = None,
    id: str | None = None,
    group: str | None = None,
    tags: Any = None,
    config: Any = None,
    logdir: Any = None,
    log_dir: Any = None,
    mode: str | None = None,
    resume: Any = None,
    reinit: bool | None = None,
    **ignored: Any,
) -> Run:
    """Begin a run, and return it. An open one is returned, unless ``reinit`` is set."""
    settings = from_environment(
        VARIABLES, project=project, name=experiment_name or name, id=id, group=group, notes=description,
        tags=list(tags) if tags else None, config=config, dir=log_dir or logdir, mode=mode,
    )  # fmt: skip
    return _current.init(settings, ignored, reinit, resume)


def log(data: Mapping[str, Any], step: int | None = None, print_to_console: bool = False) -> None:
    """Log to the current run."""
    _current.call("log", data, step)


def get_run() -> Run | None:
    """Return the current run."""
    return _current.run


def has_run() -> bool:
    """Return whether there is a current run."""
    return _current.run is not None


def finish(state: Any = "success", error: str | None = None) -> None:
    """End the current run; ``state`` may be that it has crashed."""
    _current.finish(state, error)


def login(*_: Any, **__: Any) -> bool:
    """Return True: no account is needed."""
    return True


def __getattr__(name: str) -> Any:
    return _current.attribute(name)
