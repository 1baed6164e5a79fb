"""The doctor's process as the training process sees it: it is started, and started again if it dies."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from barograph.base.model import Status, Writer
from barograph.base.settings import Settings
from barograph.delivery.processes import EXIT_BUSY, launch
from barograph.journal import findings
from barograph.journal.findings import FOLDER
from barograph.journal.format.folder import segment_path

KEY_VARIABLE = "BAROGRAPH_WEBHOOK_KEY"
MAX_STARTS = 5
START_PAUSE = 30.0  # after which a process that died is started again, times the number of starts


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What the doctor's process needs to know, besides the run's directory."""

    segment: str = ""  # of the training process that started it
    webhook: str | None = None
    webhook_key: str = ""
    command: str | None = None
    stop_on: str | None = None


class DoctorClient:
    """Starts the doctor's process for a run. The training waits for it neither here nor at its end."""

    def __init__(self, folder: Path, settings: Settings, warn: Callable[[str], None], writer: Writer) -> None:
        self._folder = folder
        self._warn = warn
        self._options = WatchOptions(
            segment_path(folder, writer, 0).name,
            settings.finding_webhook,
            os.environ.get(KEY_VARIABLE, ""),
            settings.finding_command,
            settings.stop_on,
        )
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._again_at = 0.0

    def start(self) -> None:
        """Start the process."""
        with suppress(OSError):
            findings.remove_stop(self._folder)
        self._launch()

    def _launch(self) -> None:
        self._starts += 1
        self._again_at = time.monotonic() + START_PAUSE * self._starts
        environment = {name: value for name, value in os.environ.items() if name != KEY_VARIABLE}
        try:
            log = self._folder / FOLDER / "doctor.log"
            self._process = launch(
                "barograph.diagnosis.watch",
                str(self._folder.resolve()),
                log=log,
                options=self._options,
                environment=environment,
                directory=os.getcwd(),
                detached=True,
            )
        except OSError as problem:
            self._warn(f"cannot start the doctor: {problem}; barograph doctor {self._folder.name} looks at the run")

    def maintain(self) -> None:
        """Start the process again if it died."""
        # A forked child has a copy of the Popen object, but is not the parent of the process.
        if os.getpid() != self._owner or self._process is None or time.monotonic() < self._again_at:
            return
        if self._process.poll() not in (None, 0, EXIT_BUSY) and self._starts < MAX_STARTS:
            self._launch()

    def values(self) -> dict[str, float]:
        """Return nothing: the doctor has no metrics of its own."""
        return {}

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Return at once: the process sees that the run has ended."""
        return []

    def after_fork_in_child(self) -> None:
        """Do nothing: no file is open here."""
