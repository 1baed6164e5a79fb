"""The collectors of a run, and the order in which they write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from windsock.counters import Counters
from windsock.device_values import DeviceValues
from windsock.lazy import lazy
from windsock.probe.collector import PhaseCollector
from windsock.recording import Collector, Recording

if TYPE_CHECKING:
    from windsock.measurement.collector import MeasurementCollector
    from windsock.rollouts.collector import RolloutCollector
    from windsock.samples.collector import SampleCollector

COMMIT_ORDER = ("device_values", "measured", "rollouts", "phases", "counters", "samples")
"""Phases come before counters: the throughput of a step is computed from its counts."""


class Collectors:
    """All collectors of one run. Those that need NumPy or much code are imported and made with their first use."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.device_values = DeviceValues(recording)
        self.counters = Counters(recording)
        self.phases = PhaseCollector(recording, self.counters)

    @lazy
    def measured(self) -> MeasurementCollector:
        """Measured batches."""
        from windsock.measurement.collector import MeasurementCollector

        return MeasurementCollector(self._recording)

    @lazy
    def rollouts(self) -> RolloutCollector:
        """Rollouts and evaluations."""
        from windsock.rollouts.collector import RolloutCollector

        return RolloutCollector(self._recording)

    @lazy
    def samples(self) -> SampleCollector:
        """Submitted samples."""
        from windsock.samples.collector import SampleCollector

        return SampleCollector(self._recording)

    def __iter__(self) -> Iterator[tuple[str, Collector]]:
        """Yield the collectors in use with their names, in the order in which they write."""
        made = vars(self)
        return iter([(name, made[name]) for name in COMMIT_ORDER if name in made])

    def commit(self, step: int) -> None:
        """Let every collector write a step; one that fails is reported and costs the others nothing."""
        for name, collector in self:
            self._recording.problems.attempt(f"commit of {name}", collector.commit, step)

    def uncommitted_steps(self) -> list[int | None]:
        """Return the steps with data that only a commit writes, in order; the one without a number comes last."""
        found = {step for _, collector in self for step in collector.uncommitted_steps()}
        named = sorted(step for step in found if step is not None)
        return [*named, None] if None in found else [*named]

    def finish(self) -> None:
        """Let every collector write what is left."""
        for name, collector in self:
            self._recording.problems.attempt(f"finish of {name}", collector.finish)

    def after_fork(self) -> None:
        """Drop the state of all collectors in a forked child."""
        for _, collector in self:
            collector.after_fork()
