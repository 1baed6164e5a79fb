"""The relay's process: one for each run, with a courier process for each tracker.

Started as ``python -m windsock.relay FOLDER`` with what the trackers take on standard input, so that no key is ever an
argument. Couriers are started by it in the same way, each with its own tracker's arguments alone.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from windsock.errors import WindsockError
from windsock.journal.glance import glance, segment_status
from windsock.model import Status
from windsock.process import process_start
from windsock.redaction import is_secret_key
from windsock.relay.delivery import GIVE_UP_SECONDS, Delivery
from windsock.relay.delivery_state import (
    ENDED,
    DeliveryState,
    Word,
    desk_path,
    lock_path,
    locked,
    read_desk,
    write_desk,
)

HANG_SECONDS = 120.0
LOOK_SECONDS = 0.2
LOCK_SECONDS = 20.0  # whoever takes over waits so long for the one that is on its way out
TOUCH_SECONDS = 0.2  # a lock that is held for less was only looked at
LONGEST_PAUSE = 60.0
HUNG = 75  # exit code of a courier whose tracker hangs
BUSY = 76  # of a relay that finds another one at work


_launched: list[subprocess.Popen[bytes]] = []
"""Processes that may outlive whoever started them; Python complains of those it forgets."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the relay is asked to do."""

    session: str
    trackers: Mapping[str, Mapping[str, Any]]
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # keys that a tracker finds by itself
    give_up: float = GIVE_UP_SECONDS
    hang: float = HANG_SECONDS
    segment: str = ""  # of the process that asks for it
    directory: str | None = None  # where that process began, from which paths are meant
    parent: int = 0  # the relay of a courier

    def only(self, tracker: str) -> Orders:
        """Return the orders for one courier of this process."""
        return replace(
            self,
            trackers={tracker: self.trackers[tracker]},
            environment={tracker: self.environment.get(tracker, {})},
            parent=os.getpid(),
        )


def launch(*arguments: str, log: Path, orders: Orders, detached: bool = False) -> subprocess.Popen[bytes]:
    """Start one of the relay's processes, with its orders on a pipe and its words in a file.

    It finds the modules that this process finds, and not those that happen to lie where it is started.
    """
    log.parent.mkdir(exist_ok=True)
    modules = os.pathsep.join(place or os.getcwd() for place in sys.path)
    with log.open("ab") as words:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "windsock.relay", *arguments],
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            start_new_session=detached,
            cwd=orders.directory,
            env={**without_keys(os.environ), "PYTHONPATH": modules},
        )
    _launched[:] = [one for one in _launched if one.poll() is None] + [process]
    assert process.stdin is not None
    try:
        process.stdin.write(pickle.dumps(orders))
        process.stdin.close()
    except BrokenPipeError:
        pass  # it is dead already, which whoever waits for it will see
    return process


