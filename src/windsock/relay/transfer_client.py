"""The process that carries a run's bytes to another place, as the training process sees it."""

from __future__ import annotations

import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from windsock.errors import TrackerError
from windsock.model import Status
from windsock.relay.delivery_state import take_lock
from windsock.relay.processes import EXIT_BUSY, launch, without_secrets

LOOK_SECONDS = 0.05
MAX_PAUSE = 30.0


class TransferClient(ABC):
    """Starts the process, starts it again if it dies, and waits for the last bytes."""

    def __init__(self, folder: Path, lock: Path, warn: Callable[[str], None]) -> None:
        self._folder = folder  # of the segments
        self._lock = lock  # that the process takes
        self._warn = warn
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = 0
        self._again_at = 0.0

    @abstractmethod
    def _launch(self) -> subprocess.Popen[bytes]:
        """Start the process."""

    @abstractmethod
    def left(self) -> int:
        """Return how many bytes are still to be carried."""

    @abstractmethod
    def describe_left(self, left: int) -> str:
        """Return a message about bytes that are left at the end of the run."""

    @property
    @abstractmethod
    def what(self) -> str:
        """What the process does, in messages."""

    @property
    @abstractmethod
    def log_name(self) -> str:
        """The log of the process, in the folder."""

    @abstractmethod
    def values(self) -> dict[str, float]:
        """Return the number of bytes that are left, to be logged."""

    def _start_process(self, *arguments: str, options: Any = None) -> subprocess.Popen[bytes]:
        """Start a process of the relay; what secrets it needs are in the options."""
        log, environment = self._folder / self.log_name, without_secrets(os.environ)
        return launch("windsock.relay", *arguments, log=log, options=options, environment=environment, detached=True)

    def start(self) -> None:
        """Start the process."""
        try:
            self._process = self._launch()
        except OSError as problem:
            raise TrackerError(f"cannot start the process that {self.what}: {problem}") from problem

    def maintain(self) -> None:
        """Start the process again if it has died; after longer and longer pauses if it does not live long."""
        now = time.monotonic()
        code = self._process.poll() if self._process is not None else EXIT_BUSY
        if os.getpid() != self._owner or code is None or now < self._again_at:
            return
        if code == EXIT_BUSY and self._is_locked():
            return  # another process of this machine has one that runs
        self._restarts = 1 if now - self._again_at > MAX_PAUSE else self._restarts + 1
        self._again_at = now + min(2.0 ** min(self._restarts - 1, 10), MAX_PAUSE)
        log = self._folder / self.log_name
        self._warn(f"the process that {self.what} had exited and was started again; no byte is lost (see {log})")
        self.start()

    def _is_locked(self) -> bool:
        with suppress(OSError):
            lock = take_lock(self._lock)
            if lock is not None:
                lock.close()
            return lock is None
        return False

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all bytes are carried; return a message if some are left."""
        until = time.monotonic() + timeout
        self._again_at = 0.0
        while self._folder.exists() and (left := self.left()):
            if time.monotonic() >= until:
                return [self.describe_left(left)]
            with suppress(TrackerError):  # it is tried again
                self.maintain()
            time.sleep(LOOK_SECONDS)
        return []

    def after_fork_in_child(self) -> None:
        """Forget the process, which is the parent's."""
        self._process = None
