"""The list's index: results of reading runs, in an SQLite file, so that the next server starts with them.

The file is a cache. It can be deleted at any time, and a directory that is not writable has none.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from windsock import __version__
from windsock.server.responses import encode

FILE = "list.sqlite"
LOCK_TIMEOUT_SECONDS = 2.0
IndexRow = tuple[str, Any, Any]  # a run's folder, the state of its files, the result of reading them


class ListIndex:
    """The result of reading each run, with the state of its files at that time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def load(self) -> dict[str, tuple[Any, Any]]:
        """Return state and result by folder; nothing where the file is missing, damaged or of another version."""
        try:
            if not self._path.exists():
                return {}
            with closing(sqlite3.connect(self._path, LOCK_TIMEOUT_SECONDS)) as db:
                # Another version may compute other facts from the same files.
                rows = db.execute("SELECT run, state, reading FROM readings WHERE version = ?", (__version__,))
                return {run: (json.loads(state), json.loads(reading)) for run, state, reading in rows}
        except (sqlite3.Error, ValueError, TypeError, RecursionError, OSError):
            return {}

    def save(self, readings: Iterable[IndexRow]) -> None:
        """Store results; where that fails, the next server reads the runs again."""
        rows = [
            (run, __version__, encode(state).decode(), encode(reading).decode()) for run, state, reading in readings
        ]
        with suppress(sqlite3.Error, OSError):
            self._path.parent.mkdir(exist_ok=True)
            with closing(sqlite3.connect(self._path, LOCK_TIMEOUT_SECONDS)) as db, db:  # ``db`` alone does not close
                db.execute("CREATE TABLE IF NOT EXISTS readings (run PRIMARY KEY, version, state, reading)")
                db.executemany("INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?)", rows)
