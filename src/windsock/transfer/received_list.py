"""The list of the segments that were received, ``transfer/received`` in a run's folder: one file name in each line.

It tells them from segments that processes of this machine record, to which nothing may be appended.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from windsock.journal.regular_files import open_regular_file

FOLDER = "transfer"


class ReceivedList:
    """The names of the segments of a run that were received; other processes may add to the same file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FOLDER / "received"
        self._names: frozenset[str] = frozenset()

    def __contains__(self, segment: str) -> bool:
        """Return whether a segment was received."""
        if segment not in self._names:
            with suppress(FileNotFoundError):
                self._names = _names(self._path.read_bytes())
        return segment in self._names

    def add(self, segment: str, most: int) -> bool:
        """Add a segment; return False where the list has ``most`` names."""
        self._path.parent.mkdir(exist_ok=True)
        fd = open_regular_file(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            data = os.pread(fd, os.fstat(fd).st_size, 0)
            names = _names(data)
            if segment not in names:
                if len(names) >= most:
                    return False
                # A line that was cut short by a crash is none.
                os.write(fd, b"\n" * (not data.endswith(b"\n") and bool(data)) + segment.encode() + b"\n")
                os.fsync(fd)
            self._names = names | {segment}
            return True
        finally:
            os.close(fd)


def _names(data: bytes) -> frozenset[str]:
    return frozenset(line.decode("utf-8", "replace") for line in data.split(b"\n")[:-1])
