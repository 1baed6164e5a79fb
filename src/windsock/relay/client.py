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
from typing import IO, Any

from windsock.errors import TrackerError
from windsock.journal.folder import segment_path
from windsock.model import Status, Writer
from windsock.redaction import is_secret_key
from windsock.relay.delivery import GIVE_UP_SECONDS, Delivery
from windsock.relay.delivery_state import ENDED, FOLDER, NUMBERS, DeliveryState, is_free, lock_path, locked, read_desk
from windsock.relay.supervisor import BUSY, HANG_SECONDS, Orders, launch, run_end

START_SECONDS = 20.0
LOOK_SECONDS = 0.05
TEND_SECONDS = 1.0  # between two looks after the relay, while we wait for it
OWN_VARIABLES = {"trackio": ("HF_", "HUGGING", "TRACKIO_"), "mlflow": ("MLFLOW_", "DATABRICKS_", "AWS_", "AZURE_")}
"""Whose keys a tracker finds in the environment, besides those that begin with its own name."""


class _Client(ABC):
    """What both ways of carrying share."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._session = random_words.token_hex(8)

    @abstractmethod
    def desks(self) -> list[DeliveryState]:
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

    def _wait_for(
        self, is_so: Callable[[DeliveryState], bool], timeout: float, meanwhile: Callable[[], None] = lambda: None
    ) -> list[DeliveryState]:
        """Wait until every desk is as asked; return those that are not."""
        until = time.monotonic() + timeout
        while True:
            others = [desk for desk in self.desks() if not is_so(desk)]
            if not others or time.monotonic() >= until:
                return others
            meanwhile()
            time.sleep(LOOK_SECONDS)

    def _has_begun(self, desk: DeliveryState) -> bool:
        return desk.session == self._session and desk.state != "starting"

    def _check_started(self) -> None:
        """Raise for trackers that are set up wrongly, and tell of those that are out of reach or slow."""
        slow = {desk.tracker for desk in self._wait_for(self._has_begun, START_SECONDS)}
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

    def _left(self, desks: Iterable[DeliveryState], hope: str = "") -> list[str]:
        """Say what is still to come, and how."""
        texts = []
        for desk in desks:
            what = f"{desk.lag:,} rows" if desk.lag else "something"
            why = f" ({desk.error})" if desk.error else ""
            how = f"{hope if desk.state not in ENDED else ''}windsock sync {self._folder.name} delivers it"
            texts.append(f"tracker {desk.tracker!r} has {what} still to come{why}: {how}")
        return texts


class RelayClient(_Client):
    """Carries through the relay's processes. Where another process of the run has a relay already, that one does."""

    def __init__(
        self, folder: Path, trackers: Mapping[str, Mapping[str, Any]], say: Callable[[str], None], writer: Writer
    ) -> None:
        super().__init__(folder, say)
        self._trackers = trackers
        hang = float(os.environ.get("WINDSOCK_TRACKER_HANG_SECONDS") or HANG_SECONDS)
        give_up = float(os.environ.get("WINDSOCK_TRACKER_GIVE_UP_SECONDS") or GIVE_UP_SECONDS)
        keys = {name: own_keys(name, os.environ) for name in trackers}
        told = {name: dict(kwargs) for name, kwargs in trackers.items()}
        segment = segment_path(folder, writer, 0).name
        self._orders = Orders(self._session, told, keys, give_up, hang, segment, os.getcwd())
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._tend_at = 0.0

    def desks(self) -> list[DeliveryState]:
        """Return the desk of each tracker."""
        return [read_desk(self._folder, name) for name in self._trackers]

    def start(self) -> None:
        """Start the relay and wait until each tracker has begun or said why not."""
        try:
            self._launch()
        except OSError as problem:
            raise TrackerError(
                f"the relay cannot be started: {problem}; dir= says where runs are kept, and in_process=True feeds "
                "trackers from this process"
            ) from problem
        self._check_started()

    def _launch(self) -> None:
        log = self._folder / FOLDER / "relay.log"
        self._process = launch(str(self._folder.resolve()), log=log, orders=self._orders, detached=True)

    def _is_anothers(self) -> bool:
        """Tell whether another process of the run carries the rows."""
        return self._process is not None and self._process.poll() == BUSY

    def _has_begun(self, desk: DeliveryState) -> bool:
        return super()._has_begun(desk) or self._is_anothers()

    def _has_ended(self, desk: DeliveryState) -> bool:
        """Tell whether a tracker has everything, or what it has is all that it will get."""
        if desk.session == self._session:
            return desk.state in ENDED
        return desk.state == "done" and desk.has_all(self._folder)

    def abandon(self) -> None:
        """End what was started: the run will not be."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def maintain(self) -> None:
        """Start a relay where there is none and something is left to carry."""
        self._tend_at = time.monotonic() + TEND_SECONDS
        if os.getpid() != self._owner or self._process is None or self._process.poll() is None:
            return
        try:
            if is_free(self._folder) and not all(map(self._has_ended, self.desks())):
                self._say("the relay was gone and is started again; nothing is lost")
                self._launch()
        except OSError as problem:
            self._say(f"the relay cannot be started: {problem}; it is tried again")

    def _tend_now_and_then(self) -> None:
        if time.monotonic() >= self._tend_at:
            self.maintain()

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all is delivered; where other processes of the run live, the relay goes on for them."""
        if run_end(self._folder) is None:
            return []
        self._tend_at = 0.0
        left = self._wait_for(self._has_ended, timeout, self._tend_now_and_then)
        given_up = [desk for desk in self.desks() if desk.state == "given up"]
        if self._process is not None and not left:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        return self._left([*left, *given_up], "the relay goes on, and if it cannot, ")

    def after_fork_in_child(self) -> None:
        """Nothing here is open."""


