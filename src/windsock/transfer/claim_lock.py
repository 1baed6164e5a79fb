"""A lock between processes that claim a rank on a destination and the one that pulls segments from it.

A destination holds a claimed segment before the process begins it in its folder: until then nothing else may.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
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
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextmanager
def beginning(folder: Path) -> Iterator[bool]:
    """Yield whether a segment may be begun in a folder: not while a process claims one."""
    try:
        fd = open_regular_file(_path(folder), FLAGS)
    except FileNotFoundError:  # nobody has claimed one
        yield True
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        yield is_free
    finally:
        os.close(fd)


def _path(folder: Path) -> Path:
    return folder / FOLDER / "claim.lock"
