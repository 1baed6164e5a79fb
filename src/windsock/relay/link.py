"""What the training process holds of the relay: it starts it, sees that it lives, and waits for the last rows."""

from __future__ import annotations

import os
import secrets as random_words
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from windsock.errors import TrackerError
from windsock.model import Status, Writer
from windsock.relay.courier import GIVE_UP_SECONDS, Courier
from windsock.relay.desk import ENDED, FOLDER, NUMBERS, Desk, is_free, lock_path, locked, read_desk
from windsock.relay.supervisor import BUSY, HANG_SECONDS, Orders, launch, run_end
from windsock.secrets import is_secret_key

START_SECONDS = 20.0
LOOK_SECONDS = 0.05
OWN_VARIABLES = {"trackio": ("HF_", "HUGGING", "TRACKIO_"), "mlflow": ("MLFLOW_", "DATABRICKS_", "AWS_", "AZURE_")}
"""Whose keys a tracker finds in the environment, besides those that begin with its own name."""


class _Link(ABC):
    """What both ways of carrying share."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._session = random_words.token_hex(8)

    @abstractmethod
    def desks(self) -> list[Desk]:
        """Return the desk of each tracker."""

    @abstractmethod
    def abandon(self) -> None:
        """End what was started: the run will not be."""

    def values(self) -> dict[str, float]:
        """Return how the trackers are doing, to be logged."""
        found: dict[str, float] = {}
        for desk in self.desks():
            found[f"windsock/relay/{desk.tracker}/lag_rows"] = desk.lag
            found[f"windsock/relay/{desk.tracker}/errors"] = desk.errors
            found[f"windsock/relay/{desk.tracker}/state"] = NUMBERS[desk.state]
        return found

    def _wait_for(self, words: Callable[[Desk], bool], timeout: float) -> list[Desk]:
        """Wait until every desk of this session is as asked; return those that are not."""
        until = time.monotonic() + timeout
        while True:
            others = [desk for desk in self.desks() if desk.session != self._session or not words(desk)]
            if not others or time.monotonic() >= until or self._is_anothers():
                return others
            time.sleep(LOOK_SECONDS)

    def _is_anothers(self) -> bool:
        """Tell whether another process of the run carries the rows."""
        return False

    def _check_started(self) -> None:
        """Raise for trackers that are set up wrongly, and tell of those that are out of reach or slow."""
        slow = {desk.tracker for desk in self._wait_for(lambda desk: desk.state != "starting", START_SECONDS)}
        if self._is_anothers():
            return
        desks = self.desks()
        refused = [desk for desk in desks if desk.state == "refused" and desk.session == self._session]
        if refused:
            self.abandon()
            raise TrackerError("; ".join(desk.error for desk in refused))
        for desk in desks:
            if desk.tracker in slow:
                self._say(f"tracker {desk.tracker!r} takes long to start; the training begins, its rows follow")
            elif desk.state in ("retrying", "failing"):
                self._say(f"tracker {desk.tracker!r} is out of reach ({desk.error}); it is tried again and caught up")
            elif desk.url:
                self._say(f"tracker {desk.tracker!r}: {desk.url}")

    def _left(self, desks: Iterable[Desk], hope: str = "") -> list[str]:
        """Say what is still to come, and how."""
        texts = []
        for desk in desks:
            what = f"{desk.lag:,} rows" if desk.lag else "something"
            why = f" ({desk.error})" if desk.error else ""
            how = f"{hope if desk.state not in ENDED else ''}windsock sync {self._folder.name} delivers it"
            texts.append(f"tracker {desk.tracker!r} has {what} still to come{why}: {how}")
        return texts


class RelayLink(_Link):
    """Carries through the relay's processes. Where another process of the run has a relay already, that one does."""

    def __init__(self, folder: Path, trackers: Mapping[str, Mapping[str, Any]], say: Callable[[str], None]) -> None:
        super().__init__(folder, say)
        self._trackers = trackers
        hang = float(os.environ.get("WINDSOCK_TRACKER_HANG_SECONDS") or HANG_SECONDS)
        give_up = float(os.environ.get("WINDSOCK_TRACKER_GIVE_UP_SECONDS") or GIVE_UP_SECONDS)
        keys = {name: own_keys(name, os.environ) for name in trackers}
        self._orders = Orders(self._session, {name: dict(kw) for name, kw in trackers.items()}, keys, give_up, hang)
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    def desks(self) -> list[Desk]:
        """Return the desk of each tracker."""
        return [read_desk(self._folder, name) for name in self._trackers]

    def start(self) -> None:
        """Start the relay and wait until each tracker has begun or said why not."""
        self._launch()
        self._check_started()

    def _launch(self) -> None:
        try:
            log = self._folder / FOLDER / "relay.log"
            self._process = launch(str(self._folder.resolve()), log=log, orders=self._orders, detached=True)
        except OSError as problem:
            raise TrackerError(
                f"the relay cannot be started: {problem}; in_process=True feeds trackers from this process"
            ) from problem

    def _is_anothers(self) -> bool:
        return self._process is not None and self._process.poll() == BUSY

    def abandon(self) -> None:
        """End what was started: the run will not be."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def tend(self) -> None:
        """Start a relay where there is none and something is left to carry."""
        if self._process is None or os.getpid() != self._owner or self._process.poll() is None:
            return
        if is_free(self._folder) and any(desk.state not in ENDED for desk in self.desks()):
            self._say("the relay was gone and is started again; nothing is lost")
            self._launch()

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all is delivered; where other processes of the run live, the relay goes on for them."""
        if run_end(self._folder) is None or self._is_anothers():
            return []
        left = self._wait_for(lambda desk: desk.state in ENDED, timeout)
        given_up = [desk for desk in self.desks() if desk.state == "given up"]
        if self._process is not None and not left:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        return self._left([*left, *given_up], "the relay goes on, and if it cannot, ")


