"""The runs of a directory, and views of those that were requested lately.

An open run is refreshed when the sizes of its files change, and reads only the new bytes. The memory of open runs is
limited; the least recently used one is closed first.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from windsock.catalogue.resolution import RunNames
from windsock.catalogue.taught import NamesFiles, names_files
from windsock.diagnosis.diagnose import Diagnosis
from windsock.diagnosis.doctor import Visit
from windsock.errors import JournalError, LogError
from windsock.importers.formats import Log
from windsock.importers.log_list import LogFacts
from windsock.journal.folder import RUN_FILE, FileStates, RunFiles, identity, run_files
from windsock.journal.run_list import FactsIndex
from windsock.opening import ImportedView
from windsock.server.responses import RequestError
from windsock.server.runs.memory_estimate import give_back_memory, held_bytes
from windsock.server.runs.run_folders import RunFolders
from windsock.summary import run_names
from windsock.view import View

T = TypeVar("T")
MAX_OPEN_BYTES = 512 << 20  # of memory
ESTIMATE_SECONDS = 10.0  # between estimates of a run that is in use
SMALL_SHARE = 1 / 128  # of the limit: runs with smaller files are estimated less often
SMALL_SECONDS = 60.0
MIN_TRIM_BYTES = 16 << 20  # of closed runs, after which the memory is given back to the system
MAX_CACHED = 256  # cached results per run
MEANING_SECONDS = 60.0  # for which the meanings of names are kept
SILENT_SECONDS = 5.0  # between diagnoses of a run that goes on and logs nothing
NAMES_SECONDS = 1.0  # between looks at the files that describe names


@dataclass(frozen=True, slots=True)
class RunLocation:
    """A run's key in URLs, and its folder or log."""

    key: str
    path: Path
    log: Log | None = None

    @property
    def kind(self) -> Literal["journal", "log"]:
        """Whether windsock has recorded the run, or another program."""
        return "journal" if self.log is None else "log"

    def open(self) -> View:
        """Open the run."""
        return View(self.path) if self.log is None else ImportedView(self.log)


