"""The list of runs: cheap facts at once, the reward with its sparkline as soon as it has been read.

Facts are taken again only when a run's files have changed, or while it may still change its status. Rewards need the
whole run, so a thread of their own reads them, newest runs first, and ends when there is nothing left to read; an index
keeps them for the next server.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.catalogue.headline import headline_values
from windsock.errors import JournalError
from windsock.importers.tensorboard import TensorBoardRun, place_of, status_at
from windsock.journal.glance import glance
from windsock.readable import Readable
from windsock.server.responses import RequestError, encode, said
from windsock.server.runs.annotations import FOLDER, Marks
from windsock.server.runs.list_index import ListIndex
from windsock.server.runs.open_runs import Entry, Library, Signature, signature
from windsock.summary import known_names, source_of
from windsock.view import View

SPARK_POINTS = 48
STATUS_SECONDS = 2.0  # between looks at a run that has not ended
REWARD_SECONDS = 5.0  # between readings of a run that goes on and is not held open


@dataclass(slots=True)
class _Known:
    """What is known of a run, and of which state of its files."""

    entry: Entry
    seen: Signature = field(default_factory=dict)
    looked: float = -1e9
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    marks: dict[str, Any] = field(default_factory=dict)
    read: dict[str, Any] = field(default_factory=dict)  # facts that only reading tells
    reward: dict[str, Any] | None = None
    reward_seen: Signature | None = None
    reward_read: float = -1e9
    changed: int = 0

    def record(self) -> dict[str, Any]:
        """Return the run as it stands in the list."""
        own = {**self.facts, **self.read, "reward": self.reward, **self.marks}
        return {**own, "name": self.marks.get("name") or self.facts["logged_name"]}


class Listing:
    """All runs as a list that knows what changed since when."""

    def __init__(self, library: Library, marks: Marks) -> None:
        self._library = library
        self._marks = marks
        self._boot = secrets.token_hex(3)
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._gone: dict[str, int] = {}
        self._count = 0
        self._reader: threading.Thread | None = None
        self._closed = False
        self._index = ListIndex(library.dir / FOLDER)
        self._indexed = self._index.load()

    def view(self, since: str | None = None) -> dict[str, Any]:
        """Return the runs, or those that changed since a cursor."""
        with self._lock:
            pending = self._update()
            count = self._since(since)
            found = [known.record() for known in self._known.values() if known.changed > count]
            gone = [key for key, when in self._gone.items() if when > count] if count >= 0 else []
            return {"cursor": self._cursor(), "reset": count < 0, "gone": gone, "pending": pending, "runs": found}

    def cursor(self) -> str:
        """Look at all runs and return the cursor of the list as it is now."""
        with self._lock:
            self._update()
            return self._cursor()

    def one(self, key: str) -> dict[str, Any]:
        """Return one run as it stands in the list."""
        entry = self._library.entry(key)
        with self._lock:
            self._marks.refresh()
            known = self._known.setdefault(key, _Known(entry))
            self._look(known)
            if not known.facts:
                raise RequestError(404, f"run {key!r} cannot be read")
            return known.record()

    def close(self) -> None:
        """Let the reading of rewards end."""
        self._closed = True

    def _cursor(self) -> str:
        return f"{self._boot}-{self._count}"

    def _since(self, cursor: str | None) -> int:
        boot, _, count = (cursor or "").partition("-")
        return int(count) if boot == self._boot and count.isascii() and count.isdecimal() and len(count) < 16 else -1

    def _update(self) -> int:
        """Look at every run whose files or status may have changed; return how many rewards are still to be read."""
        entries = self._library.entries()
        self._marks.refresh()
        for key in [key for key, known in self._known.items() if entries.get(key) != known.entry]:
            del self._known[key]
            self._count += 1
            self._gone[key] = self._count
        for key, entry in entries.items():
            if key not in self._known:
                self._known[key] = _Known(entry)
            self._look(self._known[key])
        for key in [key for key, known in self._known.items() if not known.facts]:
            del self._known[key]
        waiting = [known for known in self._known.values() if known.reward_seen is None]
        if any(self._is_due(known) for known in self._known.values()):
            self._start_reading()
        return len(waiting)

    def _look(self, known: _Known) -> None:
        seen, now = signature(known.entry.folder), time.monotonic()
        if seen != known.seen or (not known.ended and now - known.looked > STATUS_SECONDS):
            try:
                facts = _facts(known.entry, self._library.dir)
            except (JournalError, OSError):  # removed meanwhile, or of a newer format
                return
            known.seen, known.looked, known.ended = seen, now, facts["status"] not in ("running", "stalled")
            self._changed(known, known.facts != facts)
            known.facts = facts
            if known.reward_seen is None:
                self._remember(known)
        marks = self._marks.of(known.entry.key)
        self._changed(known, known.marks != marks)
        known.marks = marks

    def _remember(self, known: _Known) -> None:
        """Take what an earlier server read, if the files are still the same."""
        state, reading = self._indexed.pop(str(known.entry.folder), (None, None))
        if state == _state(known.seen):
            known.reward_seen = known.seen
            known.reward, known.read = reading

    def _changed(self, known: _Known, really: bool) -> None:
        if really:
            self._count += 1
            known.changed = self._count
            self._gone.pop(known.entry.key, None)

    def _is_due(self, known: _Known) -> bool:
        if known.reward_seen == known.seen:
            return False
        held = self._library.held(known.entry.key) is not None
        return held or known.reward_seen is None or time.monotonic() - known.reward_read > REWARD_SECONDS

    def _start_reading(self) -> None:
        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=self._read, name="windsock-rewards", daemon=True)
            self._reader.start()

    def _read(self) -> None:
        fresh: list[tuple[str, Any, Any]] = []
        while not self._closed:
            with self._lock:
                due = [known for known in self._known.values() if self._is_due(known)]
                due.sort(key=lambda known: (known.reward_seen is not None, -float(known.facts["began"])))
            if not due:
                break
            self._read_one(due[0])
            if due[0].ended and due[0].reward_seen:
                reading = due[0].reward, due[0].read
                fresh.append((str(due[0].entry.folder), _state(due[0].reward_seen), reading))
        if fresh:
            self._index.save(fresh)

    def _read_one(self, known: _Known) -> None:
        seen = known.seen
        try:
            reward, read = self._reading(known.entry)
        except (JournalError, OSError, LookupError, ValueError, RequestError):  # shown without
            reward, read = None, {}
        with self._lock:
            known.reward_seen, known.reward_read = seen, time.monotonic()
            self._changed(known, encode((known.reward, known.read)) != encode((reward, read)))
            known.reward, known.read = reward, read

    def _reading(self, entry: Entry) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Read a run, or look at it where it is held open: its reward, and facts that the list lacks."""
        if self._library.held(entry.key) is not None:
            with self._library.use(entry.key) as opened:
                return reward_of(opened.view), _foreign_read(opened.view)
        foreign = entry.kind == "tensorboard"
        view = TensorBoardRun(entry.folder, self._library.dir) if foreign else View(entry.folder)
        return reward_of(view), _foreign_read(view)


