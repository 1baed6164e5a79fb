"""JSON lines: one object per step, with numbers under the names of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph.importers.reading.lines import LineReader
from barograph.importers.reading.log import Facts, Line, Log, Seen
from barograph.importers.reading.rows import MetricRows, has_fractions, has_place, is_metric_row
from barograph.importers.reading.values import as_step, object_of
from barograph.importers.recorder import Recorder

TITLE = "JSON lines"

PRODUCERS = {
    "ms-swift": (b'"global_step/max_steps"',),
    "llama-factory": (b'"current_steps"', b'"total_steps"', b'"percentage"'),
}
"""Names that only the logs of a framework have."""

HEAD_BYTES = 8 << 10

LOOKED_AT = 30  # lines at both ends that tell what a file is

LAST = ("current_steps", "total_steps")


def matches(seen: Seen) -> bool:
    """Return whether most lines are rows of metrics: objects with numbers, with a step, a time, or fractions."""
    if seen.name.endswith(".ipynb"):  # a notebook without a training, on one line
        return False
    lines = [line for line in seen.lines if line.strip()]
    lines = lines if len(lines) < 2 * LOOKED_AT else [*lines[:LOOKED_AT], *lines[-LOOKED_AT:]]
    rows = [found for line in lines if (found := object_of(line)) is not None and is_metric_row(found)]
    if len(rows) * 2 <= len(lines):
        return False
    # A single object may be a vocabulary or a result.
    return any(map(has_place, rows)) or (len(rows) > 1 and any(map(has_fractions, rows)))


class Reader(LineReader):
    """Reads one row per line."""

    needles = (b"{",)

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        self._rows = MetricRows(state)

    def facts(self) -> Facts:
        """Return the framework, where the names of its logs are its own."""
        with self.log.path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        found = (name for name, needles in PRODUCERS.items() if all(needle in head for needle in needles))
        return Facts(producer=next(found, ""), created=self.created())

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
