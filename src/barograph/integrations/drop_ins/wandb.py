"""The interface of W&B, recorded by barograph: ``import barograph.wandb as wandb``.

Steps are W&B's: a row is written when the step rises, or when a call commits it; values of a step below the current
one are dropped. What has no counterpart is told once and does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

from barograph.base.formatting import flattened
from barograph.base.model import Status
from barograph.importers.reading.values import as_step
from barograph.integrations.drop_ins.media import Histogram, Html, Table
from barograph.integrations.drop_ins.recorded_run import Config, CurrentRun, RecordedRun, from_environment
from barograph.integrations.guard import tell, tell_once, unharmed
from barograph.recording.run import Run as Recorded

__all__ = [
    "Config", "Error", "Histogram", "Html", "Run", "Summary", "Table", "alert", "define_metric", "errors", "finish",
    "init", "join", "log", "login", "setup", "teardown",
]  # fmt: skip

VARIABLES = {
    "WANDB_PROJECT": "project", "WANDB_NAME": "name", "WANDB_RUN_ID": "id", "WANDB_RUN_GROUP": "group",
    "WANDB_TAGS": "tags", "WANDB_NOTES": "notes", "WANDB_MODE": "mode", "WANDB_DIR": "dir",
}  # fmt: skip


class Error(Exception):
    """The error of W&B, for ``except``; it is never raised."""


errors = SimpleNamespace(Error=Error, CommError=Error, UsageError=Error, AuthenticationError=Error)


class Summary(dict[str, Any]):
    """The last value of every name. What is set here is recorded at the last step."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        object.__setattr__(self, "_run", run)

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:  # type: ignore[override]
        """Set values."""
        given = {**(values or {}), **more}
        super().update(given)
        self._run.record_summary(given)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Run(RecordedRun):
    """A run of W&B."""

    module = "wandb"
    separator = "."

    def __init__(self, run: Recorded, config: Config) -> None:
        super().__init__(run, config)
        self.summary = Summary(self)
        self.starting_step = self.step = 0
        self._axes: dict[str, str] = {}  # pattern of names to the name that has their steps
        self._positions: dict[str, int] = {}  # the last step of each of those
        self._row: dict[str, Any] = {}  # of the current step, where an axis may name it
        self._last = 0  # the step of the last row
        self._dropped = 0  # calls with a step below the current one
        self._lock = threading.RLock()

    def go_to(self, step: int) -> None:
        """Continue at a step."""
        self.starting_step = self.step = self._last = step

    @unharmed
    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: bool | None = None
    ) -> None:
        """Add values to the row of a step, and write it if ``commit`` is set or there is neither it nor a step."""
        if not isinstance(data, Mapping):
            tell_once(f"wandb.log: expected a dictionary, got {type(data).__name__}: nothing is recorded")
            return
        with self._lock:
            if step is not None and not self._go_to(int(step)):
                return
            self._add(data)
            if commit or (commit is None and step is None):
                self._write_row()
                self.step += 1

    def define_metric(self, name: Any, step_metric: Any = None, *_: Any, **__: Any) -> Any:
        """Let the steps of some names be the values of another one, where these are whole numbers."""
        pattern, axis = (getattr(one, "name", one) for one in (name, step_metric))
        if axis:
            self._axes[str(pattern)] = str(axis)
        return SimpleNamespace(name=pattern)

    def get_url(self) -> str:
        """Return the run's folder as a file URL."""
        return self.url

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run; an exit code other than 0 is a crash."""
        self.end(Status("crashed", f"exit code {exit_code}") if exit_code else None)

    def end(self, status: Status | None = None) -> None:
        """Write the last row and end the run."""
        with self._lock:
            self._write_row()
        super().end(status)

    def record_summary(self, values: Mapping[str, Any]) -> None:
        """Record values of the summary at the last step."""
        self.record(values, self._last)

    def _go_to(self, step: int) -> bool:
        """Begin the row of a step, unless it is the current one; return whether it may still be written."""
        if step < self.step:
            if not self._dropped:
                tell(
                    f"wandb.log: step {step} comes after {self.step}; W&B drops the values of such steps: so does this"
                )
            self._dropped += 1
            return False
        if step > self.step:
            self._write_row()
            self.step = step
        return True

    def _add(self, data: Mapping[str, Any]) -> None:
        # At once, so that nothing is lost if the process is killed. Where an axis may give the row another step, the
        # values belong to the commit of the row.
        recorded = self.record(data, None if self._axes else self.step)
        dict.update(self.summary, recorded)
        self._row |= dict(flattened(data, separator=self.separator)) if self._axes else dict.fromkeys(data)
        self._last = self._last if self._axes else self.step

    def _write_row(self) -> None:
        if self._row:
            self._last = self._step_of_row()
            self.recorded.commit(self._last)
        self._row = {}

    def _step_of_row(self) -> int:
        """Return the step of the row: that of the axis of its names, else W&B's own, as a log of W&B is read."""
        for pattern, axis in sorted(self._axes.items(), key=lambda pair: pair[0] == "*"):  # which is for all others
            if any(fnmatchcase(name, pattern) for name in self._row):
                step = as_step(self._row.get(axis))
                if step is not None:
                    self._positions[axis] = step
                if axis in self._positions:
                    return self._positions[axis]
        return self.step


_current = CurrentRun("wandb", Run)


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: Any = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Any = None,
    config: Any = None,
    config_exclude_keys: Any = None,
    config_include_keys: Any = None,
    allow_val_change: bool | None = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    force: bool | None = None,
    reinit: Any = None,
    resume: Any = None,
    **ignored: Any,
) -> Run:
    """Begin a run, and return it. As with W&B, one that is open is returned, unless ``reinit`` asks for a new one."""
    settings = from_environment(
        VARIABLES, project=project, name=name, id=id, group=group, notes=notes, dir=dir, mode=mode,
        tags=list(tags) if tags and not isinstance(tags, str) else tags, config=config,
    )  # fmt: skip
    excluded = {"config_exclude_keys": config_exclude_keys, "config_include_keys": config_include_keys}
    return _current.init(settings, ignored | excluded, reinit, resume)


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: bool | None = None) -> None:
    """Log to the current run."""
    _current.call("log", data, step, commit)


def define_metric(name: Any, step_metric: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Define the steps of some names of the current run."""
    return _current.call("define_metric", name, step_metric)


def alert(title: str, text: str = "", *args: Any, **kwargs: Any) -> None:
    """Record an alert as a text."""
    _current.call("alert", title, text)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the current run."""
    _current.finish(exit_code)


join = teardown = finish


def login(*_: Any, **__: Any) -> bool:
    """Return True: no account is needed."""
    return True


def setup(*_: Any, **__: Any) -> None:
    """Do nothing: no service is needed."""


def __getattr__(name: str) -> Any:
    return _current.attribute(name)
