"""Delivery as the training process sees it: it starts the relay, restarts it, and waits for the last rows."""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from barograph.base.errors import TrackerError
from barograph.base.model import Status, Writer
from barograph.base.secrets import is_secret_key
from barograph.delivery.processes import EXIT_BUSY, HelperProcess, launch, take_lock
from barograph.delivery.relay.delivery import GIVE_UP_SECONDS, Delivery
from barograph.delivery.relay.state import (
    ENDED,
    FOLDER,
    STATE_NUMBERS,
    DeliveryState,
    lock_path,
    read_delivery_state,
    relay_is_running,
)
from barograph.delivery.relay.supervisor import HANG_SECONDS, RelayOptions, run_end
from barograph.journal.format.folder import segment_path
from barograph.recording.tracker import DeliveryClient

START_SECONDS = 20.0
LOOK_SECONDS = 0.05
MAINTAIN_SECONDS = 1.0  # between two looks at whether a relay that has exited is needed
SECRET_PREFIXES = {"trackio": ("HF_", "HUGGING", "TRACKIO_"), "mlflow": ("MLFLOW_", "DATABRICKS_", "AWS_", "AZURE_")}
"""Prefixes of the variables in which a tracker looks for secrets, besides its own name."""


class _Client(DeliveryClient, ABC):
    """Base of the clients: delivery through the relay's processes, or from threads of this process."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn
        self._session = secrets.token_hex(8)  # tells the states that this start wrote from those of earlier ones

    @abstractmethod
    def states(self) -> list[DeliveryState]:
        """Return the delivery state of each tracker."""

    @abstractmethod
    def stop(self) -> None:
        """Stop delivering: the run could not be started, or has been delivered."""

    def values(self) -> dict[str, float]:
        """Return lag, errors and state of each tracker, to be logged."""
        found: dict[str, float] = {}
        for state in self.states():
            found[f"barograph/relay/{state.tracker}/lag_rows"] = state.lag
            found[f"barograph/relay/{state.tracker}/lag_bytes"] = state.lag_bytes
            found[f"barograph/relay/{state.tracker}/errors"] = state.errors
            found[f"barograph/relay/{state.tracker}/state"] = STATE_NUMBERS[state.state]
        return found

    def _wait_for(
        self, condition: Callable[[DeliveryState], bool], timeout: float, meanwhile: Callable[[], None] = lambda: None
    ) -> list[DeliveryState]:
        """Wait until the condition holds for every delivery state; return those for which it does not."""
        until = time.monotonic() + timeout
        while True:
            others = [state for state in self.states() if not condition(state)]
            if not others or time.monotonic() >= until:
                return others
            meanwhile()
            time.sleep(LOOK_SECONDS)

    def _has_started(self, state: DeliveryState) -> bool:
        return state.session == self._session and state.state != "starting"

    def _check_started(self) -> None:
        """Raise TrackerError for trackers with a wrong configuration; warn of those that are unreachable or slow."""
        slow = {state.tracker for state in self._wait_for(self._has_started, START_SECONDS)}
        states = self.states()
        refused = [state for state in states if state.state == "refused" and state.session == self._session]
        if refused:
            self.stop()
            raise TrackerError("; ".join(state.error for state in refused))
        for state in states:
            if state.tracker in slow:
                self._warn(f"tracker {state.tracker!r} has not started after {START_SECONDS:.0f} s; rows follow later")
            elif state.state in ("retrying", "failing"):
                self._warn(f"tracker {state.tracker!r} is unreachable ({state.error}); retrying, rows follow later")
            elif state.url:
                self._warn(f"tracker {state.tracker!r}: {state.url}")

    def _undelivered(self, states: Iterable[DeliveryState], meanwhile: str = "") -> list[str]:
        """Return a message for each tracker that lacks rows, with what to do."""
        texts = []
        for state in states:
            what = state.pending or "rows"
            why = f" ({state.error})" if state.error else ""
            # A delivery that has ended does not go on by itself.
            how = f"{meanwhile if state.state not in ENDED else ''}barograph sync {self._folder.name} delivers them"
            texts.append(f"tracker {state.tracker!r}: {what} not delivered yet{why}; {how}")
        return texts


class RelayClient(_Client):
    """Delivers through the relay's processes; if another process of the run has started a relay, through that one."""

    def __init__(
        self, folder: Path, trackers: Mapping[str, Mapping[str, Any]], warn: Callable[[str], None], writer: Writer
    ) -> None:
        super().__init__(folder, warn)
        self._trackers = trackers
        hang = float(os.environ.get("BAROGRAPH_TRACKER_HANG_SECONDS") or HANG_SECONDS)
        give_up = float(os.environ.get("BAROGRAPH_TRACKER_GIVE_UP_SECONDS") or GIVE_UP_SECONDS)
        secret_variables = {name: tracker_secrets(name, os.environ) for name in trackers}
        arguments = {name: dict(kwargs) for name, kwargs in trackers.items()}
        segment = segment_path(folder, writer, 0).name
        self._options = RelayOptions(
            self._session, arguments, secret_variables, give_up, hang, segment, directory=os.getcwd()
        )
        self._helper = HelperProcess(self._launch)

    def states(self) -> list[DeliveryState]:
        """Return the delivery state of each tracker."""
        return [read_delivery_state(self._folder, name) for name in self._trackers]

    def start(self) -> None:
        """Start the relay and wait until each tracker has started or failed."""
        try:
            relay_is_running(self._folder)  # raises where the lock cannot be taken, which the relay could not tell
            self._helper.start()
        except OSError as problem:
            raise TrackerError(
                f"cannot start the relay: {problem}; choose another directory with dir=, or deliver from this process "
                "with in_process=True"
            ) from problem
        self._check_started()

    def _launch(self) -> subprocess.Popen[bytes]:
        folder, log, options = str(self._folder.resolve()), self._folder / FOLDER / "relay.log", self._options
        return launch(
            "barograph.delivery.relay", folder, log=log, options=options, directory=options.directory, detached=True
        )

    def _has_started(self, state: DeliveryState) -> bool:
        # Another process of the run has a relay, with states of its own session: there is nothing to wait for.
        return super()._has_started(state) or self._helper.exit_code() == EXIT_BUSY

    def _has_ended(self, state: DeliveryState) -> bool:
        """Return whether a tracker has everything that it will get."""
        if state.session == self._session:
            return state.state in ENDED
        # The relay of another process may have been done before the last rows of this one.
        return state.state == "done" and state.has_all(self._folder)

    def stop(self) -> None:
        """End the relay."""
        if self._helper.process is not None:
            self._helper.process.terminate()
            self._helper.process.wait()

    def maintain(self) -> None:
        """Start the relay again if it is gone and something is left to deliver."""
        if self._helper.exit_code() is None:
            return
        self._helper.pause(MAINTAIN_SECONDS)
        try:
            if not relay_is_running(self._folder) and not all(map(self._has_ended, self.states())):
                self._warn("the relay had exited and was started again; no row is lost")
                self._helper.start()
        except OSError as problem:
            self._warn(f"cannot start the relay: {problem}; trying again")

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all is delivered; return at once if other processes of the run live, since the relay goes on."""
        if run_end(self._folder) is None:
            return []
        self._helper.again_at = 0.0
        left = self._wait_for(self._has_ended, timeout, self.maintain)
        given_up = [state for state in self.states() if state.state == "given up"]
        if self._helper.process is not None and not left:
            with suppress(subprocess.TimeoutExpired):  # the relay is about to exit: reap it
                self._helper.process.wait(1.0)
        return self._undelivered([*left, *given_up], "the relay goes on; if it cannot, ")


class ThreadClient(_Client):
    """Delivers from threads of the training process: to trackers that belong there, or where no process may be started.

    A tracker in ``own`` gets the rows of that writer alone, and no delivery state is written. The others get all rows
    of the run, once: from the first of its processes that takes the tracker's lock and, when that one ends, another.
    """

    def __init__(
        self,
        folder: Path,
        trackers: Mapping[str, Mapping[str, Any]],
        warn: Callable[[str], None],
        own: Mapping[str, Writer] = MappingProxyType({}),
    ) -> None:
        super().__init__(folder, warn)
        self._status: Status | None = None
        self._own = own
        self._waiting = dict(trackers)  # those that another process of the run delivers to
        self._locks: list[IO[str]] = []
        self._deliveries: list[Delivery] = []
        self._threads: list[threading.Thread] = []

    def states(self) -> list[DeliveryState]:
        """Return the delivery state of each tracker."""
        return [delivery.state for delivery in self._deliveries]

    def start(self) -> None:
        """Start a thread for each tracker and wait until it has started or failed."""
        try:
            self._start_threads()
        except OSError as problem:
            raise TrackerError(
                f"cannot deliver to trackers: {problem}; choose another directory with dir="
            ) from problem
        self._check_started()

    def maintain(self) -> None:
        """Take over the trackers of a process that has ended."""
        with suppress(OSError):  # of the directory, which the journal's writer reports
            self._start_threads()

    def _start_threads(self) -> None:
        """Start a thread for each tracker that no other process of the run delivers to."""
        for name in list(self._waiting):
            if name not in self._own:  # no other process delivers the rows of this writer alone
                # The lock is the one of a relay's delivery process: the two ways of delivering exclude each other too.
                lock = take_lock(lock_path(self._folder, name))
                if lock is None:
                    continue
                self._locks.append(lock)
            delivery = self._delivery(name, self._waiting.pop(name))
            # A daemon: a tracker that hangs must not keep the training process from exiting.
            thread = threading.Thread(target=delivery.deliver, name=f"barograph-{name}", daemon=True)
            self._deliveries.append(delivery)
            self._threads.append(thread)
            thread.start()

    def _delivery(self, name: str, kwargs: Mapping[str, Any]) -> Delivery:
        return Delivery(
            self._folder,
            name,
            kwargs,
            lambda: self._status,
            session=self._session,
            only=self._own.get(name),
            keep=name not in self._own,
            on_change=self._warn_once,
        )

    def _warn_once(self, state: DeliveryState) -> None:
        if state.state == "retrying" and state.errors == 1:
            self._warn(f"tracker {state.tracker!r}: {state.error}; retrying")

    def stop(self) -> None:
        """Stop the threads and release the locks."""
        for delivery in self._deliveries:
            delivery.stop()
        for lock in self._locks:
            lock.close()

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until the threads have delivered everything."""
        self.maintain()
        self._status = status
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        left = self._undelivered(state for state in self.states() if state.state != "done")
        self.stop()
        return left

    def after_fork_in_child(self) -> None:
        """Close the locks: a child that outlives its parent would keep them."""
        for lock in self._locks:
            lock.close()


def tracker_secrets(tracker: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets in the environment that a tracker looks for."""
    # A delivery process gets the secrets of its own tracker only, not all that the environment has.
    prefixes = (f"{tracker.upper()}_", *SECRET_PREFIXES.get(tracker, ()))
    return {n: v for n, v in environment.items() if n.upper().startswith(prefixes) and is_secret_key(n, v)}
