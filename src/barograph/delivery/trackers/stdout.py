"""Tracker that prints rows: blocks of text on a terminal, lines of JSON in a pipe."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from barograph.base.errors import TrackerError
from barograph.base.formatting import by_family, fitting, number, printable
from barograph.base.model import Row, RunInfo, Status
from barograph.delivery.trackers.jsonl import json_line
from barograph.delivery.trackers.payload import merge_rows

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
