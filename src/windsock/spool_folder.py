"""The local directory of a run's spool, which no other user may write to.

The temporary directory is shared: another user may have put a symbolic link or a directory of their own where the
spool is to be, and would receive the journal.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def default_spool() -> Path:
    """Return this user's spool in the temporary directory."""
    return Path(tempfile.gettempdir()) / f"windsock-{os.geteuid()}" / "spool"


def make_spool_folder(spool: Path, id: str) -> Path:
    """Create the directory of a run in a spool and return it; raise OSError if another user may write there.

    A spool that the user chose may be a directory of several users, such as a scratch disk: then only the directory
    of the run has to be private.
    """
    folder = spool / id
    if spool == default_spool():
        _make_private(spool.parent)
        _make_private(spool)
    else:
        spool.mkdir(parents=True, exist_ok=True)
        mode = spool.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:  # without the sticky bit anybody may replace what is in it
            raise _refused(spool, f"has mode {stat.S_IMODE(mode):04o}, so that anybody may replace its files")
    _make_private(folder)
    return folder


def _make_private(folder: Path) -> None:
    """Create a directory for this user alone; raise OSError if there is something else, or somebody else's."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()  # of a symbolic link itself
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(folder, "is a symbolic link" if stat.S_ISLNK(found.st_mode) else "is not a directory")
    if found.st_uid != os.geteuid():
        raise _refused(folder, f"belongs to user {found.st_uid}, not to user {os.geteuid()}")
    if found.st_mode & OTHERS_MAY_WRITE:
        mode = stat.S_IMODE(found.st_mode)
        raise _refused(folder, f"has mode {mode:04o}, so that other users may write to it (chmod 700 it)")


def _refused(folder: Path, why: str) -> OSError:
    return OSError(errno.EPERM, f"{folder} {why}")
