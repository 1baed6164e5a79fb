"""Accelerate: ``Accelerator(log_with="barograph")``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerate import tracking

from barograph.integrations.frameworks.run import begin_configured, record
from barograph.recording.run import Run


class BarographTracker(tracking.GeneralTracker):  # type: ignore[misc]
    """Record what ``accelerator.log`` is given. The settings are those of ``barograph.init``.

    Accelerate calls trackers in its main process only.
    """

    name = "barograph"
    requires_logging_directory = False

    def __init__(self, project: str | None = None, **settings: Any) -> None:
        super().__init__()
        self._project = project
        self._settings = settings
        self._run: Run | None = None

    @property
    def tracker(self) -> Run:
        """The run, which ``accelerator.get_tracker("barograph", unwrap=True)`` returns."""
        if self._run is None:
            known = {"project": self._project, "rank": 0, "world_size": 1}  # the other processes do not record
            self._run = begin_configured(known, self._settings)
        return self._run

    @tracking.on_main_process  # type: ignore[untyped-decorator]
    def start(self) -> None:
        """Begin the run."""
        _ = self.tracker

    @tracking.on_main_process  # type: ignore[untyped-decorator]
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Add the config to the run's."""
        self.tracker.update_config(values)

    @tracking.on_main_process  # type: ignore[untyped-decorator]
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Log numbers and texts. Without a step, each call is a step of its own."""
        record(self.tracker, values, step)

    @tracking.on_main_process  # type: ignore[untyped-decorator]
    def finish(self) -> None:
        """End the run."""
        self.tracker.finish()


if hasattr(tracking, "register_tracker_class"):  # since Accelerate 1.15
    tracking.LOGGER_TYPE_TO_CLASS.pop(BarographTracker.name, None)  # a module that is loaded again would warn
    tracking.register_tracker_class(BarographTracker)
