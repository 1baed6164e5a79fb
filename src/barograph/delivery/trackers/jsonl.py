"""Tracker that writes rows to a file of JSON lines."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

from barograph.base.errors import TrackerError
from barograph.base.formatting import json_number, to_plain
from barograph.base.model import MAIN_ROLE, Row, RunInfo, Status
from barograph.delivery.trackers.payload import merge_rows
from barograph.journal.format.folder import open_regular_file

FILE_NAME = "metrics.jsonl"


def json_line(row: Row) -> str:
    """Return a row as one line of strict JSON; NaN and infinities are strings."""
    metrics = {name: json_number(value) for name, value in row.values.items()}
    record = {"step": row.step, "time": round(row.time, 3), "metrics": metrics}
    if (row.writer.role, row.writer.rank) != (MAIN_ROLE, 0):  # most files have one writer: leave it out there
        record["writer"] = str(row.writer)
    others = {"texts": row.texts, "histograms": row.histograms, "samples": row.samples}
    record |= {key: to_plain(content) for key, content in others.items() if content}
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


class JsonlTracker:
    """Appends ``{"step": …, "time": …, "metrics": {…}}`` for every step to a file.

    ``texts``, ``histograms`` and ``samples`` are added where a step has them. ``path`` is by default ``metrics.jsonl``
    in the run's directory. The mark is the file's length; rewinding truncates the file to it.
    """

    in_process: ClassVar[bool] = True

    def __init__(self, path: str | None = None) -> None:
        self._path = Path(path) if path else None
        self._file: FileIO | None = None
        if self._path and self._path.is_dir():
            raise TrackerError(f"tracker 'jsonl': path {path} is a directory; expected a file")

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Open the file; a continued run appends to it."""
        path = self._path or folder / FILE_NAME
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer, so that ``log`` learns of a full disk and can undo its write.
            # A path that is given may be a FIFO or a device on purpose.
            self._file = FileIO(path, "ab", opener=None if self._path else open_regular_file)
            self._first = self._file.tell()
        except OSError as problem:
            raise TrackerError(f"tracker 'jsonl' cannot write {path}: {problem.strerror}") from problem

    def log(self, rows: Sequence[Row]) -> None:
        """Append a line per row."""
        assert self._file is not None
        length = self._file.tell()
        # ASCII: json escapes lone surrogates, which cannot be encoded in UTF-8.
        data = "".join(json_line(row) + "\n" for row in merge_rows(rows)).encode("ascii")
        try:
            if self._file.write(data) != len(data):  # raw files may write partially when the disk is full
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            # The rows are delivered again: remove those that were written.
            self._file.truncate(length)
            raise

    def finish(self, status: Status) -> None:
        """Close the file."""
        if self._file is not None and not self._file.closed:
            self._mark = self.mark()  # asked for again after finish
            self._file.close()

    def mark(self) -> dict[str, Any]:
        """Sync the file to disk and return its length."""
        assert self._file is not None
        if self._file.closed:
            return self._mark
        os.fsync(self._file.fileno())
        return {"length": self._file.seek(0, os.SEEK_END)}

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Truncate the file to its length at the mark."""
        assert self._file is not None
        # With an empty mark the file stays as it was at ``start``: it may have lines of other runs.
        length = mark.get("length", self._first)
        if length < self._file.seek(0, os.SEEK_END):
            self._file.truncate(length)
