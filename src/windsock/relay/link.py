"""What the training process holds of the relay: it starts it, sees that it lives, and waits for the last rows."""

from __future__ import annotations

import os
import secrets as random_words
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from windsock.errors import TrackerError
from windsock.model import Status
from windsock.relay.courier import GIVE_UP_SECONDS, Courier
from windsock.relay.desk import ENDED, FOLDER, NUMBERS, Desk, read_desk
from windsock.relay.supervisor import HANG_SECONDS, Orders, launch, run_end
from windsock.secrets import is_secret_key

START_SECONDS = 20.0
LOOK_SECONDS = 0.05
OWN_VARIABLES = {"trackio": ("HF_", "HUGGING", "TRACKIO_"), "mlflow": ("MLFLOW_", "DATABRICKS_", "AWS_", "AZURE_")}
"""Whose keys a tracker finds in the environment, besides those that begin with its own name."""


class _Desks:
    """What both ways of carrying share."""

    def __init__(self, folder: Path, trackers: Mapping[str, Mapping[str, Any]], say: Callable[[str], None]) -> None:
        self._folder = folder
        self._trackers = trackers
        self._say = say
        self._session = random_words.token_hex(8)

    def desks(self) -> list[Desk]:
        """Return the desk of each tracker."""
        return [read_desk(self._folder, name) for name in self._trackers]

    def values(self) -> dict[str, float]:
        """Return how the trackers are doing, to be logged."""
        found: dict[str, float] = {}
        for desk in self.desks():
            found[f"windsock/relay/{desk.tracker}/lag_rows"] = desk.lag
            found[f"windsock/relay/{desk.tracker}/errors"] = desk.errors
            found[f"windsock/relay/{desk.tracker}/state"] = NUMBERS[desk.state]
        return found

    def _left(self, desks: Iterable[Desk]) -> list[str]:
        """Say what is still to come, and how."""
        texts = []
        for desk in desks:
            what = f"{desk.lag:,} rows" if desk.lag else "something"
            why = f" ({desk.error})" if desk.error else ""
            how = f"{self._hope(desk)}windsock sync {self._folder.name} delivers it"
            texts.append(f"tracker {desk.tracker!r} has {what} still to come{why}: {how}")
        return texts

    def _hope(self, desk: Desk) -> str:
        return ""

    def abandon(self) -> None:
        """End what was started: the run will not be."""

    def _wait_for(self, words: Callable[[Desk], bool], timeout: float) -> list[Desk]:
        """Wait until every desk of this session is as asked; return those that are not."""
        until = time.monotonic() + timeout
        while True:
            others = [desk for desk in self.desks() if desk.session != self._session or not words(desk)]
            if not others or time.monotonic() >= until:
                return others
            time.sleep(LOOK_SECONDS)

    def _check_started(self) -> None:
        """Raise for trackers that are set up wrongly, and tell of those that are out of reach or slow."""
        slow = self._wait_for(lambda desk: desk.state != "starting", START_SECONDS)
        refused = [desk for desk in self.desks() if desk.state == "refused" and desk.session == self._session]
        if refused:
            self.abandon()
            raise TrackerError("; ".join(desk.error for desk in refused))
        for desk in self.desks():
            if desk.tracker in {other.tracker for other in slow}:
                self._say(f"tracker {desk.tracker!r} takes long to start; the training begins, its rows follow")
            elif desk.state in ("retrying", "failing"):
                self._say(f"tracker {desk.tracker!r} is out of reach ({desk.error}); it is tried again and caught up")
            elif desk.url:
                self._say(f"tracker {desk.tracker!r}: {desk.url}")


class RelayLink(_Desks):
    """Carries through the relay's processes."""

    def __init__(self, folder: Path, trackers: Mapping[str, Mapping[str, Any]], say: Callable[[str], None]) -> None:
        super().__init__(folder, trackers, say)
        hang = float(os.environ.get("WINDSOCK_TRACKER_HANG_SECONDS") or HANG_SECONDS)
        give_up = float(os.environ.get("WINDSOCK_TRACKER_GIVE_UP_SECONDS") or GIVE_UP_SECONDS)
        keys = {name: own_keys(name, os.environ) for name in trackers}
        self._orders = Orders(self._session, {name: dict(kw) for name, kw in trackers.items()}, keys, give_up, hang)
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    def start(self) -> None:
        """Start the relay and wait until each tracker has begun or said why not."""
        self._launch()
        self._check_started()

    def _launch(self) -> None:
        try:
            log = self._folder / FOLDER / "relay.log"
            arguments = (str(self._folder.resolve()),)
            self._process = launch(*arguments, log=log, orders=self._orders, detached=True)
        except OSError as problem:
            raise TrackerError(
                f"the relay cannot be started: {problem}; in_process=True feeds trackers from this process"
            ) from problem

    def abandon(self) -> None:
        """End what was started: the run will not be."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def tend(self) -> None:
        """Start the relay again where it died before everything was done."""
        if self._process is None or os.getpid() != self._owner or self._process.poll() is None:
            return
        if any(desk.state not in ENDED for desk in self.desks()):
            self._say("the relay was gone and is started again; nothing is lost")
            self._launch()

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all is delivered; where other processes of the run live, the relay goes on for them."""
        if run_end(self._folder) is None:
            return []
        left = self._wait_for(lambda desk: desk.state in ENDED, timeout)
        given_up = [desk for desk in self.desks() if desk.state == "given up"]
        if self._process is not None and not left:
            self._wait_for_exit()
        return self._left([*left, *given_up])

    def _wait_for_exit(self) -> None:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)

    def _hope(self, desk: Desk) -> str:
        return "" if desk.state in ENDED else "the relay goes on, and if it cannot "


class ThreadLink(_Desks):
    """Carries from threads of the training process, where other processes are forbidden."""

    def __init__(self, folder: Path, trackers: Mapping[str, Mapping[str, Any]], say: Callable[[str], None]) -> None:
        super().__init__(folder, trackers, say)
        self._status: Status | None = None
        self._couriers = [
            Courier(folder, name, kwargs, lambda: self._status, session=self._session, give_up=0.0)
            for name, kwargs in trackers.items()
        ]
        self._threads = [
            threading.Thread(target=courier.carry, name=f"windsock-{name}", daemon=True)
            for courier, name in zip(self._couriers, trackers, strict=True)
        ]

    def start(self) -> None:
        """Start a thread for each tracker and wait until it has begun or said why not."""
        for thread in self._threads:
            thread.start()
        self._check_started()

    def abandon(self) -> None:
        """End what was started: the run will not be."""
        for courier in self._couriers:
            courier.stop()

    def tend(self) -> None:
        """Threads need no looking after."""

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Let the couriers end, and wait for them."""
        self._status = status
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))
        for courier in self._couriers:
            courier.stop()
        return self._left([desk for desk in self.desks() if desk.state != "done"])


def own_keys(tracker: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the keys in the environment that are a tracker's own."""
    prefixes = (f"{tracker.upper()}_", *OWN_VARIABLES.get(tracker, ()))
    return {n: v for n, v in environment.items() if n.upper().startswith(prefixes) and is_secret_key(n, v)}
