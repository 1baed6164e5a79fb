"""Which directories lie on another machine: a write there may take seconds, or for ever."""

from __future__ import annotations

import os
import re
from pathlib import Path

FAR = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "afs", "glusterfs", "pvfs2", "orangefs",
    "davfs", "ncpfs", "wekafs", "virtiofs",
))  # fmt: skip
NEAR_FUSE = frozenset(("fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.bindfs", "fuse.mergerfs", "fuse.gvfsd-fuse"))
"""File systems in user space that are on this machine; most others reach for an object store."""
MOUNTS = Path("/proc/self/mountinfo")


def is_far(directory: Path, mounts: str | None = None) -> bool:
    """Tell whether a directory, which need not exist yet, is on a network or object-store mount."""
    kind = mount_kind(directory, mounts)
    return kind in FAR or (kind.startswith("fuse.") and kind not in NEAR_FUSE)


def mount_kind(directory: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that a directory is on; "" where that is not known."""
    try:
        listed = MOUNTS.read_text() if mounts is None else mounts
    except OSError:
        return ""
    path = os.path.realpath(directory)
    best, kind = "", ""
    for line in listed.splitlines():
        fields, _, tail = line.partition(" - ")
        point = _plain(fields.split()[4]) if len(fields.split()) > 4 else ""
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best) and tail:
            best, kind = point, tail.split()[0]
    return kind


def _plain(point: str) -> str:
    """Undo the octal escapes of spaces and the like."""
    return re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), point)
