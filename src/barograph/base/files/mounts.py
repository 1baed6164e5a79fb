"""Network and object-store mounts, where a write may block for seconds or forever, and the local spool that is written
to instead.

No other user may write to a spool: the temporary directory is shared, and another user may have put a symbolic link
or a directory of their own where the spool is to be.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

REMOTE_TYPES = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "afs", "glusterfs", "pvfs2", "orangefs",
    "davfs", "ncpfs", "wekafs", "virtiofs",
))  # fmt: skip

LOCAL_FUSE_TYPES = frozenset(("fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.bindfs", "fuse.mergerfs", "fuse.gvfsd-fuse"))
"""FUSE file systems that are local. Most others are object stores."""

MOUNTS = Path("/proc/self/mountinfo")


def is_remote(directory: Path, mounts: str | None = None) -> bool:
    """Return whether a directory, which need not exist yet, is on a network or object-store mount."""
    kind = mount_kind(directory, mounts)
    return kind in REMOTE_TYPES or (kind.startswith("fuse.") and kind not in LOCAL_FUSE_TYPES)


def mount_kind(directory: Path, mounts: str | None = None) -> str:
    """Return the type of a directory's file system; "" where it is unknown."""
    try:
        listed = MOUNTS.read_text() if mounts is None else mounts
    except OSError:
        return ""
    path = os.path.realpath(directory)
    best, kind = "", ""
    for line in listed.splitlines():
        fields, _, tail = line.partition(" - ")  # optional fields end at " - "; see proc(5)
        point = _unescape(fields.split()[4]) if len(fields.split()) > 4 else ""
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # The longest mount point wins; of equal ones the last, which hides the earlier.
        if inside and len(point) >= len(best) and tail:
            best, kind = point, tail.split()[0]
    return kind


def _unescape(point: str) -> str:
    """Decode the octal escapes of spaces and other characters in mountinfo."""
    return re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), point)


OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def default_spool() -> Path:
    """Return this user's spool in the temporary directory."""
    return Path(tempfile.gettempdir()) / f"barograph-{os.geteuid()}" / "spool"


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
