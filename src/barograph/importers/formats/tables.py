"""Tables in text files, CSV and TSV: each column with numbers is a metric.

W&B exports a chart as a table with columns ``run - metric``, which may be of several runs; TensorBoard a series as
``Wall time,Step,Value``; Lightning writes ``metrics.csv`` with empty cells.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Facts, Format, FoundLogs, Log, Seen, decode, look_at
from barograph.importers.reading.rows import RANKS, SPLITS, TEXTS, MetricRows
from barograph.importers.reading.values import STEP_NAMES, TIME_NAMES, as_step, as_time, number_of
from barograph.importers.recorder import Recorder

DELIMITERS = ",\t;|"
SUFFIXES = (".csv", ".tsv")
OF_RUN = re.compile(r"(.+) - (.+?)(__MIN|__MAX)?")  # W&B: "run - metric", with the extremes of what it has left out
TENSORBOARD = {"Wall time", "Step", "Value"}
TAG_IN_NAME = re.compile(r"(?:run-(.+)-)?tag-(.+)")
NULLS = frozenset({"null", "None", "none", "NA", "N/A", "<NA>", "-"})
INDEXES = ("", "Unnamed: 0", "index")  # the numbers of rows, as pandas writes them
STEPS = frozenset(name.lower() for name in (*STEP_NAMES, "it", "timestep", "global step", "training step"))
TIMES = frozenset(name.lower() for name in (*TIME_NAMES, "wall time"))
MAX_ROWS = 50  # that are looked at to know a table


def matches(seen: Seen) -> bool:
    """Return whether a file is a table of metrics."""
    table = _Table.of(seen)
    return table is not None and table.is_of_metrics


def logs_in(folder: Path, names: Sequence[str]) -> FoundLogs:
    """Return the runs in tables that W&B exported: one table may have several."""
    found = FoundLogs()
    for name in names:
        if name.lower().endswith(SUFFIXES):
            seen = look_at(folder / name)
            runs = _runs(_Table.of(seen)) if seen is not None else []
            if runs:
                found.logs.extend(Log(folder / name, "tables", run) for run in runs)
                found.taken.add(name)
    return found


@dataclass(frozen=True, slots=True)
class _Table:
    """The header and the first rows of a table."""

    header: list[str]
    rows: list[list[str]]

    @staticmethod
    def of(seen: Seen) -> _Table | None:
        """Return the table in a file; None if its lines have no common number of cells."""
        lines = [line for line in seen.lines[: MAX_ROWS + 1] if line.strip() and line[:1] != "#"]
        if not lines or lines[0][:1] in "{[(":
            return None
        delimiter = _delimiter(lines[0])
        header = cells(lines[0], delimiter)
        rows = [cells(line, delimiter) for line in lines[1:]]
        fitting = [row for row in rows if len(row) == len(header)]
        if len(header) < 2 or len(set(header)) < len(header) or any(_number(name) is not None for name in header):
            return None
        return _Table(header, fitting) if len(fitting) * 2 >= len(rows) else None

    @property
    def is_of_metrics(self) -> bool:
        """Whether most columns have numbers, and there are steps or times, or numbers that are not whole."""
        if TEXTS.intersection(map(str.lower, self.header)):
            return False
        places = [place for place, name in enumerate(self.header) if name.lower() in STEPS | TIMES]
        if not self.rows:
            return bool(places)  # a log that has just begun
        kinds = Counter(self._kind(place) for place in range(len(self.header)) if place not in places)
        has_place = any(self._has_places(place) for place in places)
        values = kinds["number"] + kinds["fraction"]
        return values > 0 and kinds["text"] <= values and (has_place or kinds["fraction"] > 0)

    def _kind(self, place: int) -> str:
        """Return what a column has: text, number, fraction, or "" if it is empty or says what a row is."""
        found = [row[place] for row in self.rows if row[place]]
        name = self.header[place].lower()
        if not found or name in RANKS or name in SPLITS or name in INDEXES or name == "role":
            return ""
        numbers = [number for text in found if (number := _number(text)) is not None or text in NULLS]
        if len(numbers) * 2 < len(found):
            return "" if _are_times(found) else "text"
        return "fraction" if any(n is not None and as_step(n) is None for n in numbers) else "number"

    def _has_places(self, place: int) -> bool:
        found = [row[place] for row in self.rows if row[place]]
        return any(as_step(text) is not None for text in found) or _are_times(found)


def _are_times(texts: Sequence[str]) -> bool:
    return all(as_time(text) is not None for text in texts[:5])


def _runs(table: _Table | None) -> list[str]:
    """Return the runs of a table that W&B exported, if it is one: all columns but the first ones are of runs."""
    if table is None:
        return []
    found = [OF_RUN.fullmatch(name) for name in table.header]
    extremes = sum(bool(match and match[3]) for match in found)
    if not extremes or sum(match is None for match in found) > 2:
        return []
    return list(dict.fromkeys(match[1] for match in found if match))


def _delimiter(header: str) -> str:
    return max(DELIMITERS, key=lambda mark: len(cells(header, mark)))


def cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line."""
    if '"' not in line:
        found = line.split(delimiter)
        return [cell.strip() for cell in found] if " " in line or "\r" in line else found
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return number_of(text)


