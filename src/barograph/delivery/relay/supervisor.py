"""The relay's process: one for each run. It starts a delivery process for each tracker and restarts those that die.

It is started as ``python -m barograph.delivery.relay FOLDER`` with its options on standard input, so that no secret is
ever a command-line argument. It starts delivery processes in the same way, each with the arguments of its own tracker
alone.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from barograph.base.errors import BarographError
from barograph.base.model import Status
from barograph.delivery.processes import (
    EXIT_BUSY,
    LOCK_SECONDS,
    HelperProcess,
    LogFile,
    launch,
    restart_pause,
    take_lock,
    take_process_lock,
)
from barograph.delivery.relay.delivery import GIVE_UP_SECONDS, Delivery
from barograph.delivery.relay.state import (
    ENDED,
    DeliveryState,
    State,
    lock_path,
    read_delivery_state,
    state_path,
    write_delivery_state,
)
from barograph.journal.read.status import glance

HANG_SECONDS = 120.0
LOOK_SECONDS = 0.2
MAX_PAUSE = 60.0
EXIT_SECONDS = 10.0  # for a delivery process to exit when all is delivered
FLUSH_SECONDS = 2.0
EXIT_HUNG = 75  # of a delivery process whose tracker hangs


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """Options of the relay and of a delivery process, pickled on standard input."""

    session: str
    trackers: Mapping[str, Mapping[str, Any]]
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # secrets for each tracker
    give_up: float = GIVE_UP_SECONDS
    hang: float = HANG_SECONDS
    segment: str = ""  # of the training process that started the relay
    directory: str | None = None  # of that process, which paths are relative to
    parent: int = 0  # the relay of a delivery process

    def for_tracker(self, tracker: str) -> RelayOptions:
        """Return the options for a delivery process of this relay."""
        return replace(
            self,
            trackers={tracker: self.trackers[tracker]},
            environment={tracker: self.environment.get(tracker, {})},
            parent=os.getpid(),
        )


class _DeliveryProcess:
    """The delivery process of one tracker, started again when it dies."""

    def __init__(self, folder: Path, tracker: str, options: RelayOptions) -> None:
        self.tracker = tracker
        self._folder = folder
        self._options = options.for_tracker(tracker)
        self._log = LogFile(state_path(folder, tracker).with_suffix(".log"))
        self._deaths = 0
        self._helper = HelperProcess(self._launch)

    def _launch(self) -> subprocess.Popen[bytes]:
        arguments = str(self._folder), self.tracker, str(self._deaths)
        options = self._options  # with the secrets of this tracker only
        return launch(
            "barograph.delivery.relay", *arguments, log=self._log.path, options=options, directory=options.directory
        )

    def keep_running(self) -> bool:
        """Start the process if it does not run; return False when it is no longer needed."""
        try:
            return self._restart_if_dead()
        except (OSError, BarographError):  # no process can be started, or the journal cannot be read at the moment
            self._helper.pause(MAX_PAUSE / 10)
            return True
        finally:
            self._log.limit()

    def _restart_if_dead(self) -> bool:
        code = self._helper.exit_code()
        if code is None:
            return True
        if self._helper.process is None:
            self._helper.start()
            return True
        state = read_delivery_state(self._folder, self.tracker)
        if code == 0 and state.state in ENDED and state.session == self._options.session:
            return False
        self._deaths += 1
        self._helper.process = None
        self._helper.pause(restart_pause(self._deaths, 1.0, MAX_PAUSE) * random.uniform(0.25, 0.5))
        self._write_death(state, code)
        return not self._give_up()

    def _write_death(self, state: DeliveryState, code: int) -> None:
        how = "hung" if code == EXIT_HUNG else f"exited with {code}" if code >= 0 else f"was killed by signal {-code}"
        word: State = "failing" if self._deaths > 2 else "retrying"
        error = f"the tracker's process {how}"
        self._write(state.with_state(word, error=error, errors=state.errors + 1, restarts=self._deaths))

    def _write(self, state: DeliveryState) -> None:
        with suppress(OSError):  # the disk is full: the state stays old, delivery goes on
            write_delivery_state(self._folder, state)

    def _give_up(self) -> bool:
        """Give up if the run ended long ago; return whether that was done."""
        look = glance(self._folder)
        if not look.status.ended or time.time() - look.last_heard < self._options.give_up:
            return False
        self._write(read_delivery_state(self._folder, self.tracker).with_state("given up"))
        return True

    def terminate(self) -> None:
        """Ask the process to save its cursor and end."""
        if self._helper.process is not None:
            self._helper.process.terminate()

    def wait(self) -> None:
        """Wait a few seconds for the process, then kill it."""
        if self._helper.process is not None:
            try:
                self._helper.process.wait(5)
            except subprocess.TimeoutExpired:
                self._helper.process.kill()
            self._log.limit()


def supervise(folder: Path, options: RelayOptions) -> int:
    """Keep a delivery process for each tracker until all are done; return the exit code."""
    lock = take_process_lock(lock_path(folder), options.segment)
    if lock is None:
        return EXIT_BUSY
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes = [_DeliveryProcess(folder, tracker, options) for tracker in options.trackers]
    while processes and not stopped.is_set() and folder.exists():  # of a removed run nothing is left to deliver
        processes = [process for process in processes if process.keep_running()]
        stopped.wait(LOOK_SECONDS)
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
    lock.close()
    return 0


def run_end(folder: Path) -> Status | None:
    """Return how the run ended, or None while one of its writers lives."""
    try:
        status = glance(folder).status
    except (OSError, BarographError):
        return None if folder.exists() else Status("killed", "its directory was removed")
    return status if status.ended else None


def run_end_with_spool(folder: Path, options: RelayOptions, began: float) -> Status | None:
    """Return how the run ended; None also while the segment that started the relay is not yet copied from its spool."""
    is_copied = not options.segment or (folder / options.segment).exists()
    return run_end(folder) if is_copied or time.monotonic() - began > options.give_up else None


def deliver(folder: Path, tracker: str, options: RelayOptions, restarts: int) -> int:
    """Deliver to one tracker; return the exit code of this process."""
    lock = take_lock(lock_path(folder, tracker), LOCK_SECONDS)
    if lock is None:
        return 1
    os.environ.update(options.environment.get(tracker, {}))
    began = time.monotonic()
    delivery = Delivery(
        folder,
        tracker,
        options.trackers[tracker],
        lambda: run_end_with_spool(folder, options, began),
        session=options.session,
        give_up=options.give_up,
        restarts=restarts,
    )
    signal.signal(signal.SIGTERM, lambda number, frame: delivery.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(delivery, options.hang, options.parent), daemon=True).start()
    code = 1
    try:
        code = 0 if delivery.deliver().state in ENDED else 1
    finally:
        _exit_soon(tracker, code)
    return code


def _exit_soon(tracker: str, code: int) -> None:
    """End this process in ``EXIT_SECONDS`` if a thread or an exit handler of the tracker keeps it from ending."""

    def tell() -> None:
        threads = [one.name for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
        why = f"its threads {', '.join(threads)} are running" if threads else "an exit handler does not return"
        text = f"barograph: tracker {tracker!r} is done, but {why} after {EXIT_SECONDS:.0f} s; its process is ended\n"
        os.write(2, text.encode())  # sys.stderr may be locked by such a thread
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()

    def end(seconds: float, before: Callable[[], None]) -> None:
        time.sleep(seconds)
        with suppress(Exception):
            before()
        os._exit(code)

    threading.Thread(target=end, args=(EXIT_SECONDS, tell), daemon=True).start()
    # Flushing may block as well.
    threading.Thread(target=end, args=(EXIT_SECONDS + FLUSH_SECONDS, lambda: None), daemon=True).start()


def _watch(delivery: Delivery, hang: float, parent: int) -> None:
    """Exit if the tracker hangs or the relay is gone: the relay, or the next one, starts another process."""
    while True:
        time.sleep(LOOK_SECONDS)
        delivery.report_if_slow()
        busy = delivery.busy_since
        if busy is not None and time.monotonic() - busy > hang:
            # The main thread is inside the tracker, where no exception and no exit of another thread reaches it.
            os._exit(EXIT_HUNG)
        # The next relay waits LOCK_SECONDS for the lock of the tracker, so this process must be gone by then.
        if os.getppid() != parent:
            delivery.stop()
            if busy is not None and time.monotonic() - busy > LOCK_SECONDS / 2:
                os._exit(1)
