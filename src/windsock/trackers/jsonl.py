"""Rows as lines of JSON in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from windsock.errors import TrackerError
from windsock.model import Row, RunInfo, Status
from windsock.wording import json_number

FILE_NAME = "metrics.jsonl"


def line(row: Row) -> str:
    """Return a row as one line of strict JSON; NaN and infinities stand as strings."""
    metrics = {name: json_number(value) for name, value in row.values.items()}
    record = {"step": row.step, "time": round(row.time, 3), "metrics": metrics}
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


class JsonlTracker:
    """Appends ``{"step": …, "time": …, "metrics": {…}}`` for every step to a file.

    ``path`` is the file; by default it is ``metrics.jsonl`` in the run's directory.
    """

    in_process: ClassVar[bool] = True

    def __init__(self, path: str | None = None) -> None:
        self._path = Path(path) if path else None
        self._file: IO[str] | None = None
        if self._path and self._path.is_dir():
            raise TrackerError(f"tracker 'jsonl': path {path} is a directory; expected a file")

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Open the file; a continued run goes on at its end."""
        path = self._path or folder / FILE_NAME
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="ascii")
        except OSError as problem:
            raise TrackerError(f"tracker 'jsonl' cannot write {path}: {problem.strerror}") from problem

    def log(self, rows: Sequence[Row]) -> None:
        """Append a line for each row."""
        assert self._file is not None
        self._file.writelines(line(row) + "\n" for row in rows)
        self._file.flush()

    def finish(self, status: Status) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
