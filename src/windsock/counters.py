"""Counters of a run, which continue over attempts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windsock.journal.folder import segments
from windsock.recording import Collector, Recording
from windsock.scalars import Deferred, classify

if TYPE_CHECKING:
    from windsock.journal.columns import Attempt


class Counters(Collector):
    """Totals by name. Those of earlier attempts are read once, when the first step of this attempt is known."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._first_step: int | None = None
        self._earlier_attempts: list[Attempt] | None = None  # newest first
        self.after_fork()

    def after_fork(self) -> None:
        """Count from zero in a forked child: the parent writes the totals so far."""
        self._lock = threading.Lock()  # another thread may have held the old one at the fork
        self._totals: dict[str, float] = {}
        self._of_step: dict[str, float] = {}
        self._deferred: list[tuple[tuple[str, ...], Deferred]] = []
        self._continued: set[str] = set()  # names whose totals include earlier attempts

    def add(self, amounts: Mapping[str, Any]) -> None:
        """Add amounts; those on an accelerator are added at the commit, and values that are no numbers are skipped."""
        found = classify(amounts)
        self._add(found.numbers)
        if found.deferred:
            with self._lock:
                self._deferred.append((tuple(found.deferred), Deferred(found.deferred.values())))
        histograms = dict.fromkeys(found.histograms, "value is a histogram, which cannot be counted")
        self._recording.problems.skip(found.rejected | histograms)

    def take_step(self) -> dict[str, float]:
        """Return the counts since the last call, waiting for amounts on an accelerator."""
        with self._lock:
            waiting, self._deferred = self._deferred, []
        # Outside the lock: waiting for a device may take long, and ``add`` must not wait with it.
        for names, deferred in waiting:
            self._recording.problems.attempt("run.count", self._add_deferred, names, deferred)
        with self._lock:
            taken, self._of_step = self._of_step, {}
            return taken

    def totals(self, step: int) -> dict[str, float]:
        """Return the totals at the end of ``step``, earlier attempts included."""
        with self._lock:
            if self._first_step is None:
                self._first_step = step
            # A name may be counted for the first time in any step, so its earlier total is read only then.
            for name in self._totals.keys() - self._continued:
                self._totals[name] += self._total_before(name, self._first_step)
                self._continued.add(name)
            return dict(self._totals)

    def commit(self, step: int) -> None:
        """Write the totals."""
        totals = self.totals(step)
        if totals:
            self._recording.declare_counts(dict.fromkeys(totals, "total"))
            self._recording.write_row(totals, None)

    def _add_deferred(self, names: tuple[str, ...], deferred: Deferred) -> None:
        self._add(dict(zip(names, deferred.values(), strict=True)))

    def _add(self, amounts: Mapping[str, float]) -> None:
        with self._lock:
            for name, amount in amounts.items():
                self._totals[name] = self._totals.get(name, 0.0) + amount
                self._of_step[name] = self._of_step.get(name, 0.0) + amount

    def _total_before(self, name: str, step: int) -> float:
        """Return the total below ``step`` of the newest earlier attempt that has one, or 0."""
        for attempt in self._attempts() if self._recording.writer.attempt > 1 else ():
            series = attempt.series(name)
            place = int(series.steps.searchsorted(step))
            if place:
                # Steps from the first one of this attempt on are counted again: the earlier attempt's do not count.
                return float(series.values[place - 1])
        return 0.0

    def _attempts(self) -> list[Attempt]:
        if self._earlier_attempts is None:
            from windsock.journal.columns import (
                Attempt,
                poll_all,
            )  # imports NumPy, which a first attempt can do without

            mine = self._recording.writer
            attempts: dict[int, Attempt] = {}
            for segment in segments(self._recording.path):
                writer = segment.writer
                if (writer.role, writer.rank) == (mine.role, mine.rank) and writer.attempt < mine.attempt:
                    attempts.setdefault(writer.attempt, Attempt(writer)).add(segment)
            poll_all(attempts.values())
            self._earlier_attempts = [attempts[number] for number in sorted(attempts, reverse=True)]
        return self._earlier_attempts
