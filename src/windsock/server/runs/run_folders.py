"""The runs below a directory and the states of their files, kept up to date by what changed.

Where the kernel tells of changes, nothing is looked at while nothing changes. Elsewhere directories are compared by
their modification times, which tell of new and removed files, and the files of runs that go on by their sizes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from windsock.directory_watch import DirectoryWatch
from windsock.importers.tensorboard import FILE_PATTERN, walk_folders
from windsock.journal.folder import FileStates, RunFiles, run_files

LEVELS = 2  # a directory contains projects, which contain runs
SETTLED_SECONDS = 3.0  # since a change of a directory: a later one has another time, however coarse the clock is
LOOK_SECONDS = 0.5  # between looks at directories of which the kernel tells nothing
FOLDERS_PER_SECOND = 2000  # that are looked at on average; more are looked at less often
FULL_LOOK_SECONDS = 60.0  # in which the files of each of them are looked at, also of runs that have ended
WALK_SECONDS = 5.0  # between searches for event files, which may be anywhere
MAX_WALKED = 10_000  # directories that are watched for new event files


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
    """The folders of runs, with a number for each change. Thread-safe."""

    def __init__(self, dir: Path) -> None:
        self.dir = dir
        self.structure = 0  # increases when a run appears or disappears
        self._lock = threading.RLock()
        self._watch = DirectoryWatch()
        self._root = _Folder(dir, 0, ())
        self._folders: dict[Path, _Folder] = {}
        self._journals: dict[Path, RunFiles] = {}
        self._events: dict[Path, RunFiles] = {}
        self._count = 0
        self._changed: dict[Path, int] = {}  # runs by their last change, the oldest first
        self._ended: set[Path] = set()
        self._untold: dict[Path, _Folder] = {}
        self._looked_at = self._walked_at = -1e9
        self._walk_due = True
        self._walked: dict[Path, int] = {}  # directories that were searched for event files, and when they changed
        self._turn: list[Path] = []  # runs that have ended and whose files are looked at next

    def update(self, now: bool = False) -> None:
        """Take in what changed; with ``now`` also where the kernel tells nothing and a look is not due yet."""
        with self._lock:
            if not self._folders:
                self._add(self._root)
            told = self._watch.changed()
            for path in told:
                self._take(path)
            if self._untold and (now or time.monotonic() - self._looked_at >= self._pause):
                self._look_at_untold()
            self._find_events(told, now)

    def journals(self) -> list[Path]:
        """Return the folders with a journal, project by project."""
        with self._lock:
            return sorted(self._journals)

    def event_folders(self) -> list[Path]:
        """Return the folders with event files."""
        with self._lock:
            return list(self._events)

    def files(self, folder: Path) -> RunFiles:
        """Return the files of a run as of the last update."""
        with self._lock:
            return self._journals.get(folder) or self._events.get(folder) or RunFiles({}, 0)

    def latest_files(self, folder: Path) -> RunFiles:
        """Return the files of a run as of now."""
        with self._lock:
            if not self._watch.tells(folder):
                self._take(folder)
            else:
                self.update()
            return self.files(folder)

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
        if path in self._events:
            self._note(path, self._events, _event_files(path))

    def _look(self, folder: _Folder) -> None:
        # Before the look: what changes meanwhile is told, or the time is another.
        if self._watch.tells(folder.path) or self._watch.add(folder.path):
            self._untold.pop(folder.path, None)
        else:
            self._untold[folder.path] = folder
            folder.modified = _modified(folder.path)
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
            if is_live or path in full or folder.modified < 0 or _modified(path) != folder.modified:
                self._look(folder)
        for path in list(self._events):
            if not self._watch.tells(path):
                self._note(path, self._events, _event_files(path))

    def _next_ended(self, seconds: float) -> Iterator[Path]:
        """Yield as many of the runs that have ended as are due in a time."""
        self._turn = self._turn or [path for path in self._untold if path in self._ended]
        for _ in range(int(len(self._untold) * min(seconds / FULL_LOOK_SECONDS, 1.0)) + 1):
            if self._turn:
                yield self._turn.pop()

    def _find_events(self, told: set[Path], now: bool) -> None:
        """Search for event files, if a directory changed that was searched."""
        self._walk_due = self._walk_due or not self._walked.keys().isdisjoint(told)
        if not now and time.monotonic() - self._walked_at < WALK_SECONDS:
            return
        self._walked_at = time.monotonic()
        if not self._walk_due and self._walked and not any(map(self._has_changed, self._walked.items())):
            return
        found, walked = set(), {}
        if self.dir not in self._journals:
            for path, has_events in walk_folders(self.dir, skip=self._journals):
                walked[path] = _modified(path)
                if has_events:
                    found.add(path)
        self._walk_due = False
        self._watch_walked(walked)
        for path in [*self._events.keys() - found, *found]:
            self._note(path, self._events, _event_files(path) if path in found else None)

    def _has_changed(self, walked: tuple[Path, int]) -> bool:
        """Return whether a directory of which nothing is told may have changed since it was searched."""
        path, modified = walked
        return not self._watch.tells(path) and (modified < 0 or _modified(path) != modified)

    def _watch_walked(self, walked: dict[Path, int]) -> None:
        for path in (self._walked.keys() - walked.keys()) - self._folders.keys():
            self._watch.remove(path)
        for path in walked if len(walked) <= MAX_WALKED else ():
            if not self._watch.tells(path) and self._watch.add(path):
                self._walk_due = True  # it may have changed after the search and before it was watched
        self._walked = walked


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


def _modified(path: Path) -> int:
    """Return when a directory was modified; -1 if that was just now, so that a later change may have the same time."""
    try:
        modified = os.stat(path).st_mtime_ns
    except OSError:
        return 0
    return modified if time.time() - modified / 1e9 > SETTLED_SECONDS else -1


def _event_files(folder: Path) -> RunFiles | None:
    """Return the state of the event files in a folder; None if there are none."""
    states: FileStates = {}
    try:
        with os.scandir(folder) as entries:
            for entry in _named(entries):
                stat = entry.stat()
                states[entry.name] = stat.st_size, stat.st_mtime_ns, stat.st_ino
    except OSError:
        return None
    return RunFiles(states, sum(size for size, _, _ in states.values())) if states else None


def _named(entries: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    return (entry for entry in entries if FILE_PATTERN in entry.name)
