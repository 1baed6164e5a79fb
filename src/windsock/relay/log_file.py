"""The log of a delivery process: what the tracker prints, with a limit on its size."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from windsock.journal.regular_files import open_regular_file

MAX_BYTES = 8 << 20
KEPT_BYTES = 1 << 20  # of either end, when the log is cut
READS = 20  # of the end of a log that grows, at most
NOT_A_LOG = (errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENXIO)


def open_log(path: Path) -> int:
    """Return a descriptor to append to; that of the null device if something else than a file has the name."""
    path.parent.mkdir(exist_ok=True)
    try:
        return open_regular_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    except OSError as problem:
        if problem.errno not in NOT_A_LOG:
            raise
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


class LogFile:
    """A log that another process appends to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._cut = 0

    def limit(self) -> None:
        """Cut the middle out if the log is too long; its beginning, which may have the cause, and its end stay."""
        with suppress(OSError):  # it does not exist yet, or is no file
            if self.path.stat().st_size > MAX_BYTES:
                fd = open_regular_file(self.path, os.O_RDWR | os.O_APPEND)
                try:
                    self._cut_middle(fd)
                finally:
                    os.close(fd)

    def _cut_middle(self, fd: int) -> None:
        size, end = _read_end(fd)
        # The other process writes in append mode too, so that it continues at the new end.
        os.ftruncate(fd, KEPT_BYTES)
        self._cut += size - KEPT_BYTES - len(end)
        # What is written between the reading and the cut is lost and not counted.
        cut = f"at least {self._cut:,} bytes were cut out here"
        text = f"\n[windsock: {cut}, since the log exceeded {MAX_BYTES:,} bytes]\n"
        os.write(fd, text.encode() + end)


def _read_end(fd: int) -> tuple[int, bytes]:
    """Return the size and the end of a file; if it grew meanwhile, the end is read again, a few times at most."""
    size = os.fstat(fd).st_size
    for _ in range(READS):
        end = os.pread(fd, KEPT_BYTES, size - KEPT_BYTES)
        before, size = size, os.fstat(fd).st_size
        if size == before:
            break
    return before, end