class ThreadLink(_Link):
    """Carries from threads of the training process, to trackers that live there or where processes are forbidden.

    A tracker that shows what this process does gets this writer's rows alone and leaves nothing behind; the others get
    all rows of the run, once, whichever of its processes comes first.
    """

    def __init__(
        self,
        folder: Path,
        trackers: Mapping[str, Mapping[str, Any]],
        say: Callable[[str], None],
        own: Mapping[str, Writer] = MappingProxyType({}),
    ) -> None:
        super().__init__(folder, say)
        self._status: Status | None = None
        self._locks = {name: locked(lock_path(folder, name)) for name in trackers if name not in own}
        self._couriers = [
            Courier(
                folder,
                name,
                kwargs,
                lambda: self._status,
                session=self._session,
                only=own.get(name),
                keep=name not in own,
                say=self._tell,
            )
            for name, kwargs in trackers.items()
            if name in own or self._locks[name] is not None
        ]
        self._threads = [
            threading.Thread(target=courier.carry, name=f"windsock-{courier.desk.tracker}", daemon=True)
            for courier in self._couriers
        ]

    def desks(self) -> list[Desk]:
        """Return the desk of each tracker."""
        return [courier.desk for courier in self._couriers]

    def start(self) -> None:
        """Start a thread for each tracker and wait until it has begun or said why not."""
        for thread in self._threads:
            thread.start()
        self._check_started()

    def _tell(self, desk: Desk) -> None:
        if desk.state == "retrying" and desk.errors == 1:
            self._say(f"tracker {desk.tracker!r}: {desk.error}")

    def abandon(self) -> None:
        """End what was started: the run will not be."""
        for courier in self._couriers:
            courier.stop()
        self._unlock()

    def tend(self) -> None:
        """Threads need no looking after."""

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Let the couriers end, and wait for them."""
        self._status = status
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        left = self._left(desk for desk in self.desks() if desk.state != "done")
        self.abandon()
        return left

    def _unlock(self) -> None:
        for lock in self._locks.values():
            if lock is not None:
                lock.close()


def own_keys(tracker: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the keys in the environment that are a tracker's own."""
    prefixes = (f"{tracker.upper()}_", *OWN_VARIABLES.get(tracker, ()))
    return {n: v for n, v in environment.items() if n.upper().startswith(prefixes) and is_secret_key(n, v)}
