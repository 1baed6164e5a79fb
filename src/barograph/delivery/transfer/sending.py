"""The sending side of a transfer: the segments that are recorded in a folder are sent to a destination.

What the destination holds is the cursor: there is no other state that a crash could leave wrong. The sending to a
server is done by a process of its own, one for each run and machine, so that a server that is away, slow or wrong
costs the training nothing. On the machine of the run's first process it also fetches what other machines have sent,
for trackers and the doctor there.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from barograph.base.errors import TrackerError
from barograph.base.formatting import size
from barograph.base.model import MAIN_ROLE, Writer
from barograph.delivery.processes import EXIT_BUSY, PROBE_SECONDS, TransferClient, restart_pause, take_lock
from barograph.delivery.transfer.destination import Destination, DestinationError, HttpDestination, ServerRun
from barograph.delivery.transfer.pieces import pieces
from barograph.delivery.transfer.receiver import Receiver
from barograph.delivery.transfer.state import (
    FOLDER,
    ReceivedList,
    TransferProgress,
    read_progress,
    unsent_bytes,
    without_claims,
    write_progress,
)
from barograph.journal.format.folder import (
    RUN_FILE,
    SegmentFile,
    closing_fd,
    open_regular_file,
    read_regular_file,
    segments,
)
from barograph.journal.read.status import segment_status

PIECE_BYTES = 1 << 20  # a lost connection costs no more of them

FIRST_PAUSE, MAX_PAUSE = 0.5, 30.0

MAX_RETRY_AFTER = 300.0

OF_SEGMENT = ("beyond", "differs", "broken", "limit", "name")
"""Reasons for which one segment is not taken, and others may be."""

Read = Callable[[int, int], bytes]


@dataclass(slots=True)
class SegmentTransfer:
    """The transfer of one segment: how much of it the destination holds, and how far it was read."""

    name: str
    held: int = 0
    place: int = 0  # the segment's pieces are sent, or known to be held, up to here
    is_checked: bool = False  # a piece was sent, so that the destination has compared what it holds

    def send(self, read: Read, ended: bool, target: Destination) -> int:
        """Send the new pieces of the segment; return how many bytes there were."""
        sent, skipped = 0, None
        for data, last in pieces(read, self.place, PIECE_BYTES, ended):
            if self.place + len(data) <= self.held:
                skipped = self.place, data, last
            else:
                self._check(target, skipped)
                self._append(target, self.place, data, last)
                sent += len(data)
            self.place += len(data)
        self._check(target, skipped)
        return sent

    def _check(self, target: Destination, skipped: tuple[int, bytes, bool] | None) -> None:
        """Let the destination compare the last piece that it holds already: another process may have sent it."""
        if skipped is not None and not self.is_checked:
            self._append(target, *skipped)

    def _append(self, target: Destination, offset: int, data: bytes, last: bool) -> None:
        try:
            self.held = target.append(self.name, offset, data, last)
        except DestinationError as error:
            self.place = offset
            if error.held is not None:
                self.held = error.held
                # Less than was sent, perhaps up to within a frame: the pieces are looked for from the start.
                self.place = offset if error.held >= offset else 0
            raise
        self.is_checked = True


class SegmentSender:
    """Sends the segments that processes of this machine record in a folder; those that were received are not sent."""

    def __init__(self, folder: Path, target: Destination) -> None:
        self._folder = folder
        self._target = target
        self._received = ReceivedList(folder)
        self._transfers: dict[str, SegmentTransfer] | None = None  # None: the destination was not asked yet
        self._again_at: dict[str, float] = {}  # when a segment that was refused is tried again
        self._sizes: dict[str, int] = {}  # of the segments at the last turn
        self.refused: dict[str, str] = {}  # why, by segment

    @property
    def sent(self) -> dict[str, int]:
        """The bytes of each segment that the destination holds."""
        return {name: transfer.held for name, transfer in (self._transfers or {}).items()}

    def send_new_bytes(self) -> bool:
        """Send the new frames of all segments; return whether all writers have ended and everything is sent.

        A segment that is refused for good counts as sent. Raise DestinationError if the destination cannot be used now.
        """
        own = self.own_segments()
        # Before the sending: a writer that ends meanwhile is seen in the next turn, after its last bytes.
        ended = {segment.path.name: self._has_ended(segment.path) for segment in own}
        transfers = self._known_transfers()
        sent = [self._send(segment, ended[segment.path.name], transfers) for segment in own]
        return not any(sent) and all(ended.values()) and not self._again_at

    def own_segments(self) -> list[SegmentFile]:
        """List the segments that are recorded here."""
        return [segment for segment in segments(self._folder) if segment.path.name not in self._received]

    def _has_ended(self, path: Path) -> bool:
        """Return whether the writer of a segment has ended; one that grows has not, and is not looked into."""
        size = path.stat().st_size if path.exists() else -1
        is_growing = self._sizes.get(path.name) not in (None, size)
        self._sizes[path.name] = size
        return not is_growing and segment_status(path).ended

    def _known_transfers(self) -> dict[str, SegmentTransfer]:
        if self._transfers is None:
            held = self._target.held()
            if (self._folder / RUN_FILE).exists():
                self._describe()
            self._transfers = {name: SegmentTransfer(name, count) for name, count in held.items()}
        return self._transfers

    def _describe(self) -> None:
        """Send the description of the run; the segments are sent without it if it is refused."""
        try:
            self._target.describe(read_regular_file(self._folder / RUN_FILE).encode())
        except DestinationError as error:
            if error.reason not in OF_SEGMENT:
                raise
            self.refused[RUN_FILE] = str(error)

    def _send(self, segment: SegmentFile, ended: bool, transfers: dict[str, SegmentTransfer]) -> int:
        """Send the new bytes of a segment; return how many there were, or 0 for one that is refused."""
        name = segment.path.name
        if time.monotonic() < self._again_at.get(name, 0.0) or (name in self.refused and name not in self._again_at):
            return 0
        transfer = transfers.setdefault(name, SegmentTransfer(name))
        try:
            with closing_fd(open_regular_file(segment.path, os.O_RDONLY)) as fd:
                sent = transfer.send(lambda length, offset: os.pread(fd, length, offset), ended, self._target)
        except DestinationError as error:
            if error.reason not in OF_SEGMENT:
                raise
            self._refuse(name, error)
            return 0
        except OSError as problem:  # the segment was removed, and its writer is about to restore it
            self.refused[name], self._again_at[name] = str(problem), time.monotonic() + FIRST_PAUSE
            return 0
        self.refused.pop(name, None)
        self._again_at.pop(name, None)
        return sent

    def _refuse(self, name: str, error: DestinationError) -> None:
        self.refused[name] = str(error)
        self._again_at[name] = time.monotonic() + (MAX_PAUSE if error.permanent else FIRST_PAUSE)
        if error.reason == "differs":
            del self._again_at[name]  # nothing that is held is ever written again


def pull_new_bytes(source: Destination, folder: Path, target: Destination) -> int:
    """Append what a source holds of the segments that are not recorded in ``folder``; return how many bytes.

    ``target`` is the receiver of the folder. A segment that is refused does not hold up the others.
    """
    received, here = ReceivedList(folder), target.held()
    pulled = 0
    for name, held in source.held().items():
        if name in here and name not in received:
            continue
        try:
            for place, data in _new_parts(source, name, here.get(name, 0), held):
                with nullcontext(True) if place else without_claims(folder) as may_append:
                    if not may_append:
                        break  # it may be claimed by a process that has not begun it yet: the next turn will tell
                    # What a source holds was checked, and may end within a frame where this part does.
                    target.append(name, place, data, last=True)
                pulled += len(data)
        except DestinationError as error:
            if error.reason not in OF_SEGMENT:
                raise
    return pulled


def _new_parts(source: Destination, name: str, place: int, end: int) -> Iterator[tuple[int, bytes]]:
    while place < end and (data := source.read(name, place, min(end - place, PIECE_BYTES))):
        yield place, data
        place += len(data)


@dataclass(slots=True)
class Pauses:
    """The pauses between attempts: longer and longer, of different lengths in each process, and as long as asked."""

    failures: int = field(default=0)

    def after(self, error: DestinationError | None) -> float:
        """Return the seconds to wait after a turn."""
        self.failures = 0 if error is None else self.failures + 1
        if error is None:
            return FIRST_PAUSE
        pause = restart_pause(self.failures, FIRST_PAUSE, MAX_PAUSE)
        # At random: the senders of a cluster find their server again at the same moment.
        return max(pause * random.uniform(0.5, 1.0), min(error.retry_after or 0.0, MAX_RETRY_AFTER))


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
        self._sender = SegmentSender(folder, self._target)
        self._receiver = None if run.is_spooled else Receiver(folder)
        self._pauses = Pauses()
        self._progress: TransferProgress | None = None
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
        progress = TransferProgress(self._run.server, self._run.project, self._sender.sent, "; ".join(problems[:3]))
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
        super().__init__(folder, folder / FOLDER / LOCK, warn, "--send", str(folder.absolute()), options=run)
        self._run = run
        self._writer = writer

    def start(self) -> None:
        """Start the process unless one runs for this folder; if that cannot be, it is tried again."""
        try:
            if not self._is_locked():
                super().start()
        except TrackerError as error:
            self._warn(f"{error}; the training goes on, and it is tried again")

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
            return {"barograph/transfer/lag_bytes": float(unsent_bytes(self._folder, self._run.server))}
        return {}

    def describe_left(self, left: int) -> str:
        """Return a message about bytes that are left at the end of the run."""
        return (
            f"{size(left)} of the run are not sent to {self._run.server} yet{self._why()}; the sending goes on. "
            f"If this machine stops before that, send them with: barograph push {self._folder} --to {self._run.server}"
        )

    def _why(self) -> str:
        error = read_progress(self._folder).error
        return f" ({error})" if error else ""
