"""Notice of changes in directories, where the system gives it: a directory in which nothing happened need not be read.

Linux tells a process by inotify what happens in a directory of a local disk. Elsewhere, and on disks that other
machines write to, a directory counts as changed whenever it is asked about.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
import weakref
from pathlib import Path

from windsock.mounts import mount_kind

MODIFIED, ATTRIBUTES, MOVED, CREATED, DELETED, SELF = 0x2, 0x4, 0xC0, 0x100, 0x200, 0xC00
MASK = MODIFIED | ATTRIBUTES | MOVED | CREATED | DELETED | SELF
OVERFLOW = 0x4000  # more happened than the kernel keeps
ENDED = 0x8000  # the directory is no longer watched, because it was removed
EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name
READ_BYTES = 1 << 16
MAX_AGE = 10.0  # seconds after which a directory is read even without a notice
LOCAL_TYPES = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs")
)
"""File systems that only this machine writes to: the kernel knows of every change."""


class FolderChanges:
    """Tells whether something has changed in a directory since it was asked last."""

    def __init__(self, folder: Path) -> None:
        self._asked = -MAX_AGE
        self._notifier = _notifier() if mount_kind(folder) in LOCAL_TYPES else None
        self._watch = None if self._notifier is None else self._notifier.add(folder)
        if self._notifier is not None and self._watch is not None:
            weakref.finalize(self, self._notifier.remove, self._watch)

    def take(self) -> bool:
        """Return whether the directory may have changed since the last call."""
        now = time.monotonic()
        if self._notifier is None or self._watch is None or not self._notifier.is_ours():
            return True
        if self._notifier.take(self._watch) or now - self._asked >= MAX_AGE:
            self._asked = now
            return True
        return False


class _Notifier:
    """One inotify instance for all directories: a user may have 128 of them."""

    def __init__(self, libc: ctypes.CDLL, fd: int) -> None:
        self._libc, self._fd, self._pid = libc, fd, os.getpid()
        self._lock = threading.Lock()
        self._watchers: dict[int, int] = {}  # of each watch: directories that are watched twice share it
        self._numbers: dict[int, int] = {}  # watch of each number
        self._changed: set[int] = set()  # numbers
        self._ended: set[int] = set()  # watches
        self._next = 0

    def is_ours(self) -> bool:
        """Return whether this process made it: a forked one would take the notices of its parent."""
        return os.getpid() == self._pid

    def add(self, folder: Path) -> int | None:
        """Watch a directory; return a number for it, or None if it cannot be watched."""
        with self._lock:
            watch = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), MASK)
            if watch < 0:
                return None
            self._next += 1
            self._numbers[self._next] = watch
            self._watchers[watch] = self._watchers.get(watch, 0) + 1
            self._changed.add(self._next)
            return self._next

    def remove(self, number: int) -> None:
        """Watch a directory no longer."""
        with self._lock:
            watch = self._numbers.pop(number)
            self._changed.discard(number)
            self._watchers[watch] -= 1
            if not self._watchers[watch]:
                del self._watchers[watch]
                if self.is_ours():
                    self._libc.inotify_rm_watch(self._fd, watch)

    def take(self, number: int) -> bool:
        """Return whether there was a notice of a directory since the last call."""
        with self._lock:
            self._read()
            was_changed = number in self._changed or self._numbers[number] in self._ended
            self._changed.discard(number)
            return was_changed

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                return
            watches, place = set(), 0
            while place < len(data):
                watch, mask, _, length = EVENT.unpack_from(data, place)
                place += EVENT.size + length
                watches.add(watch)
                if mask & ENDED:
                    self._ended.add(watch)
                if mask & OVERFLOW:
                    watches |= self._watchers.keys()
            self._changed.update(number for number, watch in self._numbers.items() if watch in watches)


_shared: list[_Notifier] = []
_making = threading.Lock()


def _notifier() -> _Notifier | None:
    """Return the notifier of this process; None where the system has none."""
    with _making:
        if _shared and _shared[0].is_ours():
            return _shared[0]
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):  # not on Linux
            return None
        if fd < 0:
            return None
        _shared[:] = [_Notifier(libc, fd)]
        return _shared[0]