def without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what opens doors: each tracker gets its own by the pipe."""
    return {name: value for name, value in environment.items() if not is_secret_key(name, value)}


class _Child:
    """A courier process, started again when it dies."""

    def __init__(self, folder: Path, tracker: str, orders: Orders) -> None:
        self.tracker = tracker
        self._folder = folder
        self._orders = orders.only(tracker)
        self._deaths = 0
        self._again_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        log = desk_path(self._folder, self.tracker).with_suffix(".log")
        arguments = (str(self._folder), self.tracker, str(self._deaths))
        return launch(*arguments, log=log, orders=self._orders)

    def alive(self) -> bool:
        """See to the process; False when it has done what could be done."""
        try:
            return self._is_needed()
        except (OSError, WindsockError):  # no process to be had, a journal that cannot be read just now
            self._again_at = time.monotonic() + LONGEST_PAUSE / 10
            return True

    def _is_needed(self) -> bool:
        if self._process is None:
            if time.monotonic() >= self._again_at:
                self._process = self._start()
            return True
        code = self._process.poll()
        if code is None:
            return True
        desk = read_desk(self._folder, self.tracker)
        if code == 0 and desk.state in ENDED and desk.session == self._orders.session:
            return False
        self._deaths += 1
        self._process = None
        self._again_at = time.monotonic() + min(2.0**self._deaths, LONGEST_PAUSE) * random.uniform(0.25, 0.5)
        self._tell(desk, code)
        return not self._hopeless()

    def _tell(self, desk: DeliveryState, code: int) -> None:
        how = "hung" if code == HUNG else f"ended with code {code}" if code >= 0 else f"was killed by signal {-code}"
        word: Word = "failing" if self._deaths > 2 else "retrying"
        words = f"the tracker's process {how}"
        self._write(desk.said(word, error=words, errors=desk.errors + 1, restarts=self._deaths))

    def _write(self, desk: DeliveryState) -> None:
        with suppress(OSError):  # a full disk: what is told is old, what is done goes on
            write_desk(self._folder, desk)

    def _hopeless(self) -> bool:
        """Tell whether the run ended so long ago that starting again has no point."""
        look = glance(self._folder)
        if not look.status.ended or time.time() - look.last_heard < self._orders.give_up:
            return False
        self._write(read_desk(self._folder, self.tracker).said("given up"))
        return True

    def ask_to_end(self) -> None:
        """Have the process save how far it is and end."""
        if self._process is not None:
            self._process.terminate()

    def wait(self) -> None:
        """Wait a little for a process that was asked to end."""
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()


def supervise(folder: Path, orders: Orders) -> int:
    """Keep a courier for each tracker until all are done."""
    lock = _take_lock(folder, orders)
    if lock is None:
        return BUSY
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children = [_Child(folder, tracker, orders) for tracker in orders.trackers]
    while children and not stopped.is_set() and folder.exists():
        children = [child for child in children if child.alive()]
        stopped.wait(LOOK_SECONDS)
    for child in children:
        child.ask_to_end()
    for child in children:
        child.wait()
    lock.close()
    return 0


def _take_lock(folder: Path, orders: Orders) -> IO[str] | None:
    """Be the relay of the run; None where there is one.

    One whose training process has ended is asked to go: it would deliver what comes now as it was told then, to
    another place or with a key that has changed since.
    """
    path = lock_path(folder)
    lock = locked(path, TOUCH_SECONDS)
    if lock is None and _dismissed(folder):
        lock = locked(path, LOCK_SECONDS)
    if lock is not None:
        lock.truncate(0)
        json.dump([os.getpid(), process_start(os.getpid()), orders.segment], lock)
        lock.flush()
    return lock


def _dismissed(folder: Path) -> bool:
    """Ask the relay at work to end, unless the process that it works for goes on."""
    try:
        pid, born, segment = json.loads(lock_path(folder).read_text())
    except (OSError, ValueError):
        return False
    if not segment or not segment_status(folder / segment).ended or process_start(pid) != born:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    return True


def run_end(folder: Path) -> Status | None:
    """Return how the run ended, or None while one of its writers lives."""
    try:
        status = glance(folder).status
    except (OSError, WindsockError):
        return None if folder.exists() else Status("killed", "its directory was removed")
    return status if status.ended else None


def _end_of(folder: Path, orders: Orders, began: float) -> Status | None:
    """Return how the run ended; None also while the bytes of who asked are still on their way from a spool."""
    there = not orders.segment or (folder / orders.segment).exists()
    return run_end(folder) if there or time.monotonic() - began > orders.give_up else None


def courier(folder: Path, tracker: str, orders: Orders, restarts: int) -> int:
    """Be the courier of one tracker."""
    lock = locked(lock_path(folder, tracker), LOCK_SECONDS)
    if lock is None:
        return 1
    os.environ.update(orders.environment.get(tracker, {}))
    began = time.monotonic()
    carrier = Delivery(
        folder,
        tracker,
        orders.trackers[tracker],
        lambda: _end_of(folder, orders, began),
        session=orders.session,
        give_up=orders.give_up,
        restarts=restarts,
    )
    signal.signal(signal.SIGTERM, lambda number, frame: carrier.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(carrier, orders.hang, orders.parent), daemon=True).start()
    return 0 if carrier.carry().state in ENDED else 1


def _watch(carrier: Delivery, hang: float, parent: int) -> None:
    """End this process where its tracker hangs or the relay above it is gone: another one takes over."""
    while True:
        time.sleep(LOOK_SECONDS)
        carrier.tell_if_slow()
        busy = carrier.busy_since
        if busy is not None and time.monotonic() - busy > hang:
            os._exit(HUNG)
        if os.getppid() != parent:
            carrier.stop()
            if busy is not None and time.monotonic() - busy > LOCK_SECONDS / 2:
                os._exit(1)


def main(arguments: list[str]) -> int:
    """Be the relay of a run or, with a tracker's name, one of its couriers; with ``--carry``, who empties a spool."""
    orders: Orders = pickle.load(sys.stdin.buffer)
    if arguments[0] == "--carry":
        from windsock.relay.spool import carry

        return carry(Path(arguments[1]), Path(arguments[2]))
    folder = Path(arguments[0])
    if len(arguments) == 1:
        return supervise(folder, orders)
    return courier(folder, arguments[1], orders, int(arguments[2]))
