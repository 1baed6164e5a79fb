"""The ``file`` logger of veRL: JSON lines ``{"step": 1, "data": {"actor/pg_loss": 0.1, …}}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.importers.formats import json_lines
from barograph.importers.reading import values
from barograph.importers.reading.log import Facts, Line, Seen
from barograph.importers.reading.values import as_step, flat_numbers
from barograph.importers.recorder import Recorder

TITLE = "veRL file logger"
ENTRIES = {"step", "data"}


def matches(seen: Seen) -> bool:
    """Return whether most lines have a step and data."""
    if not seen.has(b'"step"', b'"data"'):
        return False
    lines = [line for line in seen.lines if line.strip()]
    found = [values.object_of(line) for line in lines]
    return sum(one is not None and _is_row(one) for one in found) * 2 > len(lines)


def _is_row(found: Mapping[str, Any]) -> bool:
    return found.keys() == ENTRIES and isinstance(found["data"], dict) and as_step(found["step"]) is not None


class Reader(json_lines.Reader):
    """Reads one row per line."""

    def facts(self) -> Facts:
        """Return the framework: the form of the lines is its own."""
        return Facts(producer="verl", created=self.created())

    def row(self, found: Mapping[str, Any], line: Line, out: Recorder) -> bool:
        """Record the data of a step."""
        if not _is_row(found):
            out.unread(f"line {line.number}", "no step with data")
            return False
        out.row(flat_numbers(found["data"]), as_step(found["step"]), line.at, repeats=True)
        return True
