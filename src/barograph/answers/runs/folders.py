"""The runs and the logs of other programs below a directory, and the states of their files.

Where the kernel tells of changes, nothing is looked at while nothing changes; elsewhere modification times and
sizes are compared.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from barograph.base.errors import LogError
from barograph.base.files.directory_watch import DirectoryWatch
from barograph.importers.formats import FORMATS, format_of
from barograph.importers.imported import log_files
from barograph.importers.logs import KnownFormats, logs_at, walk_logs
from barograph.importers.reading.log import Log
from barograph.journal.format.folder import RunFiles, run_files

SETTLED_SECONDS = 3.0  # since a change of a directory: a later one has another time, however coarse the clock is

LOG_LOOK_SECONDS = 0.5  # between looks at logs of which the kernel tells nothing

LOGS_PER_SECOND = 2000  # of those that are looked at on average; more are looked at less often

FIRST_SECONDS = 1.0  # of the first search before it pauses: there is nothing to show without it

SEARCH_SECONDS = 0.3  # of later ones

PAUSE_SECONDS = 2.0  # between two searches

PAUSE_SHARE = 20  # times as long as a search took, if that is longer

UNTOLD_SECONDS = 30.0  # after which a directory is searched of which the kernel tells nothing

MAX_WATCHED = 10_000  # directories

Note = Callable[[Path, RunFiles | None], None]
"""Called with the place of a log and its files; None when it is gone."""


class LogFolders:
    """The logs at or below a path, which may be that of one log. The caller has a lock."""

    def __init__(self, root: Path, note: Note) -> None:
        self._root = root
        self._is_one_log = root.is_file()
        self._note = note
        self._watch = DirectoryWatch()
        self._known = KnownFormats(root.parent if self._is_one_log else root)
        self._logs: dict[Path, Log] = {}
        self._places: dict[Path, set[Path]] = {}  # of the logs with files in a directory
        self._untold: set[Path] = set()  # places of logs of whose changes nothing is told
        self._looked_at = self._ended_at = -1e9
        self._search: Iterator[tuple[Path, list[Log]]] | None = None
        self._search_seconds = 0.0  # of the last one, without pauses
        self._is_due = True
        self._found: dict[Path, Log] = {}  # in the search that goes on
        self._walked: dict[Path, int] = {}  # directories that were searched, and when they changed
        self._walking: dict[Path, int] = {}

    def log(self, place: Path) -> Log | None:
        """Return the log at a place."""
        return self._logs.get(place)

    def update(self, journals: Iterable[Path], now: bool = False) -> None:
        """Take in what changed; with ``now`` everything, although a look or a search is not due."""
        self._take_told()
        if now or time.monotonic() - self._looked_at >= max(LOG_LOOK_SECONDS, len(self._untold) / LOGS_PER_SECOND):
            self._looked_at = time.monotonic()
            for place in list(self._untold):
                self._look(place)
        if now and self._search is not None:
            self._go_on(math.inf)
        if self._search is None and (now or self._is_time()) and self._has_news():
            self._begin(journals)
        if self._search is not None:
            self._go_on(math.inf if now else SEARCH_SECONDS if self._walked else FIRST_SECONDS)

    def update_one(self, place: Path) -> None:
        """Take in what changed in the files of a log."""
        if place in self._untold:
            self._look(place)
        else:
            self._take_told()

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    def _take_told(self) -> None:
        told = self._watch.changed()
        self._is_due = self._is_due or not self._walked.keys().isdisjoint(told)
        for path in told:
            for place in list(self._places.get(path, ())):
                self._look(place)

    # -- the files of a log --------------------------------------------------------------------------------------

    def _look(self, place: Path) -> None:
        log = self._logs[place]
        files = _files(log)
        if files.states and self._watch_files(place, log, files):
            files = _files(log)  # they may have changed before they were watched
        if files.states:
            self._note(place, files)
        else:
            self._remove(place)

    def _watch_files(self, place: Path, log: Log, files: RunFiles) -> bool:
        """Watch the directories of a log; return whether one was not watched before."""
        folders = {Path(name).parent for name in files.states} | {log.path if log.path.is_dir() else log.path.parent}
        for folder in folders:
            self._places.setdefault(folder, set()).add(place)
        added = [folder for folder in folders if not self._watch.tells(folder) and self._watch.add(folder)]
        is_told = all(self._watch.tells(folder) for folder in folders)
        (self._untold.discard if is_told else self._untold.add)(place)
        return bool(added)

    def _remove(self, place: Path) -> None:
        self._logs.pop(place, None)
        self._untold.discard(place)
        for folder in [folder for folder, places in self._places.items() if place in places]:
            self._places[folder].discard(place)
            if not self._places[folder]:
                del self._places[folder]
        self._note(place, None)

    # -- the search ----------------------------------------------------------------------------------------------

    def _is_time(self) -> bool:
        pause = max(PAUSE_SECONDS, PAUSE_SHARE * self._search_seconds)
        return time.monotonic() - self._ended_at >= pause

    def _has_news(self) -> bool:
        """Return whether a directory that was searched may have changed."""
        if self._is_due or not self._walked:
            return True
        untold = [(path, modified) for path, modified in self._walked.items() if not self._watch.tells(path)]
        if untold and time.monotonic() - self._ended_at > UNTOLD_SECONDS:
            return True
        return any(modified < 0 or directory_time(path) != modified for path, modified in untold)

    def _begin(self, journals: Iterable[Path]) -> None:
        for name in FORMATS:
            format_of(name)  # which imports it: that takes longer than a search
        self._is_due = False
        self._found, self._walking, self._search_seconds = {}, {}, 0.0
        self._search = self._one_log() if self._is_one_log else walk_logs(self._root, self._known, journals)

    def _one_log(self) -> Iterator[tuple[Path, list[Log]]]:
        try:
            yield self._root.parent, logs_at(self._root)
        except LogError:  # it is gone
            yield self._root.parent, []

    def _go_on(self, seconds: float) -> None:
        assert self._search is not None
        began = time.monotonic()
        for folder, logs in self._search:
            self._walking[folder] = directory_time(folder)
            for log in logs:
                self._found[log.place] = log
                self._take(log)
            if time.monotonic() - began > seconds:
                break
        else:
            self._end()
        self._search_seconds += time.monotonic() - began

    def _take(self, log: Log) -> None:
        known = self._logs.get(log.place)
        if known == log:
            return
        if known is not None:  # of another format than it seemed
            self._remove(log.place)
        self._logs[log.place] = log
        self._look(log.place)

    def _end(self) -> None:
        self._search, self._ended_at = None, time.monotonic()
        for place in self._logs.keys() - self._found.keys():
            self._remove(place)
        for path in (self._walked.keys() - self._walking.keys()) - self._places.keys():
            self._watch.remove(path)
        for path in self._walking if len(self._walking) <= MAX_WATCHED else ():
            if not self._watch.tells(path) and self._watch.add(path):
                self._is_due = True  # it may have changed after the search and before it was watched
        self._walked = self._walking


def _files(log: Log) -> RunFiles:
    try:
        return log_files(log)
    except Exception:  # noqa: BLE001 - whatever a format says about one log, the others are listed
        return RunFiles({}, 0)


def directory_time(path: Path) -> int:
    """Return when a directory was modified; -1 if that was just now, so that a later change may have the same time."""
    try:
        modified = os.stat(path).st_mtime_ns
    except OSError:
        return 0
    return modified if time.time() - modified / 1e9 > SETTLED_SECONDS else -1


LEVELS = 2  # a directory contains projects, which contain runs

LOOK_SECONDS = 0.5  # between looks at directories of which the kernel tells nothing

FOLDERS_PER_SECOND = 2000  # that are looked at on average; more are looked at less often

FULL_LOOK_SECONDS = 60.0  # in which the files of each of them are looked at, also of runs that have ended


@dataclass(slots=True)
class _ListedFolder:
    """A directory that is a run, or may contain some."""

    path: Path
    level: int
    inodes: tuple[int, ...]  # of the directory, or of the link and what it leads to
    files: RunFiles | None = None  # of a run
    below: dict[str, _ListedFolder] = field(default_factory=dict)
    modified: int = -1  # when it was looked at; -1: it may have changed since without another time


class RunFolders:
    """The folders and logs of runs, with a number for each change. Thread-safe. The path may be that of one log."""

    def __init__(self, path: Path) -> None:
        self.dir = path.parent if path.is_file() else path
        self.structure = 0  # increases when a run appears or disappears
        self._lock = threading.RLock()
        self._watch = DirectoryWatch()
        self._root = None if path.is_file() else _ListedFolder(path, 0, ())
        self._folders: dict[Path, _ListedFolder] = {}
        self._journals: dict[Path, RunFiles] = {}
        self._logs: dict[Path, RunFiles] = {}
        self._log_folders = LogFolders(path, lambda place, files: self._note(place, self._logs, files))
        self._count = 0
        self._changed: dict[Path, int] = {}  # runs by their last change, the oldest first
        self._ended: set[Path] = set()
        self._untold: dict[Path, _ListedFolder] = {}
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

    def _add(self, folder: _ListedFolder) -> None:
        self._folders[folder.path] = folder
        self._look(folder)

    def _take(self, path: Path) -> None:
        """Look at a directory that changed."""
        if path in self._folders:
            self._look(self._folders[path])

    def _look(self, folder: _ListedFolder) -> None:
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
            folder.below[name] = _ListedFolder(folder.path / name, folder.level + 1, names[name])
            self._add(folder.below[name])

    def _remove(self, folder: _ListedFolder) -> None:
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
