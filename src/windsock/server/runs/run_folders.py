"""The runs below a directory, journals and logs, and the states of their files, kept up to date by what changed.

Where the kernel tells of changes, nothing is looked at while nothing changes. Elsewhere directories are compared by
their modification times, which tell of new and removed files, and the files of runs that go on by their sizes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from windsock.directory_watch import DirectoryWatch
from windsock.importers.formats import Log
from windsock.journal.folder import RunFiles, run_files
from windsock.server.runs.log_folders import LogFolders, directory_time

LEVELS = 2  # a directory contains projects, which contain runs
LOOK_SECONDS = 0.5  # between looks at directories of which the kernel tells nothing
FOLDERS_PER_SECOND = 2000  # that are looked at on average; more are looked at less often
FULL_LOOK_SECONDS = 60.0  # in which the files of each of them are looked at, also of runs that have ended


@dataclass(slots=True)
class _Folder:
    """A directory that is a run, or may contain some."""

    path: Path
    level: int
    inodes: tuple[int, ...]  # of the directory, or of the link and what it leads to
    files: RunFiles | None = None  # of a run
    below: dict[str, _Folder] = field(default_factory=dict)
    modified: int = -1  # when it was looked at; -1: it may have changed since without another time


class RunFolders:
    """The folders and logs of runs, with a number for each change. Thread-safe. The path may be that of one log."""

    def __init__(self, path: Path) -> None:
        self.dir = path.parent if path.is_file() else path
        self.structure = 0  # increases when a run appears or disappears
        self._lock = threading.RLock()
        self._watch = DirectoryWatch()
        self._root = None if path.is_file() else _Folder(path, 0, ())
        self._folders: dict[Path, _Folder] = {}
        self._journals: dict[Path, RunFiles] = {}
        self._logs: dict[Path, RunFiles] = {}
        self._log_folders = LogFolders(path, lambda place, files: self._note(place, self._logs, files))
        self._count = 0
        self._changed: dict[Path, int] = {}  # runs by their last change, the oldest first
        self._ended: set[Path] = set()
        self._untold: dict[Path, _Folder] = {}
        self._looked_at = -1e9
        self._turn: list[Path] = []  # runs that have ended and whose files are looked at next

    def update(self, now: bool = False) -> None:
        """Take in what changed; with ``now`` also where the kernel tells nothing and a look is not due yet."""
        with self._lock:
            if self._root is not None and not self._folders:
                self._add(self._root)
            for path in self._watch.changed():
                self._take(path)
            if self._untold and (now or time.monotonic() - self._looked_at >= self._pause):
                self._look_at_untold()
            if self.dir not in self._journals:
                self._log_folders.update(self._journals, now)

    def journals(self) -> list[Path]:
        """Return the folders with a journal, project by project."""
        with self._lock:
            return sorted(self._journals)

    def logs(self) -> list[tuple[Path, Log]]:
        """Return the logs, each with its place."""
        with self._lock:
            found = ((place, self._log_folders.log(place)) for place in sorted(self._logs))
            return [(place, log) for place, log in found if log is not None]

    def files(self, folder: Path) -> RunFiles:
        """Return the files of a run as of the last update."""
        with self._lock:
            return self._journals.get(folder) or self._logs.get(folder) or RunFiles({}, 0)

    def latest_files(self, folder: Path) -> RunFiles:
        """Return the files of a run as of now."""
        with self._lock:
            if folder in self._logs:
                self._log_folders.update_one(folder)
            elif not self._watch.tells(folder):
                self._take(folder)
            else:
                self.update()
            return self.files(folder)

    def tells(self, folder: Path) -> bool:
        """Return whether every change of a run is told by the kernel; of logs it may not be."""
        with self._lock:
            return folder in self._journals and self._watch.tells(folder)

    def changed_since(self, count: int) -> tuple[int, list[Path]]:
        """Return the number of the last change, and the runs whose files changed after another."""
        with self._lock:
            found = []
            for folder, number in reversed(self._changed.items()):
                if number <= count:
                    break
                found.append(folder)
            return self._count, found

    def set_ended(self, folder: Path, ended: bool) -> None:
        """Say whether a run has ended: then its files rarely change."""
        with self._lock:
            (self._ended.add if ended else self._ended.discard)(folder)

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            self._watch.close()
            self._log_folders.close()

    @property
    def _pause(self) -> float:
        return max(LOOK_SECONDS, len(self._untold) / FOLDERS_PER_SECOND)

    def _add(self, folder: _Folder) -> None:
        self._folders[folder.path] = folder
        self._look(folder)

    def _take(self, path: Path) -> None:
        """Look at a directory that changed."""
        if path in self._folders:
            self._look(self._folders[path])

    def _look(self, folder: _Folder) -> None:
        # Before the look: what changes meanwhile is told, or the time is another.
        if self._watch.tells(folder.path) or self._watch.add(folder.path):
            self._untold.pop(folder.path, None)
        else:
            self._untold[folder.path] = folder
            folder.modified = directory_time(folder.path)
        files = run_files(folder.path)
        folder.files = files if files.is_run else None
        self._note(folder.path, self._journals, folder.files)
        names = {} if files.is_run or folder.level == LEVELS else _subfolders(folder.path)
        for name in [name for name, inner in folder.below.items() if names.get(name) != inner.inodes]:
            self._remove(folder.below.pop(name))
        for name in names.keys() - folder.below.keys():
            folder.below[name] = _Folder(folder.path / name, folder.level + 1, names[name])
            self._add(folder.below[name])

    def _remove(self, folder: _Folder) -> None:
        for inner in folder.below.values():
            self._remove(inner)
        self._note(folder.path, self._journals, None)
        self._folders.pop(folder.path, None)
        self._untold.pop(folder.path, None)
        self._watch.remove(folder.path)

    def _note(self, path: Path, runs: dict[Path, RunFiles], files: RunFiles | None) -> None:
        """Keep the files of a run; count a change, and whether it has appeared or disappeared."""
        before = runs.get(path)
        if before == files:
            return
        if files is None:
            del runs[path]
            self._changed.pop(path, None)
            self._ended.discard(path)
        else:
            runs[path] = files
            self._count += 1
            self._changed.pop(path, None)  # to the end
            self._changed[path] = self._count
        self.structure += before is None or files is None

    def _look_at_untold(self) -> None:
        passed, self._looked_at = time.monotonic() - self._looked_at, time.monotonic()
        full = set(self._next_ended(passed))
        for path, folder in list(self._untold.items()):
            is_live = folder.files is not None and path not in self._ended
            if is_live or path in full or folder.modified < 0 or directory_time(path) != folder.modified:
                self._look(folder)

    def _next_ended(self, seconds: float) -> Iterator[Path]:
        """Yield as many of the runs that have ended as are due in a time."""
        self._turn = self._turn or [path for path in self._untold if path in self._ended]
        for _ in range(int(len(self._untold) * min(seconds / FULL_LOOK_SECONDS, 1.0)) + 1):
            if self._turn:
                yield self._turn.pop()


def _subfolders(dir: Path) -> dict[str, tuple[int, ...]]:
    """Return the inodes of the directories in a directory; a hidden one is not a run."""
    found = {}
    try:
        with os.scandir(dir) as entries:
            for entry in entries:
                inodes = _inodes(entry) if entry.name[0] != "." else None
                if inodes is not None:
                    found[entry.name] = inodes
    except OSError:
        pass
    return found


def _inodes(entry: os.DirEntry[str]) -> tuple[int, ...] | None:
    """Return what tells a directory from another of the same name; None if it is none."""
    try:
        if not entry.is_dir():
            return None
        # A new link may have the inode of an old one, and lead elsewhere.
        return (entry.inode(), entry.stat().st_dev, entry.stat().st_ino) if entry.is_symlink() else (entry.inode(),)
    except OSError:  # a link to itself
        return None
