"""A run directory on a network mount: segments are written to a local spool, and their bytes are copied to the mount.

The copying is done by a process of its own, one for each run and machine, so that a mount that hangs costs the
training nothing. A copy is at all times the beginning of its segment, up to the end of a frame: a writer cuts off a
frame that it could not write completely, and writes others in its place.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from barograph.delivery.processes import EXIT_BUSY, PROBE_SECONDS, TransferClient, restart_pause, take_lock
from barograph.delivery.transfer.pieces import pieces
from barograph.journal.format.folder import SegmentFile, closing_fd, open_regular_file, segments
from barograph.journal.read.status import segment_status

LOOK_SECONDS = 0.5
CHUNK = 8 << 20
TAIL = 64 << 10  # bytes of a copy that are compared with the segment before others are appended
GIVE_UP_SECONDS = 24 * 3600.0  # after the end of the run; the bytes then stay in the spool
LOCK = "carrier.lock"  # the name of 0.1: two versions must not copy at once


def lag(spool: Path, folder: Path) -> int:
    """Return how many bytes of the segments are not copied to the run's directory yet, or are no longer there."""
    return sum(abs(_size(segment.path) - _size(folder / segment.path.name)) for segment in segments(spool))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class SegmentCopy:
    """The copy of one segment in the run's directory."""

    def __init__(self, segment: SegmentFile, folder: Path) -> None:
        self._source = segment.path
        self._target = folder / segment.path.name
        self._inode: int | None = None  # of the segment that the copy was compared with
        self._scanned = 0  # the segment's frames are complete up to here
        self._equal = 0  # the copy was equal to the segment up to here
        self._tail = b""  # the last bytes before that

    def copy_new_bytes(self, ended: bool) -> int:
        """Append the new frames of the segment to its copy; return how many bytes there were.

        Of a segment whose writer has ended the last bytes are copied too, whatever they are.
        """
        with (
            closing_fd(open_regular_file(self._source, os.O_RDONLY)) as source,
            closing_fd(open_regular_file(self._target, os.O_RDWR | os.O_APPEND | os.O_CREAT)) as target,
        ):
            return self._copy(source, target, ended)

    def _copy(self, source: int, target: int, ended: bool) -> int:
        size = os.fstat(target).st_size
        if os.fstat(source).st_size < size:
            return 0  # the segment was removed, and its writer is about to restore it; until then the lag tells
        size = self._verify(source, target, size)
        copied = 0
        for piece in pieces(lambda length, offset: os.pread(source, length, offset), self._scanned, CHUNK, ended):
            new = piece.data[max(size - self._scanned, 0) :]
            self._append(target, new)
            self._scanned += len(piece.data)
            size, copied = size + len(new), copied + len(new)
        # The spool is removed when all is copied, so a copy in the cache of this machine is not enough.
        if copied:
            os.fsync(target)
        return copied

    def _append(self, target: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.write(target, view)
            self._tail = (self._tail + view[max(written - TAIL, 0) : written])[-TAIL:]
            self._equal += written
            view = view[written:]

    def _verify(self, source: int, target: int, size: int) -> int:
        """Cut the copy where it differs from the segment; return its length.

        The length of the copy is the cursor: there is no other state that a crash could leave wrong.
        """
        inode = os.fstat(source).st_ino
        tail = os.pread(source, len(self._tail), self._equal - len(self._tail))
        if inode == self._inode and size == self._equal and tail == self._tail:
            return size
        equal = _equal_bytes(source, target, size)
        if equal < size:
            os.ftruncate(target, equal)
        self._inode, self._equal, self._scanned = inode, equal, 0
        self._tail = os.pread(source, TAIL, max(equal - TAIL, 0))[: min(equal, TAIL)]
        return equal


def _equal_bytes(first: int, second: int, end: int) -> int:
    """Return how many bytes two files begin with in common, up to ``end``."""
    place = 0
    while place < end:
        one, other = (os.pread(fd, min(CHUNK, end - place), place) for fd in (first, second))
        if one != other or not one:
            pairs = enumerate(zip(one, other, strict=False))
            return place + next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
        place += len(one)
    return end


class SpoolCopy:
    """The copies of all segments of a spool."""

    def __init__(self, spool: Path, folder: Path) -> None:
        self._spool = spool
        self._folder = folder
        self._copies: dict[str, SegmentCopy] = {}
        self.failed = False  # whether a segment could not be copied in the last turn

    def copy_new_bytes(self) -> bool:
        """Copy the new frames of all segments; return whether all writers have ended and everything is copied."""
        # Before the copying: a writer that ends meanwhile is seen in the next turn, after its last bytes.
        ended = {segment.path: segment_status(segment.path).ended for segment in segments(self._spool)}
        self.failed = False
        copied = 0
        for segment in segments(self._spool):
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                copied += self._copy(segment).copy_new_bytes(ended.get(segment.path, False))
            except OSError:  # it does not keep the others from being copied
                self.failed = True
        return not copied and not self.failed and all(ended.get(s.path, False) for s in segments(self._spool))

    @property
    def ended(self) -> bool:
        """Whether all writers have ended."""
        return all(segment_status(segment.path).ended for segment in segments(self._spool))

    def _copy(self, segment: SegmentFile) -> SegmentCopy:
        return self._copies.setdefault(segment.path.name, SegmentCopy(segment, self._folder))


def copy_until_ended(spool: Path, folder: Path) -> int:
    """Copy until every writer of the spool has ended and all bytes are copied; then remove the spool.

    Return the exit code of this process.
    """
    lock = take_lock(spool / LOCK, PROBE_SECONDS)
    if lock is None:
        return EXIT_BUSY
    copy = SpoolCopy(spool, folder)
    failures, since = 0, time.monotonic()
    while True:
        if copy.copy_new_bytes():
            lock.close()
            shutil.rmtree(spool, ignore_errors=True)
            return 0
        if not copy.failed:
            failures, since = 0, time.monotonic()  # the time to give up counts from the last success
        else:
            failures += 1
            if time.monotonic() - since > GIVE_UP_SECONDS and copy.ended:
                return 1
        time.sleep(restart_pause(failures, LOOK_SECONDS))


class SpoolClient(TransferClient):
    """The copying of a spool as the training process sees it."""

    what = "copies the run"
    log_name = "copy.log"

    def __init__(self, spool: Path, folder: Path, warn: Callable[[str], None]) -> None:
        super().__init__(spool, spool / LOCK, warn, "--copy", str(spool), str(folder.absolute()))
        self._target = folder

    def left(self) -> int:
        """Return how many bytes are not copied yet."""
        return lag(self._folder, self._target)

    def values(self) -> dict[str, float]:
        """Return the number of bytes that are not copied yet, to be logged."""
        with suppress(OSError):
            return {"barograph/spool/lag_bytes": float(self.left())}
        return {}

    def describe_left(self, left: int) -> str:
        """Return a message about bytes that are left at the end of the run."""
        return f"{left:,} bytes of the run are not copied to {self._target} yet; they are in {self._folder}"
