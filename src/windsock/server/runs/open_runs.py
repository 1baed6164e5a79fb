"""The runs of a directory: which there are, and views of those that somebody looks at.

An opened run is read on from where it was whenever its files have grown, which a look at their sizes tells. Only so
many bytes of runs are held open; the one that was not asked for the longest goes first.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from windsock.errors import JournalError
from windsock.importers.tensorboard import MARK, TensorBoardRun, event_folders
from windsock.journal.folder import read_run_info, run_folders
from windsock.readable import Readable
from windsock.server.responses import RequestError
from windsock.view import View

T = TypeVar("T")
Signature = dict[str, tuple[int, int]]
HELD_BYTES = 1 << 30
MOST_MADE = 256  # things remembered of one run
SCAN_SECONDS = 0.5
FOREIGN_SCAN_SECONDS = 5.0  # event files may lie anywhere, so the whole tree is walked


@dataclass(frozen=True, slots=True)
class Entry:
    """A run that was found: by which key it is asked for, and where it lies."""

    key: str
    folder: Path
    kind: Literal["journal", "tensorboard"]


def signature(folder: Path) -> Signature:
    """Return sizes and times of the files that a run is read from."""
    try:
        with os.scandir(folder) as entries:
            files = [entry for entry in entries if entry.name.endswith(".seg") or MARK in entry.name]
            return {entry.name: ((stat := entry.stat()).st_size, stat.st_mtime_ns) for entry in files}
    except OSError:
        return {}


class Opened:
    """One run held open. ``lock`` is held by whoever reads it: a view is for one reader at a time."""

    def __init__(self, entry: Entry, root: Path) -> None:
        self.entry = entry
        self.lock = threading.RLock()
        self.version = 0
        self._root = root
        self._seen: Signature = {}
        self._made: OrderedDict[Any, tuple[int, float, Any]] = OrderedDict()
        self.view = self._open()

    @property
    def bytes(self) -> int:
        """How large the files are that are held."""
        return sum(size for size, _ in self._seen.values())

    def refresh(self) -> None:
        """Read on where files have grown; begin anew where they were replaced."""
        now = signature(self.entry.folder)
        if now == self._seen:
            return
        if any(name not in now or now[name][0] < size for name, (size, _) in self._seen.items()):
            self._made.clear()
            self.view = self._open()
            return
        self._seen = now
        self.view.refresh()
        self.version += 1

    def once(self, what: Any, make: Callable[[], T], seconds: float = 0.0) -> T:
        """Return what was made of the run as it stands, or up to ``seconds`` ago; else make it."""
        known = self._made.get(what)
        if known and (known[0] == self.version or time.monotonic() - known[1] < seconds):
            found: T = known[2]
            return found
        made = make()
        self._made[what] = self.version, time.monotonic(), made
        self._made.move_to_end(what)
        if len(self._made) > MOST_MADE:
            self._made.popitem(last=False)
        return made

    def _open(self) -> Readable:
        self._seen = signature(self.entry.folder)
        self.version += 1
        try:
            if self.entry.kind == "tensorboard":
                return TensorBoardRun(self.entry.folder, self._root)
            return View(self.entry.folder)
        except (JournalError, OSError) as problem:
            raise RequestError(404, f"run {self.entry.key} cannot be read: {problem}") from problem


class Library:
    """The runs below a directory."""

    def __init__(self, dir: Path, held_bytes: int = HELD_BYTES) -> None:
        self.dir = dir
        self._held_bytes = held_bytes
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._entries: dict[str, Entry] = {}
        self._keys: dict[Path, str] = {}
        self._scanned = self._walked = -1e9
        self._foreign: list[Path] = []

    def entries(self) -> dict[str, Entry]:
        """Return the runs that are there now, by key."""
        with self._lock:
            if time.monotonic() - self._scanned >= SCAN_SECONDS:
                self._entries = {entry.key: entry for entry in self._scan()}
                self._scanned = time.monotonic()
            return self._entries

    def entry(self, key: str) -> Entry:
        """Return the run with this key."""
        found = self.entries().get(key)
        if found is None:
            raise RequestError(404, f"no run {key!r}; /api/runs lists them")
        return found

    @contextmanager
    def use(self, key: str) -> Iterator[Opened]:
        """Give a run, opened, up to date, and for this reader alone."""
        entry = self.entry(key)
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:  # two that ask for a run at once read it once
            opened = self.held(key)
            if opened is None or opened.entry != entry:
                opened = self._admit(Opened(entry, self.dir))
        with opened.lock:
            opened.refresh()
            yield opened

    def held(self, key: str) -> Opened | None:
        """Return a run if it is held open already."""
        with self._lock:
            if key in self._opened:
                self._opened.move_to_end(key)
            return self._opened.get(key)

    def _admit(self, opened: Opened) -> Opened:
        """Hold a run open, and let go of the oldest beyond the limit."""
        with self._lock:
            self._opened[opened.entry.key] = opened
            total = sum(one.bytes for one in self._opened.values())
            for oldest in list(self._opened)[:-1]:
                if total > self._held_bytes:
                    total -= self._opened.pop(oldest).bytes
        return opened

    def _scan(self) -> Iterator[Entry]:
        folders = list(run_folders(self.dir))
        taken: set[str] = set()
        for folder in folders:
            key = self._key(folder)
            if key in taken:
                key = f"{key}~{_hash(folder, self.dir)}"
            taken.add(key)
            yield Entry(key, folder, "journal")
        if time.monotonic() - self._walked >= FOREIGN_SCAN_SECONDS:
            self._foreign = list(event_folders(self.dir, skip=folders)) if self.dir not in folders else []
            self._walked = time.monotonic()
        for folder in self._foreign:
            yield Entry(f"tb-{_hash(folder, self.dir)}", folder, "tensorboard")

    def _key(self, folder: Path) -> str:
        if folder not in self._keys:
            self._keys[folder] = read_run_info(folder).id.replace("/", "_")
        return self._keys[folder]


def _hash(folder: Path, root: Path) -> str:
    return hashlib.blake2b(os.fsencode(os.path.relpath(folder, root)), digest_size=5).hexdigest()
