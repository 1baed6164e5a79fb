"""The thread that maintains a run beside the training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MAINTENANCE_SECONDS = 1.0


class BackgroundThread:
    """Thread that calls ``once`` at its start, ``maintain`` every second and ``heartbeat`` every ``heartbeat_seconds``.

    The functions must not raise.
    """

    def __init__(
        self,
        once: Callable[[], None],
        maintain: Callable[[], None],
        heartbeat: Callable[[], None],
        heartbeat_seconds: float,
    ) -> None:
        self._once = once
        self._maintain = maintain
        self._heartbeat = heartbeat
        self._heartbeat_seconds = heartbeat_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="barograph-background", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = MAINTENANCE_SECONDS * 5) -> None:
        """Stop the thread, and wait for what it is doing."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _loop(self) -> None:
        next_heartbeat = time.monotonic() + self._heartbeat_seconds
        self._stop.wait(MAINTENANCE_SECONDS)  # leave the interpreter to the first steps, which people watch
        self._once()
        while not self._stop.wait(MAINTENANCE_SECONDS):
            self._maintain()
            if time.monotonic() >= next_heartbeat:
                next_heartbeat += self._heartbeat_seconds
                self._heartbeat()
