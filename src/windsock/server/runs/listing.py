"""The list of runs: cheap facts at once, rewards with their sparklines as soon as they are read.

Facts are read again when a run's files change, or while its status may still change. Rewards need the complete run, so
a background thread reads them, newest runs first, and ends when none is left. An index keeps them for the next server.
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
from windsock.importers.tensorboard import TensorBoardRun, project_and_name, status_from_time
from windsock.journal.folder import PAGE_FOLDER
from windsock.journal.run_list import glances
from windsock.readable import Readable
from windsock.server.responses import RequestError, bilingual, encode
from windsock.server.runs.annotations import Annotations
from windsock.server.runs.list_index import ListIndex
from windsock.server.runs.open_runs import OpenRuns, RunLocation, Signature, file_signature
from windsock.summary import known_names, source_of
from windsock.view import View

SPARK_POINTS = 48
STATUS_SECONDS = 2.0  # between status checks of a run that has not ended
REWARD_SECONDS = 5.0  # between readings of a running run that is not open


@dataclass(slots=True)
class _ListedRun:
    """A run of the list, and the state of its files when each part was read."""

    location: RunLocation
    files: Signature = field(default_factory=dict)
    checked_at: float = -1e9
    ended: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)  # facts of event files that need reading
    reward: dict[str, Any] | None = None
    reward_files: Signature | None = None
    reward_read_at: float = -1e9
    changed: int = 0

    def record(self) -> dict[str, Any]:
        """Return the run's record in the list."""
        own = {**self.facts, **self.details, "reward": self.reward, **self.annotations}
        return {**own, "name": self.annotations.get("name") or self.facts["logged_name"]}


class Listing:
    """All runs as a list with cursors: each change has a number."""

    def __init__(self, open_runs: OpenRuns, annotations: Annotations) -> None:
        self._open_runs = open_runs
        self._annotations = annotations
        self._server_id = secrets.token_hex(3)  # each server counts from 0: the cursor of another is not valid
        self._lock = threading.Lock()
        self._runs: dict[str, _ListedRun] = {}
        self._gone: dict[str, int] = {}  # removed runs, with the number of the change, for pages that still show them
        self._changes = 0
        self._reward_thread: threading.Thread | None = None
        self._closed = False
        self._index = ListIndex(open_runs.dir / PAGE_FOLDER)
        self._indexed = self._index.load()

    def view(self, since: str | None = None) -> dict[str, Any]:
        """Return the runs, or those that changed since a cursor."""
        with self._lock:
            pending = self._update()
            count = self._since(since)
            found = [run.record() for run in self._runs.values() if run.changed > count]
            gone = [key for key, when in self._gone.items() if when > count] if count >= 0 else []
            return {"cursor": self._cursor(), "reset": count < 0, "gone": gone, "pending": pending, "runs": found}

    def cursor(self) -> str:
        """Update the list and return its cursor."""
        with self._lock:
            self._update()
            return self._cursor()

    def one(self, key: str) -> dict[str, Any]:
        """Return one run's record."""
        location = self._open_runs.location(key)
        with self._lock:
            self._annotations.refresh()
            run = self._runs.setdefault(key, _ListedRun(location))
            self._update_run(run)
            if not run.facts:
                raise RequestError(404, f"run {key!r} cannot be read")
            return run.record()

    def close(self) -> None:
        """Stop the background thread after the run that it reads."""
        self._closed = True

    def _cursor(self) -> str:
        return f"{self._server_id}-{self._changes}"

    def _since(self, cursor: str | None) -> int:
        """Return the number of a cursor's change; -1 for no cursor, or one of another server process."""
        server, _, count = (cursor or "").partition("-")
        valid = server == self._server_id and count.isascii() and count.isdecimal() and len(count) < 16
        return int(count) if valid else -1

    def _update(self) -> int:
        """Update every run whose files or status may have changed; return the number of rewards not read yet."""
        locations = self._open_runs.locations()
        self._annotations.refresh()
        for key in [key for key, run in self._runs.items() if locations.get(key) != run.location]:
            del self._runs[key]
            self._changes += 1
            self._gone[key] = self._changes
        for key, location in locations.items():
            if key not in self._runs:
                self._runs[key] = _ListedRun(location)
            self._update_run(self._runs[key])
        for key in [key for key, run in self._runs.items() if not run.facts]:
            del self._runs[key]
        unread = [run for run in self._runs.values() if run.reward_files is None]
        if any(self._is_due(run) for run in self._runs.values()):
            self._start_reading()
        return len(unread)

    def _update_run(self, run: _ListedRun) -> None:
        files, now = file_signature(run.location.folder), time.monotonic()
        # The status of a run also changes without a write: its process may be killed.
        if files != run.files or (not run.ended and now - run.checked_at > STATUS_SECONDS):
            try:
                facts = _facts(run.location, self._open_runs.dir)
            except (JournalError, OSError, ValueError):  # removed meanwhile
                return
            run.files, run.checked_at, run.ended = files, now, facts["status"] not in ("running", "stalled")
            self._count_change(run, run.facts != facts)
            run.facts = facts
            if run.reward_files is None:
                self._take_indexed(run)
        annotations = self._annotations.get(run.location.key)
        self._count_change(run, run.annotations != annotations)
        run.annotations = annotations

    def _take_indexed(self, run: _ListedRun) -> None:
        """Use an earlier server's result if the files are the same."""
        state, reading = self._indexed.pop(str(run.location.folder), (None, None))
        if state == _json_state(run.files):
            run.reward_files = run.files
            run.reward, run.details = reading

    def _count_change(self, run: _ListedRun, changed: bool) -> None:
        if changed:
            self._changes += 1
            run.changed = self._changes
            self._gone.pop(run.location.key, None)  # the run is back

    def _is_due(self, run: _ListedRun) -> bool:
        if run.reward_files == run.files:
            return False
        is_open = self._open_runs.get_open(run.location.key) is not None
        return is_open or run.reward_files is None or time.monotonic() - run.reward_read_at > REWARD_SECONDS

    def _start_reading(self) -> None:
        if self._reward_thread is None or not self._reward_thread.is_alive():
            self._reward_thread = threading.Thread(target=self._read_rewards, name="windsock-rewards", daemon=True)
            self._reward_thread.start()

    def _read_rewards(self) -> None:
        readings: list[tuple[str, Any, Any]] = []
        while not self._closed:
            with self._lock:
                due = [run for run in self._runs.values() if self._is_due(run)]
                # Runs that show no reward yet come before those whose reward is a little old.
                due.sort(key=lambda run: (run.reward_files is not None, -float(run.facts["began"])))
            if not due:
                break
            self._read_one(due[0])
            # A run that goes on has other files when the next server starts.
            if due[0].ended and due[0].reward_files:
                reading = due[0].reward, due[0].details
                readings.append((str(due[0].location.folder), _json_state(due[0].reward_files), reading))
        if readings:
            self._index.save(readings)

    def _read_one(self, run: _ListedRun) -> None:
        # Taken before reading: if the run grows meanwhile, the reward is older than its files and is read again.
        files = run.files
        try:
            reward, details = self._read_run(run.location)
        except Exception:  # noqa: BLE001 - the run is listed without a reward, and the next one is read
            reward, details = None, {}
        with self._lock:
            run.reward_files, run.reward_read_at = files, time.monotonic()
            # Compared as JSON, since a NaN is not equal to itself.
            self._count_change(run, encode((run.reward, run.details)) != encode((reward, details)))
            run.reward, run.details = reward, details

    def _read_run(self, location: RunLocation) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Return a run's reward, and facts that need reading; uses the open run where there is one."""
        if self._open_runs.get_open(location.key) is not None:
            with self._open_runs.use(location.key) as opened:
                return reward_summary(opened.view), _event_file_details(opened.view)
        foreign = location.kind == "tensorboard"
        view = TensorBoardRun(location.folder, self._open_runs.dir) if foreign else View(location.folder)
        return reward_summary(view), _event_file_details(view)


