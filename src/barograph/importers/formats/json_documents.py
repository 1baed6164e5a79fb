"""A JSON document with the rows of a training: a list of objects, an object with such a list, or one of columns.

As hand-written loops save their history: ``[{"step": 1, "loss": 0.5}, …]``, ``{"config": …, "history": […]}`` or
``{"loss": [0.5, …], "reward": […]}``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from barograph.importers.reading.lines import SETTLED_SECONDS
from barograph.importers.reading.log import Facts, Log, RewrittenError, Seen
from barograph.importers.reading.rollouts import is_rollout
from barograph.importers.reading.rows import MetricRows, has_fractions, has_place, is_metric_row
from barograph.importers.reading.values import DamagedDocumentError, JsonScanner
from barograph.importers.recorder import Recorder

TITLE = "JSON document"
MAX_BYTES = 256 << 20
LOOKED_AT = 20  # rows that tell what a list is
MIN_LENGTH = 3  # of a column


def matches(seen: Seen) -> bool:
    """Return whether a document has rows or columns of metrics."""
    if seen.head.lstrip()[:1] not in (b"{", b"[") or seen.name.endswith(".ipynb"):
        return False
    members: dict[str, Any] = {}
    try:
        _scan(JsonScanner(seen.head.decode("utf-8", "replace")), members, LOOKED_AT)
    except DamagedDocumentError:
        if not seen.tail:
            return _has_rows(members)  # its end is damaged
    return _has_rows(members) or _has_columns(members)


def _scan(scanner: JsonScanner, members: dict[str, Any], limit: int | None = None) -> None:
    """Add the members of a document, as far as they can be read; of a list alone, it is the member ""."""
    if not scanner.take("{"):
        members[""] = []
        members[""].extend(islice(scanner.entries(), limit)) if limit else _extend(members[""], scanner)
        return
    scanner.place -= 1
    for name in scanner.members():
        if scanner.take("["):
            scanner.place -= 1
            members[name] = []
            _extend(members[name], scanner)
        else:
            members[name] = scanner.value()


def _extend(found: list[Any], scanner: JsonScanner) -> None:
    for entry in scanner.entries():
        found.append(entry)


def _has_rows(members: Mapping[str, Any]) -> bool:
    return bool(_rows_in(members))


def _rows_in(members: Mapping[str, Any]) -> list[Any]:
    """Return the longest list of rows among the members; empty if there is none."""
    lists = [value for value in members.values() if isinstance(value, list) and _are_rows(value[:LOOKED_AT])]
    return max(lists, key=len, default=[])


def _are_rows(entries: Sequence[Any]) -> bool:
    if not entries or not all(isinstance(e, Mapping) and is_metric_row(e) and not is_rollout(e) for e in entries):
        return False
    return any(map(has_place, entries)) or (len(entries) > 1 and any(map(has_fractions, entries)))


def _has_columns(members: Mapping[str, Any]) -> bool:
    """Return whether most members are lists of numbers of one length, of which some are no whole numbers."""
    columns = _columns_in(members)
    fractions = (value for column in columns.values() for value in column[:LOOKED_AT])
    return len(columns) * 2 > len(members) and has_fractions({str(place): v for place, v in enumerate(fractions)})


def _columns_in(members: Mapping[str, Any]) -> dict[str, list[Any]]:
    named = {name: value for name, value in members.items() if name and isinstance(value, list)}
    numbers = {name: value for name, value in named.items() if _are_numbers(value)}
    length = max(map(len, numbers.values()), default=0)
    return {name: value for name, value in numbers.items() if len(value) == length}


def _are_numbers(entries: Sequence[Any]) -> bool:
    return len(entries) >= MIN_LENGTH and all(value is None or isinstance(value, int | float) for value in entries)


class Reader:
    """Reads the rows that are new."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        self.log = log
        self.state = state
        state.setdefault("rows", 0)
        self._rows = MetricRows(state)

    def facts(self) -> Facts:
        """Return nothing: the document has no description of the run."""
        return Facts()

    def files(self) -> list[Path]:
        """Return the document."""
        return [self.log.path]

    def read(self, out: Recorder) -> None:
        """Record the rows that are new, and the settings beside them."""
        members: dict[str, Any] = {}
        with self.log.path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8-sig", "replace")
        try:
            _scan(JsonScanner(text), members)
        except DamagedDocumentError as problem:
            if time.time() - self.log.path.stat().st_mtime > SETTLED_SECONDS:
                out.unread(self.log.path.name, f"the rest is damaged or missing: {problem}")
        rows = _rows_in(members) or _rows_of_columns(_columns_in(members))
        self._check_same(rows)
        for number, row in enumerate(rows[self.state["rows"] :], self.state["rows"] + 1):
            if isinstance(row, Mapping):
                self._rows.record(row, f"row {number}", out)
            else:
                out.unread(f"row {number}", "not an object")
        self.state.update(rows=len(rows), digest=_digest(rows))
        self._record_settings(members, out)

    def _check_same(self, rows: Sequence[Any]) -> None:
        """Raise RewrittenError if the rows that were recorded are others now."""
        known = self.state["rows"]
        if known and _digest(rows[:known]) != self.state["digest"]:
            raise RewrittenError

    def _record_settings(self, members: Mapping[str, Any], out: Recorder) -> None:
        settings = {name: value for name, value in members.items() if name and not isinstance(value, list)}
        if settings and settings != self.state.get("settings"):
            self.state["settings"] = settings
            out.config(settings)


def _rows_of_columns(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _digest(rows: Sequence[Any]) -> str:
    return blake2b(json.dumps(rows).encode(), digest_size=16).hexdigest()
