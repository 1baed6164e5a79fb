"""The files of the data set. Each is written under another name and then renamed, so that a reader never sees a part.

``fleet.json`` says what the directory is. ``.windsock`` has the lock of a process that writes, and what was exported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from windsock.errors import WindsockError
from windsock.fleet.schema import GROWING, VERSION, partition_of, pyarrow
from windsock.formatting import encodable
from windsock.journal import decoding
from windsock.journal.regular_files import read_regular_file
from windsock.relay.delivery_state import take_lock

HEAD_FILE = "fleet.json"
OWN_FOLDER = ".windsock"
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
        """Raise WindsockError where a directory is in use for something else."""
        try:
            head = decoding.read_mapping(decoding.parse_json(read_regular_file(self.path / HEAD_FILE)))
        except NotADirectoryError:
            raise WindsockError(f"{self.path} is a file: give a directory") from None
        except FileNotFoundError:
            if self.path.is_dir() and any(one.name != OWN_FOLDER for one in self.path.iterdir()):
                raise WindsockError(f"{self.path} has other files: give a new or empty directory") from None
            return
        except ValueError as problem:
            raise WindsockError(f"{self.path / HEAD_FILE} is damaged: {problem}; give another directory") from None
        if head.get("version") != VERSION:
            raise WindsockError(
                f"{self.path} has version {head.get('version')} of the tables, and this windsock writes {VERSION}: "
                "give another directory"
            )
        if head.get("partition") != list(self.partition):
            raise WindsockError(
                f"{self.path} is partitioned by {','.join(map(str, head.get('partition', ())))}, "
                f"not by {','.join(self.partition)}: give the same keys or another directory"
            )

    def _locked(self) -> IO[str]:
        lock = take_lock(self.path / OWN_FOLDER / "lock")
        if lock is None:
            raise WindsockError(f"another export is writing to {self.path}: wait until it has ended")
        return lock

    def _write_head(self) -> None:
        if not (self.path / HEAD_FILE).exists():
            head = {"format": "windsock fleet", "version": VERSION, "partition": self.partition}
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
        """Return the path of a file of a run; raise WindsockError if a name is too long for one."""
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
        raise WindsockError(f"{text[:40]!r}… is too long for the name of a directory")
    return found or EMPTY
