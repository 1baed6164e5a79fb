"""Collectors of scalars: counters, which continue over attempts, logged scalars that are still on a device, and the
times, memory and throughput of phases.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barograph.base.device_copy import relaxed_capture_mode
from barograph.base.lazy import lazy
from barograph.base.scalars import Deferred, classify
from barograph.journal.format.folder import segments
from barograph.recording.context import Collector, Recording

if TYPE_CHECKING:
    from barograph.journal.read.attempt import Attempt
    from barograph.recording.probe.engines import Engines
    from barograph.recording.probe.recorder import Probe, Rows
    from barograph.recording.probe.sampler import Sampler


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
            from barograph.journal.read.attempt import (  # imports NumPy, which a first attempt can do without
                Attempt,
                poll_all,
            )
            from barograph.journal.segments.indexed_reader import IndexedReader

            mine = self._recording.writer
            attempts: dict[int, Attempt] = {}
            for segment in segments(self._recording.path):
                writer = segment.writer
                if (writer.role, writer.rank) == (mine.role, mine.rank) and writer.attempt < mine.attempt:
                    attempts.setdefault(writer.attempt, Attempt(writer, IndexedReader)).add(segment)
            poll_all(attempts.values())
            self._earlier_attempts = [attempts[number] for number in sorted(attempts, reverse=True)]
        return self._earlier_attempts


class DeviceValues(Collector):
    """Rows of device scalars whose copies to the host are under way. They are written in the order logged.

    After an error of the device every further question to it raises. A row whose values cannot be fetched is reported
    and dropped; it costs no other row.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.after_fork()

    def after_fork(self) -> None:
        """Drop the rows: the parent writes them."""
        self._rows: list[tuple[tuple[str, ...], int | None, float, Deferred]] = []
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere

    def add(self, tensors: Mapping[str, Any], step: int | None) -> None:
        """Start copying one-element tensors to the host; nothing waits here."""
        row = tuple(tensors), step, time.time(), Deferred(tensors.values())
        with self._lock:
            self._rows.append(row)

    def write_ready(self) -> None:
        """Write the rows whose values have arrived, from another thread than the training's."""
        if self._rows:
            with relaxed_capture_mode():
                self._write(wait=False)

    def _write(self, wait: bool) -> None:
        with self._lock:
            while self._rows:
                names, step, at, values = self._rows[0]
                try:
                    if not wait and not values.ready():
                        return
                    numbers = values.values()
                except Exception as error:  # noqa: BLE001 - whatever the device raises
                    self._rows.pop(0)
                    self._recording.problems.report("copy of device values", error)
                    continue
                self._rows.pop(0)
                # A name that is no string costs its row only, and keeps no later one from its step.
                self._recording.problems.attempt(
                    "copy of device values", self._recording.journal.row, names, numbers, step, at
                )

    def commit(self, step: int) -> None:
        """Write all rows, waiting for the device."""
        self._write(wait=True)

    def finish(self) -> None:
        """Write all rows, waiting for the device."""
        self._write(wait=True)


class PhaseCollector(Collector):
    """Phases and throughput of a run. The probe is imported with the first phase or the first commit with counts."""

    def __init__(self, recording: Recording, counts: Counters) -> None:
        self._recording = recording
        self._counts = counts
        self._sampler: Sampler | None = None
        self._engines: Engines | None = None

    @lazy
    def probe(self) -> Probe:
        """The probe, which records phases."""
        from barograph.recording.probe.devices import host_memory, host_memory_with_children
        from barograph.recording.probe.recorder import Probe

        recording, settings = self._recording, self._recording.settings
        return Probe(
            recording.journal,
            self._report,
            settings.vocabulary,
            memory=settings.memory,
            read_host=host_memory_with_children if settings.memory_children else host_memory,
            device_count=settings.devices,
            peak=settings.peak_flops,
            processes=lambda: recording.processes,
            created=recording.began,
        )

    @property
    def _in_use(self) -> bool:
        # ``lazy`` stores the probe in the instance's dict; to read the attribute would import and make it.
        return "probe" in vars(self)

    def start(self) -> None:
        """Start sampling the machine and the engines if the settings ask for it."""
        seconds = self._recording.settings.system_seconds
        if seconds > 0:
            from barograph.recording.probe.sampler import Sampler

            probe = self.probe
            self._sampler = Sampler(
                probe.samples, probe.open_names, seconds, self._report, devices_in_use=probe.devices_in_use
            )
        for url in self._recording.settings.engines:
            self.watch_engine(url)

    def watch_engine(self, url: Any, name: Any = None) -> None:
        """Read the metrics of an inference engine from now on."""
        if self._engines is None:
            from barograph.recording.probe.engines import Engines

            self._engines = Engines(self._recording, self.probe.engines, self.probe.open_names)
        self._engines.watch(url, name)

    def commit(self, step: int) -> None:
        """Write the times, memory and throughput of a step, and those of earlier steps that are only known now."""
        # Counts that fail cost the throughput only: the probe must end its step, or the times go to the next one.
        attempt = self._recording.problems.attempt
        counted = attempt("commit of counters", self._counts.take_step) or {}
        totals = attempt("commit of counters", self._counts.totals, step) or {}
        if self._in_use or totals:
            self._write(self.probe.commit(step, counted, totals))

    def finish(self) -> None:
        """Stop sampling and write what is left, waiting for devices."""
        if self._sampler is not None:
            self._sampler.stop()
        if self._engines is not None:
            self._engines.stop()
        if self._in_use:
            self._write(self.probe.finish())

    def after_fork(self) -> None:
        """Drop the parent's phases; the threads of its sampler and engines do not exist in a child."""
        self._sampler = None
        self._engines = None
        if self._in_use:
            self.probe.after_fork_in_child()

    def _write(self, rows: Rows) -> None:
        counts = self.probe.counts
        self._recording.declare_counts(counts)
        for step, values in rows:
            if self._recording.settings.replica:  # replica 0 counts the same tokens
                values = {name: value for name, value in values.items() if name not in counts}
            if values:
                self._recording.write_row(values, step)

    def _report(self, error: Exception) -> None:
        self._recording.problems.report("run.phase", error)
