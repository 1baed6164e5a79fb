"""Rows of metrics in JSON: one object per line, or a document with all of them.

A document is a list of objects, an object with such a list, or one of columns, as hand-written loops save their
history: ``[{"step": 1, "loss": 0.5}, …]``, ``{"config": …, "history": […]}`` or ``{"loss": [0.5, …], "reward": […]}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

from barograph.importers.reading.lines import LineReader, is_settled
from barograph.importers.reading.log import Format, Line, Log, LogReader, RewrittenError, Seen
from barograph.importers.reading.rollouts import is_rollout
from barograph.importers.reading.rows import MetricRows, has_fractions, has_place, is_metric_row
from barograph.importers.reading.values import DamagedDocumentError, JsonScanner, as_step, flat_numbers, object_of
from barograph.importers.recorder import Recorder

PRODUCERS = {
    "ms-swift": (b'"global_step/max_steps"',),
    "llama-factory": (b'"current_steps"', b'"total_steps"', b'"percentage"'),
}
"""Names that only the logs of a framework have."""

HEAD_BYTES = 8 << 10

LINES_LOOKED_AT = 30  # lines at both ends that tell what a file is

LAST = ("current_steps", "total_steps")


def are_lines(seen: Seen) -> bool:
    """Return whether most lines are rows of metrics: objects with numbers, with a step, a time, or fractions."""
    if seen.name.endswith(".ipynb"):  # a notebook without a training, on one line
        return False
    lines = [line for line in seen.lines if line.strip()]
    lines = lines if len(lines) < 2 * LINES_LOOKED_AT else [*lines[:LINES_LOOKED_AT], *lines[-LINES_LOOKED_AT:]]
    rows = [found for line in lines if (found := object_of(line)) is not None and is_metric_row(found)]
    if len(rows) * 2 <= len(lines):
        return False
    # A single object may be a vocabulary or a result.
    return any(map(has_place, rows)) or (len(rows) > 1 and any(map(has_fractions, rows)))


class LinesReader(LineReader):
    """Reads one row per line."""

    needles = (b"{",)

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        self._rows = MetricRows(state)

    def framework(self) -> str:
        """Return the framework, where the names of its logs are its own."""
        head = self.beginning(HEAD_BYTES)
        found = (name for name, needles in PRODUCERS.items() if all(needle in head for needle in needles))
        return next(found, self.producer)

    def line(self, line: Line, out: Recorder) -> bool:
        """Record the numbers of an object."""
        found = object_of(line.text)
        if found is None:
            out.unread(f"line {line.number}", "not a JSON object")
            return False
        return self.row(found, line, out)

    def row(self, found: Mapping[str, Any], line: Line, out: Recorder) -> bool:
        """Record an object."""
        if LAST[0] in found and LAST[1] in found:
            self._look_for_last_step(as_step(found[LAST[0]]), as_step(found[LAST[1]]), out)
        return self._rows.record(found, f"line {line.number}", out, line.at)

    def _look_for_last_step(self, step: int | None, last: int | None, out: Recorder) -> None:
        if step is not None and last is not None and 0 < last <= step:
            out.status("finished", f"step {step} of {last}")


JSON_LINES = Format("JSON lines", LinesReader, are_lines)


ENTRIES = {"step", "data"}


def is_verl_file(seen: Seen) -> bool:
    """Return whether most lines have a step and data."""
    if not seen.has(b'"step"', b'"data"'):
        return False
    lines = [line for line in seen.lines if line.strip()]
    found = [object_of(line) for line in lines]
    return sum(one is not None and _is_row(one) for one in found) * 2 > len(lines)


def _is_row(found: Mapping[str, Any]) -> bool:
    return found.keys() == ENTRIES and isinstance(found["data"], dict) and as_step(found["step"]) is not None


class VerlReader(LinesReader):
    """Reads one row per line of veRL's ``file`` logger: ``{"step": 1, "data": {"actor/pg_loss": 0.1, …}}``."""

    producer = "verl"

    def row(self, found: Mapping[str, Any], line: Line, out: Recorder) -> bool:
        """Record the data of a step."""
        if not _is_row(found):
            out.unread(f"line {line.number}", "no step with data")
            return False
        out.row(flat_numbers(found["data"]), as_step(found["step"]), line.at, repeats=True)
        return True