class OpenRun:
    """An open run. Readers hold ``lock``: a view is not thread-safe. ``files`` returns its files as of now."""

    def __init__(
        self, location: RunLocation, files: Callable[[Path], RunFiles] = run_files, view: View | None = None
    ) -> None:
        self.location = location
        self.lock = threading.RLock()
        self.version = 0
        self._files = files
        self._seen: FileStates = {}
        self._cache: OrderedDict[Any, tuple[int, float, Any]] = OrderedDict()
        self.followed: dict[tuple[str, int], Any] = {}  # what pages have of series, by name and number of points
        self.source: str | None = None  # chosen by a person for the names of the run
        self._visit = Visit()
        self._names_files: NamesFiles = {}
        self._names_at = -1e9
        self._estimated = 0
        self.estimated_at = -1e9
        self.estimate_seconds = 0.0  # for which an estimate counts although the run is used
        self.used_at = time.monotonic()
        self.view = view or self._open()

    @property
    def bytes(self) -> int:
        """About the memory that the run takes, with the cached results. A view takes more as it is used."""
        if self.used_at > self.estimated_at + self.estimate_seconds:
            self.estimated_at = time.monotonic()
            self._estimated = held_bytes((self.view, self._cache, self._visit))
        return self._estimated

    def refresh(self) -> None:
        """Read what was appended to the files; open the run again where they were replaced."""
        now = self._files(self.location.path).states
        if now == self._seen and not self.view.waits:
            return
        if self.location.log is None and self._is_replaced(now):  # the view of a log knows by itself
            self._cache.clear()
            self.followed.clear()
            self.view = self._open()
            return
        is_new = self.view.refresh() or now != self._seen
        self._seen = now
        self.version += is_new

    def _is_replaced(self, now: FileStates) -> bool:
        """Return whether other files have the names of those that were read: a run was deleted and made again."""
        # run.json is written once, and segments only grow.
        is_shorter = any(name not in now or now[name][0] < size for name, (size, _, _) in self._seen.items())
        return is_shorter or now.get(RUN_FILE) != self._seen.get(RUN_FILE)

    def set_source(self, source: str | None) -> None:
        """Take the source that a person has chosen, and the files that describe names; forget what depends on them."""
        files = self._names_files
        if time.monotonic() - self._names_at > NAMES_SECONDS:
            files, self._names_at = names_files(self.location.path), time.monotonic()
        if (source, files) != (self.source, self._names_files):
            self.source, self._names_files = source, files
            self._cache.clear()
            self.version += 1

    def meanings(self) -> RunNames:
        """Return the names of the run with their meanings."""
        # Resolving all names takes long, and new values of a running run hardly change the meaning of a name.
        return self.cached(
            ("names", len(self.view.names())), lambda: run_names(self.view, self.source), MEANING_SECONDS
        )

    def diagnosis(self) -> Diagnosis:
        """Return what the doctor says about the run as it is now."""
        return self.judged("diagnosis", lambda: self._visit.diagnose(self.view, self.meanings()))

    def judged(self, key: Any, compute: Callable[[], T]) -> T:
        """Return a cached result that has a diagnosis: of a run that goes on it changes with time too."""
        known = self._cache.get(key)
        if known and time.monotonic() - known[1] > SILENT_SECONDS and not self.view.status.ended:
            del self._cache[key]
        return self.cached(key, compute)

    def cached(self, key: Any, compute: Callable[[], T], max_age: float = 0.0) -> T:
        """Return the result cached for this version of the run, or within ``max_age`` seconds; else compute it."""
        known = self._cache.get(key)
        if known and (known[0] == self.version or time.monotonic() - known[1] < max_age):
            found: T = known[2]
            return found
        result = compute()
        self._cache[key] = self.version, time.monotonic(), result
        self._cache.move_to_end(key)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return result

    def _open(self) -> View:
        # Before the files are read: bytes that are appended meanwhile make the next refresh see a change.
        self._seen = self._files(self.location.path).states
        self.version += 1
        try:
            return self.location.open()
        except (JournalError, LogError, OSError) as problem:
            raise RequestError(404, f"run {self.location.key} cannot be read: {problem}") from problem


class RunSource(Protocol):
    """Runs that can be read by their keys."""

    def use(self, key: str) -> AbstractContextManager[OpenRun]:
        """Return an open run that only the caller uses meanwhile."""
        ...


class GivenRuns:
    """Runs that are open already, under keys of the caller."""

    def __init__(self, views: Mapping[str, View]) -> None:
        self._opened = {key: OpenRun(RunLocation(key, view.location), view=view) for key, view in views.items()}

    @contextmanager
    def use(self, key: str) -> Iterator[OpenRun]:
        """Yield an open run."""
        yield self._opened[key]


