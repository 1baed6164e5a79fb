"""Rows from values that a log has one by one, each with its step and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

SAME_ROW_SECONDS = 1.0  # between the values of one row

RecordRow = Callable[[dict[str, float], int, float | None, float | None], object]
"""Called with the values of a row, its step, its first time and its last time."""


class StepRows:
    """Collects the values of one step that were logged at the same time; each of them is there once."""

    def __init__(self, record: RecordRow) -> None:
        self._record = record
        self._values: dict[str, float] = {}
        self._step = 0
        self._first: float | None = None
        self._last: float | None = None

    def add(self, at: float | None, step: int, names: Sequence[str], values: Sequence[float]) -> None:
        """Add values of a step; record the row before, if they are not of the same."""
        known = self._values
        if known and (
            step != self._step
            or not known.keys().isdisjoint(names)
            or (at is not None and self._first is not None and at - self._first > SAME_ROW_SECONDS)
        ):
            self.end()
        if not self._values:
            self._step, self._first = step, at
        self._values.update(zip(names, values, strict=True))
        self._last = at

    def end(self) -> None:
        """Record the row."""
        if self._values:
            values, self._values = self._values, {}
            self._record(values, self._step, self._first, self._last)
