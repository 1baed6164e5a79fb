"""JSON lines: one object per step, with numbers under the names of metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windsock.importers.clean_lines import Line
from windsock.importers.numbers import flat_numbers, step_of, time_of
from windsock.importers.recorder import Recorder
from windsock.importers.seen import Seen
from windsock.importers.text_lines import LineReader

TITLE = "JSON lines"


def matches(seen: Seen) -> bool:
    """Return whether most lines are objects with numbers."""
    if seen.name.endswith(".ipynb"):  # a notebook without a training, on one line
        return False
    lines = [line for line in seen.lines if line.strip()]
    rows = sum(_has_numbers(line) for line in lines)
    return rows * 2 > len(lines)


def _has_numbers(line: str) -> bool:
    found = object_of(line)
    return found is not None and bool(flat_numbers(found))


def object_of(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None if it is none."""
    text = text.strip()
    if text[:1] != "{" or text[-1:] != "}":
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class Reader(LineReader):
    """Reads one row per line."""

    needles = (b"{",)

    def line(self, line: Line, out: Recorder) -> bool:
        """Record the numbers of an object."""
        found = object_of(line.text)
        if found is None:
            out.unread(f"line {line.number}", "not a JSON object")
            return False
        return self.row(found, line, out)

    def row(self, found: Mapping[str, Any], line: Line, out: Recorder) -> bool:
        """Record an object."""
        step, step_name = step_of(found)
        at, time_name = time_of(found)
        if step_name:
            out.note(f"steps are read from {step_name!r}")
        if time_name:
            out.note(f"times are read from {time_name!r}")
        values = flat_numbers({name: value for name, value in found.items() if name not in (step_name, time_name)})
        out.row(values, step, at if at is not None else line.at)
        return True
