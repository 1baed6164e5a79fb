"""Trackers that write rows as text: lines of JSON in a file, and what is printed on standard output."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import IO, Any, ClassVar

from barograph.base.errors import TrackerError
from barograph.base.formatting import by_family, fitting, json_number, number, printable, to_plain
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


BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
MIN_WIDTH = 40


def text_block(row: Row, width: int = 100, title: str = "", colour: bool = False) -> str:
    """Return a row as a heading and one paragraph per family of metrics.

    ::

        step 12 · frozen_lake
          actor   approxkl 0.0021  clipfrac 0.113  lr 1e-06
          critic  score/mean 0.41  score/max 1
    """
    bold, dim, plain = (BOLD, DIM, PLAIN) if colour else ("", "", "")
    lines = [f"{bold}step {row.step}{plain}" + (f"{dim} · {printable(title)}{plain}" if title else "")]
    values = {printable(name): value for name, value in row.values.items()}
    families = by_family(values)
    margin = max((len(family) for family, _ in families), default=0) + 4
    for family, members in families:
        cells = [(name[len(family) + 1 :] if family else name, number(values[name])) for name in members]
        for index, text in enumerate(_wrap_cells(cells, max(width - margin, MIN_WIDTH), dim, plain)):
            lines.append(f"  {family if index == 0 else '':<{margin - 2}}{text}")
    lines += [
        f"  {dim}{printable(name)}{plain} {_one_line(text, width - len(name) - 3)}" for name, text in row.texts.items()
    ]
    if row.samples:
        lines.append(f"  {dim}samples{plain} {len(row.samples)}")
    return "\n".join(lines)


def _one_line(text: str, width: int) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= width else text[: max(width, MIN_WIDTH) - 1] + "…"


def _wrap_cells(cells: list[tuple[str, str]], width: int, dim: str, plain: str) -> Iterator[str]:
    line: list[str] = []
    used = 0
    for name, value in cells:
        needed = len(name) + len(value) + 3
        if line and used + needed > width:
            yield "  ".join(line)
            line, used = [], 0
        line.append(f"{dim}{name}{plain} {value}")
        used += needed
    if line:
        yield "  ".join(line)


class StdoutTracker:
    """Prints every step. ``format`` is ``text``, ``json`` or ``auto`` (text on a terminal, JSON in a pipe)."""

    in_process: ClassVar[bool] = True
    own_rows: ClassVar[bool] = True

    def __init__(self, format: str = "auto") -> None:
        if format not in ("auto", "text", "json"):
            raise TrackerError(f"tracker 'stdout': format must be auto, text or json; got {format!r}")
        self._format = format
        self._title = ""

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Store the run's name for the headings."""
        self._title = info.name

    def log(self, rows: Sequence[Row]) -> None:
        """Print the rows."""
        out: IO[str] = sys.stdout  # looked up per call: tests and notebooks replace it
        is_terminal = out.isatty()
        as_text = self._format == "text" or (self._format == "auto" and is_terminal)
        width = shutil.get_terminal_size().columns
        for row in merge_rows(rows):
            text = text_block(row, width, self._title, is_terminal) if as_text else json_line(row)
            out.write(fitting(text, getattr(out, "encoding", None)) + "\n")
        out.flush()

    def finish(self, status: Status) -> None:
        """Do nothing: rows are printed as they arrive."""