def _json_state(files: Signature) -> dict[str, list[int]]:
    """Return the state of files as JSON decodes it, for comparison with the index."""
    return {name: list(sizes) for name, sizes in files.items()}


def reward_summary(view: Readable) -> dict[str, Any] | None:
    """Return the reward of a run with its sparkline, or None where it logs none."""
    names = view.names()
    value = headline_values(known_names(names), source_of(view, names)).get("reward")
    if value is None:
        return None
    series = view.series(value.name)
    buckets = series.zoom(max_points=SPARK_POINTS)
    return {
        "name": value.name,
        "metric": value.match.metric.id,
        "title": bilingual(value.match.metric.title),
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
    """Round values to five digits: a sparkline shows no more, and the list is half as large."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]


def _facts(location: RunLocation, root: Path) -> dict[str, Any]:
    if location.kind == "tensorboard":
        return _event_file_facts(location, root)
    [seen] = glances(location.folder)
    info = seen.info
    return {
        "key": location.key,
        "id": info.id,
        "logged_name": info.name,
        "project": info.project,
        "kind": location.kind,
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


def _event_file_facts(location: RunLocation, root: Path) -> dict[str, Any]:
    """Return the facts in names and dates of event files; ``_event_file_details`` needs reading them."""
    files = file_signature(location.folder)
    if not files:
        raise FileNotFoundError(location.folder)
    project, name = project_and_name(location.folder, root)
    heard = max(time for _, time in files.values()) / 1e9
    status = status_from_time(heard)
    return {
        "key": location.key,
        "id": location.key,
        "logged_name": name,
        "project": project,
        "kind": location.kind,
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


def _event_file_details(view: Readable) -> dict[str, Any]:
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