VERL_FILE = Format("veRL file logger", VerlReader, is_verl_file)


MAX_BYTES = 256 << 20
ROWS_LOOKED_AT = 20  # rows that tell what a list is
MIN_LENGTH = 3  # of a column


def is_document(seen: Seen) -> bool:
    """Return whether a document has rows or columns of metrics."""
    if seen.head.lstrip()[:1] not in (b"{", b"[") or seen.name.endswith(".ipynb"):
        return False
    members: dict[str, Any] = {}
    try:
        _scan(JsonScanner(seen.head.decode("utf-8", "replace")), members, ROWS_LOOKED_AT)
    except DamagedDocumentError:
        if not seen.tail:
            return bool(_rows_in(members))  # its end is damaged
    return bool(_rows_in(members)) or _has_columns(members)


def _scan(scanner: JsonScanner, members: dict[str, Any], limit: int | None = None) -> None:
    """Add the members of a document, as far as they can be read; of a list alone, it is the member ""."""
    if not scanner.comes("{"):
        members[""] = []
        members[""].extend(islice(scanner.entries(), limit))  # which keeps what comes before damage
        return
    for name in scanner.members():
        if scanner.comes("["):
            members[name] = []
            members[name].extend(scanner.entries())
        else:
            members[name] = scanner.value()


def _rows_in(members: Mapping[str, Any]) -> list[Any]:
    """Return the longest list of rows among the members; empty if there is none."""
    lists = [value for value in members.values() if isinstance(value, list) and _are_rows(value[:ROWS_LOOKED_AT])]
    return max(lists, key=len, default=[])


def _are_rows(entries: Sequence[Any]) -> bool:
    if not entries or not all(isinstance(e, Mapping) and is_metric_row(e) and not is_rollout(e) for e in entries):
        return False
    return any(map(has_place, entries)) or (len(entries) > 1 and any(map(has_fractions, entries)))


def _has_columns(members: Mapping[str, Any]) -> bool:
    """Return whether most members are lists of numbers of one length, of which some are no whole numbers."""
    columns = _columns_in(members)
    fractions = (value for column in columns.values() for value in column[:ROWS_LOOKED_AT])
    return len(columns) * 2 > len(members) and has_fractions({str(place): v for place, v in enumerate(fractions)})


def _columns_in(members: Mapping[str, Any]) -> dict[str, list[Any]]:
    named = {name: value for name, value in members.items() if name and isinstance(value, list)}
    numbers = {name: value for name, value in named.items() if _are_numbers(value)}
    length = max(map(len, numbers.values()), default=0)
    return {name: value for name, value in numbers.items() if len(value) == length}


def _are_numbers(entries: Sequence[Any]) -> bool:
    return len(entries) >= MIN_LENGTH and all(value is None or isinstance(value, int | float) for value in entries)


class DocumentReader(LogReader):
    """Reads the rows that are new."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        state.setdefault("rows", 0)
        self._rows = MetricRows(state)

    def read(self, out: Recorder) -> None:
        """Record the rows that are new, and the settings beside them."""
        members: dict[str, Any] = {}
        with self.log.path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8-sig", "replace")
        try:
            _scan(JsonScanner(text), members)
        except DamagedDocumentError as problem:
            if is_settled(self.log.path):
                out.unread(self.log.path.name, f"the rest is damaged or missing: {problem}")
        rows = _rows_in(members) or _rows_of_columns(_columns_in(members))
        self._check_same(rows)
        for number, row in enumerate(rows[self.state["rows"] :], self.state["rows"] + 1):
            if isinstance(row, Mapping):
                self._rows.record(row, f"row {number}", out)
            else:
                out.unread(f"row {number}", "not an object")
        self.state.update(rows=len(rows), digest=_digest(rows))
        settings = {name: value for name, value in members.items() if name and not isinstance(value, list)}
        self.record_config(settings, out, "settings")

    def _check_same(self, rows: Sequence[Any]) -> None:
        """Raise RewrittenError if the rows that were recorded are others now."""
        known = self.state["rows"]
        if known and _digest(rows[:known]) != self.state["digest"]:
            raise RewrittenError


def _rows_of_columns(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _digest(rows: Sequence[Any]) -> str:
    return blake2b(json.dumps(rows).encode(), digest_size=16).hexdigest()


JSON_DOCUMENT = Format("JSON document", DocumentReader, is_document)
