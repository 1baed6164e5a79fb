"""A run directory on another machine: segments are written here, to a local spool, and their bytes are carried there.

The carrier is a process of its own, one for each run and machine, so that a mount that hangs costs the training
nothing. Segments only grow: what the other side lacks is what lies beyond its length.
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
from windsock.relay.delivery_state import locked
from windsock.relay.supervisor import BUSY, Orders, launch

LOOK_SECONDS = 0.5
CHUNK = 8 << 20
LONGEST_PAUSE = 30.0
GIVE_UP_SECONDS = 24 * 3600.0  # after the end of the run: then the bytes stay in the spool
LOCK = "carrier.lock"


def lag(spool: Path, folder: Path) -> int:
    """Return how many bytes the run's directory lacks."""
    return sum(max(segment.path.stat().st_size - _size(folder / segment.path.name), 0) for segment in segments(spool))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def carry_new(segment: SegmentFile, folder: Path) -> int:
    """Append to the other side what it lacks of a segment; return how many bytes that was."""
    target = folder / segment.path.name
    carried = 0
    with segment.path.open("rb") as source, target.open("ab") as sink:
        place = os.fstat(sink.fileno()).st_size
        while data := os.pread(source.fileno(), CHUNK, place):
            place += sink.write(data)
            carried += len(data)
        sink.flush()
        if carried:
            os.fsync(sink.fileno())
    return carried


def carry(spool: Path, folder: Path) -> int:
    """Carry until every writer of the spool has ended and all its bytes are there; then remove the spool."""
    lock = locked(spool / LOCK)
    if lock is None:
        return BUSY
    failures, since = 0, time.monotonic()
    while True:
        ended = all(segment_status(segment.path).ended for segment in segments(spool))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            carried = sum(carry_new(segment, folder) for segment in segments(spool))
            failures, since = 0, time.monotonic()
            if ended and not carried:
                lock.close()
                shutil.rmtree(spool, ignore_errors=True)
                return 0
        except OSError:
            failures += 1
            if ended and time.monotonic() - since > GIVE_UP_SECONDS:
                return 1
        time.sleep(min(LOOK_SECONDS * 2**failures, LONGEST_PAUSE))


class SpoolClient:
    """What the training process holds of the carrier."""

    def __init__(self, spool: Path, folder: Path, say: Callable[[str], None]) -> None:
        self._spool = spool
        self._folder = folder
        self._say = say
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the carrier."""
        try:
            log = self._spool / "carrier.log"
            arguments = ("--carry", str(self._spool), str(self._folder.absolute()))
            self._process = launch(*arguments, log=log, orders=Orders("", {}), detached=True)
        except OSError as problem:
            raise TrackerError(f"the run's bytes cannot be carried to {self._folder}: {problem}") from problem

    def maintain(self) -> None:
        """Start the carrier again where it died."""
        if self._process is None or os.getpid() != self._owner or self._process.poll() in (None, BUSY):
            return
        self._say("the carrier of the run's bytes was gone and is started again; nothing is lost")
        self.start()

    def values(self) -> dict[str, float]:
        """Return how many bytes are still here."""
        with suppress(OSError):
            return {"windsock/spool/lag_bytes": float(lag(self._spool, self._folder))}
        return {}

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all bytes are there."""
        until = time.monotonic() + timeout
        while self._spool.exists() and (left := lag(self._spool, self._folder)):
            if time.monotonic() >= until:
                return [f"{left:,} bytes of the run are still in {self._spool} and on their way to {self._folder}"]
            time.sleep(LOOK_SECONDS / 10)
        return []

    def after_fork_in_child(self) -> None:
        """Nothing here is open."""
