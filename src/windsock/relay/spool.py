"""A run directory on a network mount: segments are written to a local spool, and their bytes are copied to the mount.

The copying is done by a process of its own, one for each run and machine, so that a mount that hangs costs the
training nothing. Segments only grow: the bytes to copy are those beyond the length of the file on the mount.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from windsock.errors import TrackerError
from windsock.journal.folder import SegmentFile, segments
from windsock.journal.glance import segment_status
from windsock.model import Status
from windsock.relay.delivery_state import take_lock
from windsock.relay.supervisor import EXIT_BUSY, RelayOptions, launch

LOOK_SECONDS = 0.5
CHUNK = 8 << 20
MAX_PAUSE = 30.0
GIVE_UP_SECONDS = 24 * 3600.0  # after the end of the run; the bytes then stay in the spool
LOCK = "carrier.lock"  # the name of 0.1: two versions must not copy at once


def lag(spool: Path, folder: Path) -> int:
    """Return how many bytes are not copied to the run's directory yet."""
    return sum(max(segment.path.stat().st_size - _size(folder / segment.path.name), 0) for segment in segments(spool))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def copy_new_bytes(segment: SegmentFile, folder: Path) -> int:
    """Append the new bytes of a segment to its copy; return how many there were."""
    target = folder / segment.path.name
    copied = 0
    with segment.path.open("rb") as source, target.open("ab") as copy:
        # The length of the copy is the cursor: there is no other state that a crash could leave wrong.
        offset = os.fstat(copy.fileno()).st_size
        while data := os.pread(source.fileno(), CHUNK, offset):
            offset += copy.write(data)
            copied += len(data)
        copy.flush()
        # The spool is removed when all is copied, so a copy in the cache of this machine is not enough.
        if copied:
            os.fsync(copy.fileno())
    return copied


def copy_until_ended(spool: Path, folder: Path) -> int:
    """Copy until every writer of the spool has ended and all bytes are copied; then remove the spool.

    Return the exit code of this process.
    """
    lock = take_lock(spool / LOCK)
    if lock is None:
        return EXIT_BUSY
    failures, since = 0, time.monotonic()
    while True:
        # Before the copying: a writer that ends meanwhile is seen in the next turn, after its last bytes.
        ended = all(segment_status(segment.path).ended for segment in segments(spool))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            copied = sum(copy_new_bytes(segment, folder) for segment in segments(spool))
            failures, since = 0, time.monotonic()  # the time to give up counts from the last success
            if ended and not copied:
                lock.close()
                shutil.rmtree(spool, ignore_errors=True)
                return 0
        except OSError:
            failures += 1
            if ended and time.monotonic() - since > GIVE_UP_SECONDS:
                return 1
        time.sleep(min(LOOK_SECONDS * 2**failures, MAX_PAUSE))


class SpoolClient:
    """The copying of a spool as the training process sees it: it starts the process and waits for the last bytes."""

    def __init__(self, spool: Path, folder: Path, warn: Callable[[str], None]) -> None:
        self._spool = spool
        self._folder = folder
        self._warn = warn
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the copying process."""
        try:
            log = self._spool / "copy.log"
            arguments = ("--copy", str(self._spool), str(self._folder.absolute()))
            self._process = launch(*arguments, log=log, options=RelayOptions("", {}), detached=True)
        except OSError as problem:
            raise TrackerError(f"cannot start copying the run to {self._folder}: {problem}") from problem

    def maintain(self) -> None:
        """Start the copying process again if it has died."""
        # EXIT_BUSY: another process of this machine copies the spool.
        if self._process is None or os.getpid() != self._owner or self._process.poll() in (None, EXIT_BUSY):
            return
        self._warn("the process that copies the run had exited and was started again; no byte is lost")
        self.start()

    def values(self) -> dict[str, float]:
        """Return the number of bytes that are not copied yet, to be logged."""
        with suppress(OSError):
            return {"windsock/spool/lag_bytes": float(lag(self._spool, self._folder))}
        return {}

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all bytes are copied."""
        until = time.monotonic() + timeout
        while self._spool.exists() and (left := lag(self._spool, self._folder)):
            if time.monotonic() >= until:
                return [f"{left:,} bytes of the run are not copied to {self._folder} yet; they are in {self._spool}"]
            time.sleep(LOOK_SECONDS / 10)
        return []

    def after_fork_in_child(self) -> None:
        """Do nothing: no file is open here."""
