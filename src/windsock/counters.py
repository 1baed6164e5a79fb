"""Counters of a run that go on over attempts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from windsock.journal.folder import segments
from windsock.model import Writer
from windsock.scalars import Deferred

if TYPE_CHECKING:
    from windsock.journal.columns import Attempt


class Counters:
    """Totals by name. Those of earlier attempts are looked up once, when the first step of this one is known."""

    def __init__(self, folder: Path, writer: Writer) -> None:
        self._folder = folder
        self._writer = writer
        self._lock = threading.Lock()
        self._totals: dict[str, float] = {}
        self._of_step: dict[str, float] = {}
        self._deferred: list[tuple[tuple[str, ...], Deferred]] = []
        self._first_step: int | None = None
        self._earlier: list[Attempt] | None = None  # newest first
        self._continued: set[str] = set()

    def after_fork_in_child(self) -> None:
        """Count from here on: the parent's totals are the parent's, and so may be its lock."""
        self._lock = threading.Lock()
        self._totals = {}
        self._of_step = {}
        self._deferred = []
        self._continued = set()

    def add(self, amounts: Mapping[str, float]) -> None:
        """Add to the totals."""
        with self._lock:
            for name, amount in amounts.items():
                self._totals[name] = self._totals.get(name, 0.0) + amount
                self._of_step[name] = self._of_step.get(name, 0.0) + amount

    def add_later(self, names: Iterable[str], deferred: Deferred) -> None:
        """Add what is still on a device, once somebody settles."""
        with self._lock:
            self._deferred.append((tuple(names), deferred))

    def settle(self) -> None:
        """Add what was on a device, waiting for it."""
        with self._lock:
            waiting, self._deferred = self._deferred, []
        for names, deferred in waiting:
            self.add(dict(zip(names, deferred.values(), strict=True)))

    def take_step(self) -> dict[str, float]:
        """Return what was counted since the last call."""
        with self._lock:
            taken, self._of_step = self._of_step, {}
            return taken

    def totals(self, step: int) -> dict[str, float]:
        """Return the totals as of the end of ``step``, earlier attempts included."""
        with self._lock:
            if self._first_step is None:
                self._first_step = step
            for name in self._totals.keys() - self._continued:
                self._totals[name] += self._before(name, self._first_step)
                self._continued.add(name)
            return dict(self._totals)

    def _before(self, name: str, step: int) -> float:
        """Return what the newest earlier attempt that has it counted below ``step``."""
        for attempt in self._attempts() if self._writer.attempt > 1 else ():
            series = attempt.series(name)
            place = int(series.steps.searchsorted(step))
            if place:
                return float(series.values[place - 1])
        return 0.0

    def _attempts(self) -> list[Attempt]:
        if self._earlier is None:
            from windsock.journal.columns import (
                Attempt,
                poll_all,
            )  # brings NumPy, which a first attempt can do without

            mine = self._writer
            attempts: dict[int, Attempt] = {}
            for segment in segments(self._folder):
                writer = segment.writer
                if (writer.role, writer.rank) == (mine.role, mine.rank) and writer.attempt < mine.attempt:
                    attempts.setdefault(writer.attempt, Attempt(writer)).add(segment)
            poll_all(attempts.values())
            self._earlier = [attempts[number] for number in sorted(attempts, reverse=True)]
        return self._earlier
