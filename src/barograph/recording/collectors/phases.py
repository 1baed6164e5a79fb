"""Collector of phases: times, memory and throughput of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from barograph.base.lazy import lazy
from barograph.recording.context import Collector, Recording

if TYPE_CHECKING:
    from barograph.recording.probe.engines import Engines
    from barograph.recording.probe.recorder import Probe, Rows
    from barograph.recording.probe.sampler import Sampler


class RunCounters(Protocol):
    """The run's counters, from which throughput is computed."""

    def take_step(self) -> dict[str, float]:
        """Return the counts since the last call."""

    def totals(self, step: int) -> dict[str, float]:
        """Return the totals at the end of a step."""


class PhaseCollector(Collector):
    """Phases and throughput of a run. The probe is imported with the first phase or the first commit with counts."""

    def __init__(self, recording: Recording, counts: RunCounters) -> None:
        self._recording = recording
        self._counts = counts
        self._sampler: Sampler | None = None
        self._engines: Engines | None = None

    @lazy
    def probe(self) -> Probe:
        """The probe, which records phases."""
        from barograph.recording.probe.recorder import Probe

        recording = self._recording
        return Probe.from_settings(
            recording.settings, recording.journal, self._report, recording.began, lambda: recording.processes
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