def _state(seen: Signature) -> dict[str, list[int]]:
    """Return the state of files as JSON gives it back."""
    return {name: list(sizes) for name, sizes in seen.items()}


def reward_of(view: Readable) -> dict[str, Any] | None:
    """Return the reward of a run with its sparkline; None where it logs none."""
    names = view.names()
    sign = headline_values(known_names(names), source_of(view, names)).get("reward")
    if sign is None:
        return None
    series = view.series(sign.name)
    buckets = series.zoom(max_points=SPARK_POINTS)
    return {
        "name": sign.name,
        "metric": sign.match.metric.id,
        "title": said(sign.match.metric.title),
        "first": float(series.values[0]),
        "last": series.last,
        "step": int(series.steps[-1]),
        "points": len(series),
        "spark": {
            "min": _rounded(buckets.min),
            "max": _rounded(buckets.max),
            "nonfinite": buckets.nonfinite.tolist(),
        },
    }


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    """Return values as exact as a small picture shows them, which halves the list."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def _facts(entry: Entry, root: Path) -> dict[str, Any]:
    if entry.kind == "tensorboard":
        return _foreign_facts(entry, root)
    seen = glance(entry.folder)
    info = seen.info
    return {
        "key": entry.key,
        "id": info.id,
        "logged_name": info.name,
        "project": info.project,
        "kind": entry.kind,
        "status": seen.status.word,
        "reason": seen.status.reason,
        "vocabulary": info.vocabulary,
        "producer": info.producer,
        "group": info.group,
        "tags": list(info.tags),
        "notes": info.notes,
        "last_step": seen.last_step,
        "began": seen.began,
        "last_heard": seen.last_heard,
        "seconds": max(0.0, seen.last_heard - seen.began),
        "bytes": seen.bytes,
        "writers": seen.writers,
        "attempts": seen.attempts,
    }


def _foreign_facts(entry: Entry, root: Path) -> dict[str, Any]:
    """Say of event files what names and dates tell; the rest comes with reading them."""
    files = signature(entry.folder)
    if not files:
        raise FileNotFoundError(entry.folder)
    project, name = place_of(entry.folder, root)
    heard = max(time for _, time in files.values()) / 1e9
    status = status_at(heard)
    return {
        "key": entry.key,
        "id": entry.key,
        "logged_name": name,
        "project": project,
        "kind": entry.kind,
        "status": status.word,
        "reason": status.reason,
        "vocabulary": "",
        "producer": "",
        "group": None,
        "tags": [],
        "notes": None,
        "last_step": None,
        "began": heard,
        "last_heard": heard,
        "seconds": 0.0,
        "bytes": sum(size for size, _ in files.values()),
        "writers": 1,
        "attempts": len(files),
    }


def _foreign_read(view: Readable) -> dict[str, Any]:
    if not isinstance(view, TensorBoardRun):
        return {}
    info, steps, (began, heard) = view.info, view.steps, view.span
    return {
        "vocabulary": info.vocabulary,
        "producer": info.producer,
        "last_step": steps[1] if steps else None,
        "began": began,
        "last_heard": heard,
        "seconds": heard - began,
    }
