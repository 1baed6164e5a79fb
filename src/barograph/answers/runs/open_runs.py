"""The runs of a directory, views of those that were requested lately, and the doctor's verdicts on them.

The memory of open runs is limited; the least recently used one is closed first.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from barograph.answers.open_run import OpenRun, RunLocation, give_back_memory
from barograph.answers.runs.folders import RunFolders
from barograph.answers.runs.listed_run import HealthBasis, ListedRun
from barograph.base.errors import RequestError
from barograph.catalogue.user_metrics import NamesFiles, names_files
from barograph.diagnosis.diagnose import Visit
from barograph.diagnosis.health import Health, HealthIndex, health_of, told_health
from barograph.importers.cache import list_folder
from barograph.importers.imported import LogFacts
from barograph.importers.summary import run_names
from barograph.journal.directory import FactsIndex, files_digest
from barograph.journal.format.folder import identity

MAX_OPEN_BYTES = 512 << 20  # of memory

ESTIMATE_SECONDS = 10.0  # between estimates of a run that is in use

SMALL_SHARE = 1 / 128  # of the limit: runs with smaller files are estimated less often

SMALL_SECONDS = 60.0

MIN_TRIM_BYTES = 16 << 20  # of closed runs, after which the memory is given back to the system


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


JUDGE_SECONDS = 60.0  # between diagnoses of a run that goes on and is not open
OPEN_SECONDS = 1.0  # times the number of open runs, between diagnoses of one of them
NAMES_SECONDS = 10.0  # between looks at the files that describe the names of a run


class RunHealth:
    """The verdicts on the runs of a directory. The list calls it with its lock held, except for ``judged``."""

    def __init__(self, open_runs: OpenRuns) -> None:
        self._open_runs = open_runs
        self._names: dict[Path, tuple[float, NamesFiles]] = {}
        self._indexes = {
            "journal": HealthIndex(open_runs.dir),
            "log": HealthIndex(open_runs.dir, list_folder(open_runs.dir)),  # nothing is written beside logs
        }

    def take(self, run: ListedRun) -> None:
        """Use a verdict of the index, if it is on the files as they are now."""
        index, digest = self._indexes[run.location.kind], files_digest(run.files.states)
        run.health = index.known(run.location.path, digest, run.annotations["source"], self._names_files)
        run.health_basis = None if run.health is None else self._basis(run)

    def is_due(self, run: ListedRun) -> bool:
        """Return whether a run is to be judged: its files, its source or the names files are others than at that time.

        A run that goes on is judged now and then, and one that is open more often, the fewer are open.
        """
        basis, age = self._basis(run), time.monotonic() - run.judged_at
        if run.health_basis == basis:
            return age > JUDGE_SECONDS and not run.ended  # that it logs nothing for long is a finding too
        if run.health_basis is None or run.health_basis[1:] != basis[1:]:
            return True
        is_open = self._open_runs.get_open(run.location.key) is not None
        pause = OPEN_SECONDS * self._open_runs.count * (not run.ended) if is_open else JUDGE_SECONDS
        return age > min(pause, JUDGE_SECONDS)

    def judged(self, run: ListedRun) -> tuple[Health | None, HealthBasis]:
        """Return the verdict on a run, None if it cannot be read, and what it was made of."""
        # Taken before reading: if the run grows meanwhile, the verdict is older than its files.
        states, source, names = self._basis(run)
        try:
            health, waits = self._judge(run, source)
        except Exception:  # noqa: BLE001 - the run is listed without a verdict, and its status says why
            return None, (states, source, names)
        if waits:
            return health, ({}, source, names)
        if run.ended:
            self._indexes[run.location.kind].keep(run.location.path, files_digest(states), source, health, names)
        return health, (states, source, names)

    def save(self) -> None:
        """Write the indexes, where a verdict is new."""
        for index in self._indexes.values():
            index.save()

    def _basis(self, run: ListedRun) -> HealthBasis:
        return run.files.states, run.annotations["source"], self._names_files(run.location.path)

    def _names_files(self, folder: Path) -> NamesFiles:
        looked_at, found = self._names.get(folder, (-1e9, {}))
        if time.monotonic() - looked_at > NAMES_SECONDS:
            found = names_files(folder)
            self._names[folder] = time.monotonic(), found
        return found

    def _judge(self, run: ListedRun, source: str | None) -> tuple[Health, bool]:
        """Return the verdict, and whether the end of the log waits; uses the open run if there is one.

        Of a run that goes on, what a doctor beside the training has written spares reading all of it.
        """
        location = run.location
        if self._open_runs.get_open(location.key) is not None:
            with self._open_runs.use(location.key) as opened:
                return health_of(opened.diagnosis(), opened.view.steps), opened.view.waits
        if location.log is None and run.facts["status"] == "running":
            told = told_health(location.path, run.facts["last_step"])
            if told is not None:
                return told, False
        with self._open_runs.room_for(location):
            view = location.open()
            return health_of(Visit().diagnose(view, run_names(view, source)), view.steps), view.waits
