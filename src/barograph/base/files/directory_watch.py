"""Which of many directories changed since the last call, told by the kernel (inotify) where it can.

Where it cannot (another system, a network file system, a limit that is reached), nothing is told about a directory, and
its reader has to look for itself.
"""

from __future__ import annotations

import ctypes
import functools
import os
import select
import struct
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barograph.base.files.mounts import mount_kind

# From inotify(7).
IN_MODIFY, IN_ATTRIB, IN_MOVED_FROM, IN_MOVED_TO = 0x2, 0x4, 0x40, 0x80
IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF = 0x100, 0x200, 0x400, 0x800
IN_UNMOUNT, IN_Q_OVERFLOW, IN_IGNORED, IN_ONLYDIR, IN_ONESHOT = 0x2000, 0x4000, 0x8000, 0x01000000, 0x80000000
# One-shot: a run that writes a thousand rows a second costs its writer and us one event between two calls.
CHANGES = (
    IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF
    | IN_ONLYDIR | IN_ONESHOT
)  # fmt: skip
REPLACED = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT  # another directory may be in its place, and in those below
EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
READ_BYTES = 1 << 16
# Only these: on others, such as NFS, the writes of other machines are not told.
LOCAL_TYPES = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "overlay"))


class DirectoryWatch:
    """Directories whose changes are told: files that are written, created, renamed or removed in them.

    One instance serves thousands of directories; a user may have about a hundred instances. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = _inotify_init()
        self._by_number: dict[int, set[Path]] = {}
        self._numbers: dict[Path, int] = {}
        self._local: dict[int, bool] = {}  # by device

    def __del__(self) -> None:
        self.close()

    def add(self, directory: Path) -> bool:
        """Watch a directory; return whether its changes are told. Look at it after this call, not before."""
        with self._lock:
            return self._add(directory)

    def remove(self, directory: Path) -> None:
        """Watch a directory no longer."""
        with self._lock:
            number = self._forget(directory)
            if number is not None and number not in self._by_number:
                _libc().inotify_rm_watch(self._fd, number)

    def tells(self, directory: Path) -> bool:
        """Return whether changes of a directory are told."""
        return directory in self._numbers

    def changed(self) -> set[Path]:
        """Return the directories that changed since the last call; after a loss of events, all of them.

        One that was removed is among them, and is watched no longer.
        """
        found: set[Path] = set()
        with self._lock:
            for number, mask in self._events():
                if mask & IN_Q_OVERFLOW:
                    found.update(self._numbers)
                # The event after a one-shot, and that of a watch which this object has removed.
                elif not mask & IN_IGNORED or mask & IN_UNMOUNT:
                    here = self._by_number.get(number, set())
                    found |= here
                    if mask & REPLACED:
                        found.update(path for path in self._numbers if not here.isdisjoint(path.parents))
            for path in found:
                self._forget(path)
            # Before the caller looks: what is written from here on is told by the next call.
            for path in found:
                self._add(path)
        return found

    def wait(self, seconds: float) -> None:
        """Wait for a change of a directory, no longer than a time."""
        if self._fd >= 0:
            select.select([self._fd], [], [], seconds)
        else:
            time.sleep(seconds)

    def close(self) -> None:
        """Release the kernel's resources; nothing is told any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._numbers.clear()
            self._by_number.clear()

    def _add(self, directory: Path) -> bool:
        if self._fd < 0 or not self._is_local(directory):
            return False
        number = _libc().inotify_add_watch(self._fd, os.fsencode(directory), CHANGES)
        if number < 0:
            return False
        self._forget(directory)
        self._numbers[directory] = number
        self._by_number.setdefault(number, set()).add(directory)  # links may lead to one directory
        return True

    def _forget(self, directory: Path) -> int | None:
        number = self._numbers.pop(directory, None)
        if number is not None:
            self._by_number[number].discard(directory)
            if not self._by_number[number]:
                del self._by_number[number]
        return number

    def _is_local(self, directory: Path) -> bool:
        try:
            device = os.stat(directory).st_dev
        except OSError:
            return False
        if device not in self._local:
            self._local[device] = mount_kind(directory) in LOCAL_TYPES
        return self._local[device]

    def _events(self) -> Iterator[tuple[int, int]]:
        """Yield watch and mask of each event, until none is left."""
        while self._fd >= 0:
            try:
                data = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                return
            place = 0
            while place < len(data):
                number, mask, _, length = EVENT.unpack_from(data, place)
                place += EVENT.size + length
                yield number, mask


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _inotify_init() -> int:
    """Return a descriptor for events; -1 where there is none."""
    if sys.platform != "linux":
        return -1
    try:
        return int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, AttributeError):
        return -1


MAX_AGE = 10.0  # seconds after which a directory is listed even without a notice


class FolderChanges:
    """Tells whether something has changed in a directory since it was asked last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listed = -MAX_AGE  # when it was told to be listed
        self._watch = _shared_watch()
        self._watch.add(self, folder)

    def take(self) -> bool:
        """Return whether the directory may have changed since the last call."""
        now = time.monotonic()
        if self._watch.take(self, self._folder) or now - self._listed >= MAX_AGE:
            self._listed = now
            return True
        return False


class _SharedWatch:
    """One watch for the directories of all views of this process: a user may have about a hundred."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()  # re-entrant: a view may be deleted while it is held
        self._watch = DirectoryWatch()
        self._listeners: dict[Path, weakref.WeakSet[FolderChanges]] = {}
        self._changed: weakref.WeakSet[FolderChanges] = weakref.WeakSet()

    def is_of_this_process(self) -> bool:
        """Return whether this process made it: a forked one would take the notices of its parent."""
        return os.getpid() == self._pid

    def add(self, listener: FolderChanges, folder: Path) -> None:
        """Tell a listener of the changes in a directory."""
        with self._lock:
            if folder not in self._listeners:
                self._watch.add(folder)
            self._listeners.setdefault(folder, weakref.WeakSet()).add(listener)
            weakref.finalize(listener, self._release, folder)

    def take(self, listener: FolderChanges, folder: Path) -> bool:
        """Return whether a listener was told of a change since the last call, or cannot be told."""
        if not self.is_of_this_process():
            return True
        with self._lock:
            for path in self._watch.changed():
                for one in self._listeners.get(path, ()):
                    self._changed.add(one)
            was_told = listener in self._changed
            self._changed.discard(listener)
            return was_told or not self._watch.tells(folder)

    def _release(self, folder: Path) -> None:
        with self._lock:
            if self.is_of_this_process() and not len(self._listeners.get(folder, ())):
                self._listeners.pop(folder, None)
                self._watch.remove(folder)


_made: list[_SharedWatch] = []
_making = threading.Lock()


def _shared_watch() -> _SharedWatch:
    with _making:
        if not _made or not _made[0].is_of_this_process():
            _made[:] = [_SharedWatch()]
        return _made[0]
