"""The doctor's process as the training process sees it: it is started, and started again if it dies."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from barograph.base.model import Writer
from barograph.base.settings import Settings
from barograph.delivery.processes import EXIT_BUSY, HelperProcess, launch
from barograph.journal import findings
from barograph.journal.findings import FOLDER
from barograph.journal.format.folder import segment_path
from barograph.recording.tracker import DeliveryClient

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


class DoctorClient(DeliveryClient):
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
        self._helper = HelperProcess(self._process)
        self._starts = 0

    def start(self) -> None:
        """Start the process."""
        with suppress(OSError):
            findings.remove_stop(self._folder)
        self._launch()

    def _launch(self) -> None:
        self._starts += 1
        self._helper.pause(START_PAUSE * self._starts)
        try:
            self._helper.start()
        except OSError as problem:
            self._warn(f"cannot start the doctor: {problem}; barograph doctor {self._folder.name} looks at the run")

    def _process(self) -> subprocess.Popen[bytes]:
        return launch(
            "barograph.diagnosis.watch",
            str(self._folder.resolve()),
            log=self._folder / FOLDER / "doctor.log",
            options=self._options,
            environment={name: value for name, value in os.environ.items() if name != KEY_VARIABLE},
            directory=os.getcwd(),
            detached=True,
        )

    def maintain(self) -> None:
        """Start the process again if it died."""
        if self._helper.exit_code() not in (None, 0, EXIT_BUSY) and self._starts < MAX_STARTS:
            self._launch()
