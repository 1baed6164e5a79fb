"""The tables with few rows of each run: one file of each project, which is replaced as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from windsock.errors import WindsockError
from windsock.fleet.arrow import record_table
from windsock.fleet.files import FleetFolder
from windsock.fleet.rows import Record
from windsock.fleet.schema import WHOLE, partition_of, pyarrow

RunKey = tuple[str, str]
"""Project and id of a run."""


class RunTables:
    """Changes of these tables, until ``flush`` writes them."""

    def __init__(self, folder: FleetFolder) -> None:
        self._folder = folder
        self._records: dict[RunKey, dict[str, list[Record]]] = {}
        self._gone: set[RunKey] = set()
        self._removed: set[RunKey] = set()

    def put(self, key: RunKey, records: dict[str, list[Record]]) -> None:
        """Take the rows of a run, in place of those that it has."""
        self._records[key] = records
        self._gone.discard(key)
        self._removed.discard(key)

    def drop(self, key: RunKey) -> None:
        """Take the rows of a run out."""
        self._records.pop(key, None)
        self._gone.add(key)

    def mark_removed(self, key: RunKey) -> None:
        """Note in the row of a run that its files are gone."""
        self._removed.add(key)

    def listed(self, projects: Iterable[str]) -> set[RunKey]:
        """Return the runs that have a row in the files of some projects; none of a project that lacks a file."""
        found: set[RunKey] = set()
        for project in projects:
            paths = [self._folder.whole(table, project) for table in WHOLE]
            if all(path in self._folder.sizes for path in paths):
                found.update(_keys(_read(self._folder.whole("runs", project)), project))
        return found

    def flush(self) -> None:
        """Write the changes; the table of runs last, so that what it lists is there."""
        changed = sorted({*self._records, *self._gone, *self._removed})
        for table in WHOLE:
            files: dict[Path, list[RunKey]] = {}
            for key in changed:
                files.setdefault(self._folder.whole(table, key[0]), []).append(key)
            for path, keys in files.items():
                self._replace(path, table, keys)
        self._records, self._gone, self._removed = {}, set(), set()

    def _replace(self, path: Path, table: str, keys: Sequence[RunKey]) -> None:
        """Replace the rows of some runs in a file."""
        added = [record for key in keys for record in self._records.get(key, {}).get(table, ())]
        rows = record_table(table, partition_of(table, self._folder.partition), added)
        if path in self._folder.sizes:
            rows = pyarrow().concat_tables([self._kept(path, table, keys[0][0]), rows], promote_options="default")
        if len(rows) or any(key in self._records for key in keys):
            self._folder.write(path, rows)
        else:
            self._folder.remove(path)

    def _kept(self, path: Path, table: str, project: str) -> Any:
        """Return the rows of a file that stay."""
        pa = pyarrow()
        rows = _read(path)
        is_kept = [key not in self._records and key not in self._gone for key in _keys(rows, project)]
        rows = rows.filter(pa.array(is_kept, pa.bool_()))
        if table != "runs" or not self._removed:
            return rows
        times = [
            time.time() if key in self._removed else known
            for key, known in zip(_keys(rows, project), rows["removed"].to_pylist(), strict=True)
        ]
        place = rows.schema.get_field_index("removed")
        return rows.set_column(place, rows.schema.field(place), pa.array(times, pa.float64()))


def _keys(rows: Any, project: str) -> list[RunKey]:
    """Return project and id of the run of each row; ``project`` is that of all where the path has it."""
    runs = rows["run"].to_pylist()
    projects = rows["project"].to_pylist() if "project" in rows.schema.names else [project] * len(runs)
    return list(zip(projects, runs, strict=True))


def _read(path: Path) -> Any:
    pa = pyarrow()
    try:
        return pa.parquet.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as problem:
        raise WindsockError(f"{path} is damaged ({problem}): remove it and export again") from None
