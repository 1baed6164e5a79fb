"""Opening of files in directories that others can write to: a FIFO or a device in the place of a file is an error."""

from __future__ import annotations

import errno
import os
import stat


def open_regular_file(path: str, flags: int) -> int:
    """Open a file, as an ``opener`` of ``open``; raise OSError if it is not a regular one."""
    fd = os.open(path, flags | os.O_NONBLOCK, 0o666)  # without O_NONBLOCK, opening a FIFO waits for its other end
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file: remove it", path)
    return fd
