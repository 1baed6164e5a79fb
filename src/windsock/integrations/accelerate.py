"""Accelerate: ``Accelerator(log_with="windsock")``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerate import PartialState, tracking

from windsock.integrations.recording import StepLog, begin_run
from windsock.run import Run


class WindsockTracker(tracking.GeneralTracker):  # type: ignore[misc]
    """Record what ``accelerator.log`` is given. The settings are those of ``windsock.init``.

    Every process that starts its trackers records, as one rank of one run.
    """

    name = "windsock"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, project: str | None = None, **settings: Any) -> None:
        super().__init__()
        self._project = project
        self._settings = settings
        self._steps: StepLog | None = None

    @property
    def tracker(self) -> Run:
        """The run, which ``accelerator.get_tracker("windsock", unwrap=True)`` returns."""
        return self._started().run

    def start(self) -> None:
        """Begin the run."""
        self._started()

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Add the config to the run's."""
        self.tracker.update_config(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Log numbers and texts. Without a step, each call is a step of its own."""
        self._started().log(values, step)

    def finish(self) -> None:
        """End the run."""
        self._started().end()
        self.tracker.finish()

    def _started(self) -> StepLog:
        if self._steps is None:
            state = PartialState()
            known = {"project": self._project, "rank": state.process_index, "world_size": state.num_processes}
            self._steps = StepLog(begin_run(known, self._settings))
        return self._steps


if hasattr(tracking, "register_tracker_class"):  # since Accelerate 1.15
    tracking.LOGGER_TYPE_TO_CLASS.pop(WindsockTracker.name, None)  # a module that is loaded again would warn
    tracking.register_tracker_class(WindsockTracker)
