"""Detection of network and object-store mounts, where a write may block for seconds or forever."""

from __future__ import annotations

import os
import re
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
