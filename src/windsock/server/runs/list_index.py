"""What was read of runs for the list, kept in an SQLite file so that the next server need not read them again.

It can be deleted at any time, and where it cannot be written the list is made without.
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
WAIT_SECONDS = 2.0
Entry = tuple[str, Any, Any]  # a run's folder, the state of its files, what was read


class ListIndex:
    """Remembers, of each run, what was read of which state of its files."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def load(self) -> dict[str, tuple[Any, Any]]:
        """Return what is known: state and reading, by folder."""
        try:
            if not self._path.exists():
                return {}
            with closing(sqlite3.connect(self._path, WAIT_SECONDS)) as db:
                rows = db.execute("SELECT run, state, reading FROM readings WHERE version = ?", (__version__,))
                return {run: (json.loads(state), json.loads(reading)) for run, state, reading in rows}
        except (sqlite3.Error, ValueError, OSError):
            return {}

    def save(self, entries: Iterable[Entry]) -> None:
        """Keep readings; where that is not possible they are made again next time."""
        rows = [(run, __version__, encode(state).decode(), encode(reading).decode()) for run, state, reading in entries]
        with suppress(sqlite3.Error, OSError):
            self._path.parent.mkdir(exist_ok=True)
            with closing(sqlite3.connect(self._path, WAIT_SECONDS)) as db, db:
                db.execute("CREATE TABLE IF NOT EXISTS readings (run PRIMARY KEY, version, state, reading)")
                db.executemany("INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?)", rows)
