"""An open run: its view with cached results, its series, and about how much memory it holds.

It reads only the new bytes when its files grow.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from barograph.base.errors import JournalError, LogError, MetricNotFoundError, RequestError
from barograph.base.model import Writer
from barograph.catalogue.names import Match
from barograph.catalogue.resolution import RunNames
from barograph.catalogue.user_metrics import NamesFiles, names_files
from barograph.diagnosis.diagnose import Diagnosis, Visit
from barograph.importers.opening import ImportedView
from barograph.importers.reading.log import Log
from barograph.importers.summary import run_names
from barograph.journal.format.folder import RUN_FILE, FileStates, RunFiles, run_files
from barograph.journal.read.series import Series
from barograph.journal.read.spans import SpanTable
from barograph.journal.view import View

T = TypeVar("T")

SeriesPlace = tuple[str, str | None, int | None, int | None]
"""The name of a series, and role, rank and attempt where it is that of one writer."""

MAX_CACHED = 256  # cached results per run

MEANING_SECONDS = 60.0  # for which the meanings of names are kept

SILENT_SECONDS = 5.0  # between diagnoses of a run that goes on and logs nothing

SPANS_SECONDS = 2.0  # spans of a running run are read again after this

NAMES_SECONDS = 1.0  # between looks at the files that describe names


@dataclass(frozen=True, slots=True)
class RunLocation:
    """A run's key in URLs, and its folder or log."""

    key: str
    path: Path
    log: Log | None = None

    @property
    def kind(self) -> Literal["journal", "log"]:
        """Whether barograph has recorded the run, or another program."""
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

    def series(self, name: str) -> Series:
        """Return a series as it is merged; raise MetricNotFoundError if the run has none of that name."""
        return self.series_at((name, None, None, None))

    def series_at(self, place: SeriesPlace) -> Series:
        """Return a series, which may be that of one writer; recent ones are cached together with their pyramids."""
        return self.cached(("series", *place), lambda: self.view.series(*place))

    def find_series(self, name: str) -> Series | None:
        """Return a series as it is merged; None if the run has none of that name."""
        try:
            return self.series(name)
        except MetricNotFoundError:
            return None

    def meanings(self) -> RunNames:
        """Return the names of the run with their meanings."""
        # Resolving all names takes long, and new values of a running run hardly change the meaning of a name.
        return self.cached(
            ("names", len(self.view.names())), lambda: run_names(self.view, self.source), MEANING_SECONDS
        )

    def matches(self) -> dict[str, Match]:
        """Return the names whose meanings are known, with these."""
        meanings = self.meanings()
        return {name: match for name in self.view.names() if (match := meanings.match(name)) is not None}

    def span_table(self) -> SpanTable:
        """Return the spans of the run; they are kept for some seconds."""
        return self.cached("spans", self.view.span_table, SPANS_SECONDS)

    def step_windows(self) -> dict[Writer, dict[int, tuple[float, float]]]:
        """Return when each writer began and ended its steps; they are kept for some seconds."""
        return self.cached("windows", self.view.step_windows, SPANS_SECONDS)

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


@dataclass(frozen=True, slots=True)
class Window:
    """A range of an x axis and the maximum number of buckets in it; 0 buckets: every point."""

    points: int = 600
    lo: float | None = None
    hi: float | None = None
    x: str = "step"
    branches: bool = False


@dataclass(frozen=True, slots=True)
class SeriesRequest:
    """One requested series; ``since`` is the cursor of an earlier curve."""

    run: str
    name: str
    role: str | None = None
    rank: int | None = None
    attempt: int | None = None
    since: str | None = None
    factor: float = 1.0

    @property
    def place(self) -> SeriesPlace:
        """What identifies the series within its run."""
        return self.name, self.role, self.rank, self.attempt


MAX_SAMPLED = 64  # entries of a container that are looked at

MAX_VISITED = 30_000  # objects; the others are taken to be like these

PLAIN = (str, bytes, bytearray, int, float, complex, type(None))

# Not the object's own. The pages of a mapped file are the system's, which takes them back when it needs them.
SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, mmap.mmap)


def held_bytes(root: Any) -> int:
    """Return about how many bytes an object and all that it refers to take.

    Of large containers some entries stand for all, so that it takes milliseconds for any size.
    """
    seen: set[int] = set()
    left = deque([(root, 1.0)])  # level by level: those that are left at the end are then like the last ones
    total = 0.0
    while left and len(seen) < MAX_VISITED:
        one, weight = left.popleft()
        if id(one) in seen or isinstance(one, SHARED):
            continue
        seen.add(id(one))
        total += weight * sys.getsizeof(one)
        if isinstance(one, np.ndarray):
            # Many arrays may be parts of one, which counts once.
            left += [] if one.base is None else [(one.base, 1.0)]
        elif not isinstance(one, PLAIN):
            entries, factor = _entries(one)
            left += [(entry, weight * factor) for entry in entries]
    return int(total * (len(seen) + len(left)) / max(len(seen), 1))


def _entries(one: Any) -> tuple[Iterable[Any], float]:
    """Return objects that another one refers to, and how many each of them stands for."""
    if isinstance(one, list | tuple | dict | set | frozenset | deque | OrderedDict) and len(one) > MAX_SAMPLED:
        step = len(one) // MAX_SAMPLED
        try:
            found = list(islice(one, 0, None, step))
        except RuntimeError:  # another thread changes it
            return (), 1.0
        values = [one.get(key) for key in found] if isinstance(one, dict) else []
        return chain(found, values), len(one) / len(found)
    return gc.get_referents(one), 1.0


def give_back_memory() -> None:
    """Give memory that is no longer used back to the system, which the allocator would keep."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
