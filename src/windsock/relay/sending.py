"""A run that is sent to a server: its segments are recorded on this machine, and their bytes are sent over HTTP.

The sending is done by a process of its own, one for each run and machine, so that a server that is away, slow or wrong
costs the training nothing. On the machine of the run's first process it also fetches what other machines have sent, for
trackers and the doctor there.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from windsock.errors import TrackerError
from windsock.formatting import size
from windsock.journal.folder import segments
from windsock.journal.glance import segment_status
from windsock.model import MAIN_ROLE, Writer
from windsock.relay.delivery_state import take_lock
from windsock.relay.processes import EXIT_BUSY, PROBE_SECONDS
from windsock.relay.transfer_client import MAX_PAUSE, TransferClient
from windsock.transfer.destination import Destination, DestinationError
from windsock.transfer.http_destination import HttpDestination, ServerRun
from windsock.transfer.progress import Progress, read_progress, unsent_bytes, write_progress
from windsock.transfer.received_list import FOLDER
from windsock.transfer.receiver import Receiver
from windsock.transfer.sender import Pauses, Sender, pull_new_bytes

SEND_SECONDS = 1.0  # between two turns
FETCH_SECONDS = 2.0  # between two looks at what other machines have sent
GIVE_UP_SECONDS = 24 * 3600.0  # after the end of the run; the bytes then stay where they are
LOCK = "send.lock"


class Sending:
    """The sending of one folder, turn by turn."""

    def __init__(self, folder: Path, run: ServerRun, target: Destination | None = None) -> None:
        self._folder = folder
        self._run = run
        self._target = target or HttpDestination(run)
        self._sender = Sender(folder, self._target)
        self._receiver = None if run.is_spooled else Receiver(folder)
        self._pauses = Pauses()
        self._progress: Progress | None = None
        self._succeeded_at = time.monotonic()
        self._fetch_at = 0.0
        self._not_fetched = ""  # why not

    def turn(self) -> float | None:
        """Send and fetch what is new; return the seconds until the next turn, or None when all is done."""
        error: DestinationError | None = None
        is_done = False
        try:
            is_sent = self._sender.send_new_bytes()
            is_done = not self._fetch() and is_sent
        except DestinationError as problem:
            error = problem
        except OSError as problem:  # of a file here
            error = DestinationError(str(problem), "unreachable")
        if error is None and not self._not_fetched:
            self._succeeded_at = time.monotonic()
        self._tell(error)
        return None if is_done else max(self._pauses.after(error), SEND_SECONDS)

    def is_hopeless(self) -> bool:
        """Return whether nothing could be sent or fetched for a day, of a run that has ended."""
        has_failed = time.monotonic() - self._succeeded_at > GIVE_UP_SECONDS
        return has_failed and all(segment_status(s.path).ended for s in self._sender.own_segments())

    def _fetch(self) -> bool:
        """Fetch what other machines have sent; return whether more may come."""
        if self._receiver is None or not self._is_first_machine():
            return False
        if time.monotonic() < self._fetch_at:
            return True
        self._fetch_at = time.monotonic() + FETCH_SECONDS
        try:
            fetched = pull_new_bytes(self._target, self._folder, self._receiver)
        except DestinationError as error:  # it does not hold up the sending
            if error.reason == "access":
                self._receiver = None  # the token may only write
                return False
            self._not_fetched = f"what other machines have sent is not fetched: {error}"
            self._fetch_at = time.monotonic() + max(error.retry_after or 0.0, MAX_PAUSE)
            return True
        self._not_fetched = ""
        return bool(fetched) or not all(segment_status(s.path).ended for s in segments(self._folder))

    def _is_first_machine(self) -> bool:
        return any((s.writer.role, s.writer.rank) == (MAIN_ROLE, 0) for s in self._sender.own_segments())

    def _tell(self, error: DestinationError | None) -> None:
        """Write how far it is, where that has changed."""
        problems = [str(problem) for problem in (error, self._not_fetched) if problem]
        problems += [f"{segment}: {why}" for segment, why in self._sender.refused.items()]
        progress = Progress(self._run.server, self._run.project, self._sender.sent, "; ".join(problems[:3]))
        if progress != self._progress:
            with suppress(OSError):  # a full disk: the progress stays old, the sending goes on
                write_progress(self._folder, progress)
                self._progress = progress


def send_until_ended(folder: Path, run: ServerRun) -> int:
    """Send until every writer of the folder has ended and all bytes are sent; return the exit code of this process."""
    lock = take_lock(folder / FOLDER / LOCK, PROBE_SECONDS)
    if lock is None:
        return EXIT_BUSY
    sending = Sending(folder, run)
    while folder.exists():  # of a run that was removed nothing is left to send
        pause = sending.turn()
        if pause is None:
            break
        if sending.is_hopeless():
            return 1
        time.sleep(pause)
    is_complete = not unsent_bytes(folder, run.server)
    if run.is_spooled and is_complete:
        shutil.rmtree(folder, ignore_errors=True)
    lock.close()
    return 0 if is_complete else 1


class ServerClient(TransferClient):
    """The sending to a server as the training process sees it; it never talks to the server itself."""

    what = "sends the run"
    log_name = f"{FOLDER}/send.log"

    def __init__(self, folder: Path, run: ServerRun, warn: Callable[[str], None], writer: Writer) -> None:
        super().__init__(folder, folder / FOLDER / LOCK, warn)
        self._run = run
        self._writer = writer

    def start(self) -> None:
        """Start the process unless one runs for this folder; if that cannot be, it is tried again."""
        try:
            if not self._is_locked():
                super().start()
        except TrackerError as error:
            self._warn(f"{error}; the training goes on, and it is tried again")

    def _launch(self) -> subprocess.Popen[bytes]:
        return self._start_process("--send", str(self._folder.absolute()), options=self._run)

    def maintain(self) -> None:
        """Keep the process running, and warn of what keeps it from sending."""
        super().maintain()
        if error := read_progress(self._folder).error:
            self._warn(f"a problem with the run's server: {error}; the training goes on, and the bytes stay here")

    def left(self) -> int:
        """Return how many bytes of this process the server does not hold yet; others may go on writing."""
        return unsent_bytes(self._folder, self._run.server, self._writer)

    def values(self) -> dict[str, float]:
        """Return the number of bytes of all processes here that are not sent yet, to be logged."""
        with suppress(OSError):
            return {"windsock/transfer/lag_bytes": float(unsent_bytes(self._folder, self._run.server))}
        return {}

    def describe_left(self, left: int) -> str:
        """Return a message about bytes that are left at the end of the run."""
        error = read_progress(self._folder).error
        why = f" ({error})" if error else ""
        return (
            f"{size(left)} of the run are not sent to {self._run.server} yet{why}; the sending goes on. If this "
            f"machine stops before that, send them with: windsock push {self._folder} --to {self._run.server}"
        )
