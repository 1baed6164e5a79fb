"""What the hooks of all frameworks share: beginning a run, and logging under the steps that a framework names."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from windsock.errors import SettingsError, TrackerError
from windsock.formatting import describe_error
from windsock.run import Run
from windsock.session import init
from windsock.settings import OWN_SECTION


def begin_run(framework: Mapping[str, Any], settings: Mapping[str, Any]) -> Run:
    """Begin a run with the settings that a framework tells; the environment and ``settings`` take precedence.

    Wrong settings raise, before anything is trained. After any other failure the training goes on without a record.
    """
    try:
        return init({OWN_SECTION: framework}, **settings)
    except (SettingsError, TrackerError):
        raise
    except Exception as error:  # noqa: BLE001 - nothing may stop the training
        print(f"windsock: this training is not recorded: {describe_error(error)}", file=sys.stderr)
        return init(mode="disabled")


class StepLog:
    """Log values under the steps of a framework. A step is committed when a later one is logged."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._step: int | None = None

    def log(self, values: Mapping[str, Any], step: int | None) -> None:
        """Log numbers and texts; without a step they are a step of their own."""
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        if step is not None and (self._step is None or step > self._step):
            self.end()
            self._step = step
        self.run.log({name: value for name, value in values.items() if name not in texts}, step)
        for name, text in texts.items():
            self.run.text(name, text, step)
        if step is None:
            self.run.commit()

    def end(self) -> None:
        """Commit the step that was logged last, unless the training has done so."""
        step, self._step = self._step, None
        if step is not None and (self.run.step is None or self.run.step < step):
            self.run.commit(step)
