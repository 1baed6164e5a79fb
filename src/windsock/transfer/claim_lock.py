"""A lock between processes that claim a rank on a destination and the one that pulls segments from it.

A destination holds a claimed segment before the process begins it in its folder: until then nothing else may.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from windsock.journal.regular_files import open_regular_file
from windsock.transfer.received_list import FOLDER

FLAGS = os.O_RDWR | os.O_NOFOLLOW


@contextmanager
def claiming(folder: Path) -> Iterator[None]:
    """Keep others from beginning segments in a folder; several processes may claim at a time."""
    path = _path(folder)
    path.parent.mkdir(exist_ok=True)
    fd = open_regular_file(path, FLAGS | os.O_CREAT)
    try:
        with suppress(OSError):  # a filesystem without locks, as Lustre may be: the claim is worth more
            fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextmanager
def without_claims(folder: Path) -> Iterator[bool]:
    """Yield whether a segment may be begun in a folder, because no process claims one; none will meanwhile."""
    try:
        fd = open_regular_file(_path(folder), FLAGS)
    except OSError:  # mostly there is no such file, because nobody has claimed a rank
        yield True
        return
    try:
        yield _is_locked(fd)
    finally:
        os.close(fd)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # see above
        pass
    return True


def _path(folder: Path) -> Path:
    return folder / FOLDER / "claim.lock"
