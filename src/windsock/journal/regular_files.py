"""Opening of files in directories that others can write to: a FIFO or a device in the place of a file is an error."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_FILE_BYTES = 16 << 20  # of ``run.json`` and of a delivery state


def open_regular_file(path: str | Path, flags: int) -> int:
    """Open a file and return its descriptor; raise OSError if it is not a regular one. It can be an ``opener``."""
    try:
        # Without O_NONBLOCK, opening a FIFO waits for its other end.
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a FIFO that nobody reads, opened for writing
            raise
    raise OSError(errno.EINVAL, "not a regular file: remove it", str(path))


def read_regular_file(path: Path) -> str:
    """Return the text of a small file; raise OSError if it is large, or not a regular file."""
    with open(path, encoding="utf-8", opener=open_regular_file) as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MAX_FILE_BYTES} bytes", str(path))
        return file.read()