class ThreadClient(_Client):
    """Carries from threads of the training process, to trackers that live there or where processes are forbidden.

    A tracker that shows what this process does gets this writer's rows alone and leaves nothing behind; the others get
    all rows of the run, once: from whichever of its processes comes first and, when that one has ended, from another.
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
        self._own = own
        self._waiting = dict(trackers)  # those that another process of the run feeds
        self._locks: list[IO[str]] = []
        self._couriers: list[Delivery] = []
        self._threads: list[threading.Thread] = []

    def desks(self) -> list[DeliveryState]:
        """Return the desk of each tracker."""
        return [courier.desk for courier in self._couriers]

    def start(self) -> None:
        """Start a thread for each tracker and wait until it has begun or said why not."""
        try:
            self._take()
        except OSError as problem:
            raise TrackerError(f"trackers cannot be fed: {problem}; dir= says where runs are kept") from problem
        self._check_started()

    def maintain(self) -> None:
        """Feed what another process has fed that is gone."""
        with suppress(OSError):  # of the directory, which is told elsewhere
            self._take()

    def _take(self) -> None:
        """Start a thread for each tracker that no other process of the run feeds."""
        for name in list(self._waiting):
            if name not in self._own:
                lock = locked(lock_path(self._folder, name))
                if lock is None:
                    continue
                self._locks.append(lock)
            courier = self._courier(name, self._waiting.pop(name))
            thread = threading.Thread(target=courier.carry, name=f"windsock-{name}", daemon=True)
            self._couriers.append(courier)
            self._threads.append(thread)
            thread.start()

    def _courier(self, name: str, kwargs: Mapping[str, Any]) -> Delivery:
        return Delivery(
            self._folder,
            name,
            kwargs,
            lambda: self._status,
            session=self._session,
            only=self._own.get(name),
            keep=name not in self._own,
            say=self._tell,
        )

    def _tell(self, desk: DeliveryState) -> None:
        if desk.state == "retrying" and desk.errors == 1:
            self._say(f"tracker {desk.tracker!r}: {desk.error}")

    def abandon(self) -> None:
        """End what was started: the run will not be."""
        for courier in self._couriers:
            courier.stop()
        for lock in self._locks:
            lock.close()

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Let the couriers end, and wait for them."""
        self.maintain()
        self._status = status
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        left = self._left(desk for desk in self.desks() if desk.state != "done")
        self.abandon()
        return left

    def after_fork_in_child(self) -> None:
        """Close the locks, which a child that outlives us would hold."""
        for lock in self._locks:
            lock.close()


def own_keys(tracker: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the keys in the environment that are a tracker's own."""
    prefixes = (f"{tracker.upper()}_", *OWN_VARIABLES.get(tracker, ()))
    return {n: v for n, v in environment.items() if n.upper().startswith(prefixes) and is_secret_key(n, v)}