def _value(text: str) -> Any:
    """Return the number in a cell, None for a null, and other texts as they are."""
    number = None if text in NULLS else _number(text)
    return number if number is not None or text in NULLS else text


class Reader(LineReader):
    """Reads one row per line."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        self._rows = MetricRows(state)

    def facts(self) -> Facts:
        """Return the run that W&B or TensorBoard names."""
        tag = TAG_IN_NAME.fullmatch(self.log.path.stem)
        return Facts(name=self.log.member or (tag[1] if tag and tag[1] else ""), created=self.created())

    def read(self, out: Recorder) -> None:
        """Record the rows that are new."""
        for raw, number in self._new_lines(out):
            text, is_valid = decode(raw.rstrip(b"\r").removeprefix(b"\xef\xbb\xbf"))
            if not is_valid:
                out.unread(f"line {number}", "bytes that are not UTF-8 are replaced")
            if text and not text.isspace() and text[0] != "#":
                self._line(text, number, out)

    def _line(self, text: str, number: int, out: Recorder) -> None:
        if "header" not in self.state:
            self._begin(text)
            return
        found = cells(text, self.state["delimiter"])
        header: list[str] = self.state["header"]
        if found == header:
            return  # a training that was started again wrote it once more
        if len(found) != len(header):
            out.unread(f"line {number}", f"the number of cells is not that of the header, {len(header)}")
            return
        if "columns" not in self.state:
            self.state["columns"] = self._columns(found, out)
        self._record(found, number, out)

    def _begin(self, text: str) -> None:
        """Remember the header."""
        delimiter = _delimiter(text)
        self.state.update(delimiter=delimiter, header=cells(text, delimiter))

    def _columns(self, row: Sequence[str], out: Recorder) -> list[str | None]:
        """Return the names of the columns as they are recorded, None for those that are not."""
        header: list[str] = self.state["header"]
        if set(header) == TENSORBOARD:
            return [None if name == "Value" else name for name in header]
        return [self._name(name, text, out) for name, text in zip(header, row, strict=True)]

    def _name(self, name: str, text: str, out: Recorder) -> str | None:
        lower = name.lower()
        if lower in STEPS:
            return "step" if lower not in STEP_NAMES else lower
        of_run = OF_RUN.fullmatch(name) if self.log.member else None
        if of_run:
            if of_run[3]:
                out.note("the columns __MIN and __MAX, extremes of what W&B has left out, are not taken")
            return None if of_run[1] != self.log.member or of_run[3] else of_run[2]
        if name in INDEXES:
            return None
        if text and _number(text) is None and text not in NULLS and not self._is_known(lower, text):
            out.note(f"the column {name!r} is text and is left out")
            return None
        return _without_apostrophe(name)

    @staticmethod
    def _is_known(name: str, text: str) -> bool:
        return name in SPLITS or name == "role" or (name in TIMES and as_time(text) is not None)

    def _record(self, found: Sequence[str], number: int, out: Recorder) -> None:
        columns: list[str | None] = self.state["columns"]
        try:
            row: dict[str | None, Any] = dict(zip(columns, map(float, found), strict=True))
        except ValueError:
            row = {name: _value(text) for name, text in zip(columns, found, strict=True) if text}
        row.pop(None, None)
        self._rows.record(self._named(row, found), f"line {number}", out)

    def _named(self, row: Mapping[Any, Any], found: Sequence[str]) -> Mapping[str, Any]:
        """Return a row; one that TensorBoard exported has the value under its tag, which only the file's name has."""
        if set(self.state["header"]) != TENSORBOARD:
            return row
        tag = TAG_IN_NAME.fullmatch(self.log.path.stem)
        value = found[self.state["header"].index("Value")]
        return {**row, tag[2] if tag else self.log.path.stem: _number(value)}


def _without_apostrophe(name: str) -> str:
    """Return a name without the mark by which our export keeps spreadsheets from taking it for a formula."""
    return name[1:] if name[:1] == "'" and name[1:].lstrip()[:1] in tuple("=+-@＝＋－＠") else name


FORMAT = Format("table", Reader, matches, logs_in)
