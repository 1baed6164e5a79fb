"""The logs of other programs below a directory, and the states of their files, kept up to date by what changed.

A search takes long where there are many logs, since it looks into files. It goes on for a moment at each update, and
what it finds is there at once.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from windsock.directory_watch import DirectoryWatch
from windsock.errors import LogError
from windsock.importers.formats import FORMATS, Log, format_of
from windsock.importers.log_list import log_files
from windsock.importers.logs import KnownFormats, logs_at, walk_logs
from windsock.journal.folder import RunFiles

SETTLED_SECONDS = 3.0  # since a change of a directory: a later one has another time, however coarse the clock is
LOOK_SECONDS = 0.5  # between looks at logs of which the kernel tells nothing
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
        if now or time.monotonic() - self._looked_at >= max(LOOK_SECONDS, len(self._untold) / LOGS_PER_SECOND):
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
