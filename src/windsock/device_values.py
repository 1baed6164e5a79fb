"""Logged scalars that are still on an accelerator."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from windsock.device_copy.copies import relaxed_capture_mode
from windsock.recording import Collector, Recording
from windsock.scalars import Deferred


class DeviceValues(Collector):
    """Rows of device scalars whose copies to the host are under way. They are written in the order logged.

    After an error of the device every further question to it raises. A row whose values cannot be fetched is reported
    and dropped; it costs no other row.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.after_fork()

    def after_fork(self) -> None:
        """Drop the rows: the parent writes them."""
        self._rows: list[tuple[tuple[str, ...], int | None, float, Deferred]] = []
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere

    def add(self, tensors: Mapping[str, Any], step: int | None) -> None:
        """Start copying one-element tensors to the host; nothing waits here."""
        row = tuple(tensors), step, time.time(), Deferred(tensors.values())
        with self._lock:
            self._rows.append(row)

    def write_ready(self) -> None:
        """Write the rows whose values have arrived, from another thread than the training's."""
        if self._rows:
            with relaxed_capture_mode():
                self._write(wait=False)

    def _write(self, wait: bool) -> None:
        with self._lock:
            while self._rows:
                names, step, at, values = self._rows[0]
                try:
                    if not wait and not values.ready():
                        return
                    numbers = values.values()
                except Exception as error:  # noqa: BLE001 - whatever the device raises
                    self._rows.pop(0)
                    self._recording.problems.report("copy of device values", error)
                    continue
                self._rows.pop(0)
                # A name that is no string costs its row only, and keeps no later one from its step.
                self._recording.problems.attempt(
                    "copy of device values", self._recording.journal.row, names, numbers, step, at
                )

    def commit(self, step: int) -> None:
        """Write all rows, waiting for the device."""
        self._write(wait=True)

    def finish(self) -> None:
        """Write all rows, waiting for the device."""
        self._write(wait=True)
