"""Notice of changes in a run's directory, where the kernel gives it: one without changes need not be listed."""

from __future__ import annotations

import os
import threading
import time
import weakref
from pathlib import Path

from barograph.base.files.directory_watch import DirectoryWatch

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
