"""The files of the data set, the index of what was exported, and the tables that are replaced as a whole.

Each file is written under another name and then renamed, so that a reader never sees a part.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from barograph.answers.fleet.schema import GROWING, VERSION, WHOLE, partition_of, pyarrow
from barograph.answers.fleet.tables import Cutoffs, Record, record_table
from barograph.base.errors import BarographError
from barograph.base.formatting import encodable
from barograph.delivery.processes import take_lock
from barograph.journal.directory import DirectoryIndex
from barograph.journal.format import fields
from barograph.journal.format.fields import object_of
from barograph.journal.format.folder import read_regular_file

HEAD_FILE = "fleet.json"

OWN_FOLDER = ".barograph"

INDEX_KIND = "export"

EMPTY = "__HIVE_DEFAULT_PARTITION__"

MAX_NAME_BYTES = 200

MAX_PARTS = 16  # files of a run in a table; then they become one

DRAFT = ".draft"

WRITE_OPTIONS: dict[str, Any] = {"compression": "zstd", "row_group_size": 1 << 16}

PLAIN = ("value", "seconds")  # columns whose values hardly repeat, so that a dictionary of them takes room


class FleetFolder:
    """The directory of a data set, which this process alone writes until ``close``."""

    def __init__(self, path: Path, partition: Sequence[str]) -> None:
        self.path = path
        self.partition = tuple(partition)
        self.written = 0  # bytes
        self._check()
        path.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        self._write_head()
        self.sizes = self._found()

    def close(self) -> None:
        """Let others write."""
        self._lock.close()

    def _check(self) -> None:
        """Raise BarographError where a directory is in use for something else."""
        try:
            head = fields.read_mapping(fields.parse_json(read_regular_file(self.path / HEAD_FILE)))
        except NotADirectoryError:
            raise BarographError(f"{self.path} is a file: give a directory") from None
        except FileNotFoundError:
            if self.path.is_dir() and any(one.name != OWN_FOLDER for one in self.path.iterdir()):
                raise BarographError(f"{self.path} has other files: give a new or empty directory") from None
            return
        except ValueError as problem:
            raise BarographError(f"{self.path / HEAD_FILE} is damaged: {problem}; give another directory") from None
        if head.get("version") != VERSION:
            raise BarographError(
                f"{self.path} has version {head.get('version')} of the tables, and this barograph writes {VERSION}: "
                "give another directory"
            )
        if head.get("partition") != list(self.partition):
            raise BarographError(
                f"{self.path} is partitioned by {','.join(map(str, head.get('partition', ())))}, "
                f"not by {','.join(self.partition)}: give the same keys or another directory"
            )

    def _locked(self) -> IO[str]:
        lock = take_lock(self.path / OWN_FOLDER / "lock")
        if lock is None:
            raise BarographError(f"another export is writing to {self.path}: wait until it has ended")
        return lock

    def _write_head(self) -> None:
        if not (self.path / HEAD_FILE).exists():
            head = {"format": "barograph fleet", "version": VERSION, "partition": self.partition}
            draft = self.path / f".{HEAD_FILE}{DRAFT}"
            draft.write_text(json.dumps(head) + "\n", encoding="utf-8")
            os.replace(draft, self.path / HEAD_FILE)

    def _found(self) -> dict[Path, int]:
        """Return the sizes of the files of the tables; remove what a process left that was killed while writing."""
        sizes: dict[Path, int] = {}
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = Path(folder, name)
                if name.endswith(DRAFT) or name.startswith(f".{INDEX_KIND}.index."):
                    path.unlink()
                elif name.endswith(".parquet"):
                    sizes[path] = path.stat().st_size
        return sizes

    def part(self, table: str, project: str, run: str, number: int) -> Path:
        """Return the path of a file of a run; raise BarographError if a name is too long for one."""
        return self._folder(table, {"project": project, "run": run}) / f"{path_text(run)}-{number:04}.parquet"

    def parts(self, table: str, project: str, run: str) -> list[Path]:
        """Return the files that a run has, in the order in which they were written."""
        paths = (self.part(table, project, run, number) for number in range(MAX_PARTS + 1))
        return [path for path in paths if path in self.sizes]

    def whole(self, table: str, project: str) -> Path:
        """Return the path of the only file of a table, or of those of a project."""
        return self._folder(table, {"project": project}) / f"{table}.parquet"

    def _folder(self, table: str, values: dict[str, str]) -> Path:
        keys = partition_of(table, self.partition)
        return self.path.joinpath(table, *(f"{key}={path_text(values[key])}" for key in keys))

    def write(self, path: Path, rows: Any) -> None:
        """Write an Arrow table to a file, in place of the one that there is."""
        pq = pyarrow().parquet
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}{DRAFT}")
        dictionaries = [name for name in rows.schema.names if name not in PLAIN]
        try:
            pq.write_table(rows, draft, use_dictionary=dictionaries, **WRITE_OPTIONS)
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(draft, path)
        except OSError:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        self.sizes[path] = path.stat().st_size
        self.written += self.sizes[path]

    def remove(self, path: Path) -> None:
        """Remove a file, and its directories where nothing else is in them."""
        path.unlink(missing_ok=True)
        self.sizes.pop(path, None)
        with suppress(OSError):  # until one that is not empty
            for folder in path.relative_to(self.path).parents:
                (self.path / folder).rmdir()

    def remove_run(self, project: str, run: str) -> None:
        """Remove the files of a run; the last ones first, so that those that are left are the beginning."""
        for table in GROWING:
            for path in reversed(self.parts(table, project, run)):
                self.remove(path)


def path_text(text: str) -> str:
    """Return a text as a part of a path, from which readers of Hive's layout decode it; raise if it is too long."""
    found = "".join(
        c if c.isalnum() or c in "._-" else "".join(f"%{byte:02X}" for byte in encodable(c).encode()) for c in text
    )
    if len(found.encode()) > MAX_NAME_BYTES:
        raise BarographError(f"{text[:40]!r}… is too long for the name of a directory")
    return found or EMPTY


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """The rows of a run in a table: their number and checksum, up to which steps, and the sizes of their files."""

    rows: int = 0
    checksum: int = 0
    cutoffs: Cutoffs = field(default_factory=dict)
    sizes: tuple[int, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return it for the index."""
        cutoffs = [[role, rank, step] for (role, rank), step in self.cutoffs.items()]
        return {**asdict(self), "cutoffs": cutoffs}


def _read_cutoffs(value: Any) -> Cutoffs:
    return {(str(role), int(rank)): int(step) for role, rank, step in value}


PART = fields.record_of(
    ExportedTable,
    **dict.fromkeys(("rows", "checksum"), fields.read_count),
    sizes=fields.tuple_of(fields.read_count),
    cutoffs=_read_cutoffs,
)

RUN = object_of(
    {"project": fields.read_text, "run": fields.read_text, **dict.fromkeys(GROWING, PART)},
    ("project", "run", *GROWING),
)


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run that was exported: what it was made of, and its rows by table. It is ``removed`` once its files are."""

    basis: str
    project: str
    run: str
    tables: dict[str, ExportedTable]
    removed: bool = False

    def is_whole(self, folder: FleetFolder) -> bool:
        """Return whether the files are as they were written."""
        for table, exported in self.tables.items():
            paths = [folder.part(table, self.project, self.run, number) for number in range(len(exported.sizes))]
            if [folder.sizes.get(path) for path in paths] != list(exported.sizes):
                return False
        return True

    def outdated(self, removed: bool = False) -> ExportedRun:
        """Return the run as one that is to be read again."""
        return replace(self, basis="", removed=removed)


class ExportedRuns:
    """The runs that were exported, by their paths."""

    def __init__(self, folder: FleetFolder) -> None:
        self._index = DirectoryIndex(folder.path, INDEX_KIND, OWN_FOLDER)
        self.runs: dict[str, ExportedRun] = {}
        for path, (basis, record) in self._index.load().items():
            try:
                read = RUN(record)
                tables = {table: read[table] for table in GROWING}
                self.runs[path] = ExportedRun(basis, read["project"], read["run"], tables, bool(read.get("removed")))
            except (ValueError, TypeError):  # it is exported again
                continue

    def save(self) -> None:
        """Write the index."""
        self._index.save({path: (run.basis, _record(run)) for path, run in self.runs.items()})


def _record(run: ExportedRun) -> dict[str, Any]:
    tables = {table: exported.record() for table, exported in run.tables.items()}
    return {"project": run.project, "run": run.run, "removed": run.removed, **tables}


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
        raise BarographError(f"{path} is damaged ({problem}): remove it and export again") from None