class OpenRuns:
    """The runs below a directory or in one log, opened on demand."""

    def __init__(
        self,
        path: Path,
        max_bytes: int = MAX_OPEN_BYTES,
        source_of: Callable[[str], str | None] = lambda key: None,
    ) -> None:
        self._source_of = source_of
        self.folders = RunFolders(path)
        self.dir = self.folders.dir
        self.facts = FactsIndex(self.dir)
        self.log_facts = LogFacts(self.dir)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, OpenRun] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._reading = 0  # bytes of files that are being read
        self._locations: dict[str, RunLocation] = {}
        self._ids: dict[Path, str] = {}
        self._structure = -1

    def locations(self, now: bool = False) -> dict[str, RunLocation]:
        """Return the runs that exist, by key; with ``now`` also those that began a moment ago."""
        with self._lock:
            self.folders.update(now)
            if self._structure != self.folders.structure:
                self._structure = self.folders.structure
                self._locations = {location.key: location for location in self._locate()}
            return self._locations

    def location(self, key: str) -> RunLocation:
        """Return the run with this key; a RequestError reports an unknown one."""
        found = self.locations().get(key) or self.locations(now=True).get(key)
        if found is None:
            raise RequestError(404, f"no run {key!r}; /api/runs lists them")
        return found

    @contextmanager
    def use(self, key: str) -> Iterator[OpenRun]:
        """Yield an open run, refreshed and locked for the caller."""
        location = self.location(key)
        with self._lock:
            # A lock for each run: opening a large one takes seconds, in which requests for others must not wait.
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:  # two requests for one run open it once
            opened = self.get_open(key)
            if opened is None or opened.location != location:
                with self.room_for(location):
                    opened = OpenRun(location, self.folders.latest_files)
                self._add(opened)
        with self._lock:
            if key in self._opened:
                self._opened.move_to_end(key)
        with opened.lock:
            opened.refresh()
            opened.set_source(self._source_of(key))
            yield opened
        opened.used_at = time.monotonic()
        if opened.used_at - opened.estimated_at > max(ESTIMATE_SECONDS, opened.estimate_seconds):
            self._close_oldest()

    def get_open(self, key: str) -> OpenRun | None:
        """Return a run if it is already open."""
        with self._lock:
            return self._opened.get(key)

    @property
    def count(self) -> int:
        """The number of open runs."""
        return len(self._opened)

    @contextmanager
    def room_for(self, location: RunLocation) -> Iterator[None]:
        """Close runs until one that is about to be read has room: it takes about as much memory as its files."""
        size = self.folders.files(location.path).bytes
        with self._lock:
            self._reading += size
        try:
            # The run in view stays, unless the other one is large too.
            self._close_oldest(keep=0 if size > self._max_bytes // 8 else 1)
            yield
        finally:
            with self._lock:
                self._reading -= size

    def _add(self, opened: OpenRun) -> None:
        with self._lock:
            self._opened[opened.location.key] = opened
        self._close_oldest()

    def _close_oldest(self, keep: int = 1) -> None:
        """Close the least recently used runs beyond the limit, but never the last ``keep``, however large they are."""
        with self._lock:
            for one in self._opened.values():
                is_small = self.folders.files(one.location.path).bytes < SMALL_SHARE * self._max_bytes
                one.estimate_seconds = SMALL_SECONDS if is_small else 0.0
            held = {key: one.bytes for key, one in self._opened.items()}
            total = sum(held.values()) + self._reading
            closed = 0
            for key in list(self._opened)[: len(self._opened) - keep]:
                if total - closed > self._max_bytes:
                    closed += held[key]
                    del self._opened[key]
        if closed > MIN_TRIM_BYTES:
            give_back_memory()

    def _locate(self) -> Iterator[RunLocation]:
        taken: set[str] = set()
        ids = self._ids
        self._ids = {}
        for folder in self.folders.journals():
            self._ids[folder] = ids.get(folder) or self._id(folder)  # kept: run.json is written once
            key = self._ids[folder].replace("/", "_")
            if key in taken:
                key = f"{key}~{_hash(folder, self.dir)}"  # a copy of a run's directory has the same id
            taken.add(key)
            yield RunLocation(key, folder)
        for place, log in self.folders.logs():
            prefix = "tb" if log.format == "event_files" else "log"  # as annotations of earlier versions have it
            yield RunLocation(f"{prefix}-{_hash(place, self.dir)}", place, log)

    def _id(self, folder: Path) -> str:
        known = self.facts.known(folder, self.folders.files(folder))
        return (known.info if known is not None else identity(folder)).id


def _hash(folder: Path, root: Path) -> str:
    # Relative, so that a link to a run stays valid when the whole directory is moved.
    return hashlib.blake2b(os.fsencode(os.path.relpath(folder, root)), digest_size=5).hexdigest()
