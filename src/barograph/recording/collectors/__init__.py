"""The collectors of a run, and the order in which they write.

Each has a module of its own here and knows none of the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from barograph.base.formatting import describe_error
from barograph.base.lazy import Finish, Finished, StepValues, lazy
from barograph.base.process.distributed import ProcessGroup, Share, exchange
from barograph.recording.collectors.scalars import Counters, DeviceValues, PhaseCollector
from barograph.recording.context import Collector, Recording

if TYPE_CHECKING:
    from barograph.recording.collectors.findings import LiveFindings
    from barograph.recording.collectors.measurements import MeasurementCollector
    from barograph.recording.collectors.rollouts import RolloutCollector
    from barograph.recording.samples.collector import SampleCollector

COMMIT_ORDER = ("device_values", "measured", "rollouts", "phases", "counters", "samples", "findings")
"""Phases come before counters: the throughput of a step is computed from its counts."""

GATHERED = ("measured", "rollouts")
"""The parts that processes exchange."""

PART_OF_CALL = {
    "copy": "device_values", "count": "counters", "evaluation": "rollouts", "measure": "measured", "metric": "measured",
    "phase": "phases", "pipeline": "rollouts", "rollouts": "rollouts", "sample": "samples", "samples": "samples",
    "shards": "phases", "staleness": "rollouts", "timer": "phases", "tokenizer": "samples", "validation": "rollouts",
}  # fmt: skip
"""The part of a call that failed, by the first word of the call's name after ``run.``."""


def _part(call: str) -> str | None:
    """Return the part that a problem belongs to: of ``commit of samples``, ``run.sample`` or ``evaluation.close``."""
    kind, _, part = call.partition(" of ")
    if kind in ("commit", "finish"):
        return part if part in COMMIT_ORDER else None
    if call.endswith(": the state for readers"):
        return "rollouts"
    return PART_OF_CALL.get(re.split(r"[ .]", call.removeprefix("run."))[0])


def values_of_others(group: ProcessGroup, vocabulary: str) -> StepValues:
    """Take part in an exchange with nothing to contribute, and return the values of the other processes.

    For a run that is disabled or finished here: the others wait for every process of the group.
    """
    from barograph.recording.collectors import measurements as measured
    from barograph.recording.collectors import rollouts

    found = exchange(group, None, {}, can_write=False)
    shares, reported = found.of("measured"), found.of("rollouts")

    def finish_measured() -> Finished:
        values = measured.finished_measurement(measured.merged_measurement_of(shares), shares, vocabulary)
        return values, values.missing

    return StepValues(
        [finish_measured, lambda: rollouts.finished_reports(rollouts.merged_reports(reported), reported, vocabulary)],
    )


class Collectors:
    """All collectors of one run. Those that need NumPy or much code are imported and made with their first use."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._failures = 0  # of all parts, at the last commit
        self._problems: Counter[str] = Counter()
        self.device_values = DeviceValues(recording)
        self.counters = Counters(recording)
        self.phases = PhaseCollector(recording, self.counters)
        if recording.settings.doctor:
            _ = self.findings  # begins to look

    @lazy
    def measured(self) -> MeasurementCollector:
        """Measured batches."""
        from barograph.recording.collectors.measurements import MeasurementCollector

        # Samples are committed after measured batches.
        return MeasurementCollector(self._recording, lambda step, tokens: self.samples.join(step, tokens))

    @lazy
    def rollouts(self) -> RolloutCollector:
        """Rollouts and evaluations."""
        from barograph.recording.collectors.rollouts import RolloutCollector

        return RolloutCollector(self._recording)

    @lazy
    def samples(self) -> SampleCollector:
        """Submitted samples."""
        from barograph.recording.samples.collector import SampleCollector

        return SampleCollector(self._recording)

    @lazy
    def findings(self) -> LiveFindings:
        """What the doctor says, and whether the training should stop."""
        from barograph.recording.collectors.findings import LiveFindings

        return LiveFindings(self._recording)

    def __iter__(self) -> Iterator[tuple[str, Collector]]:
        """Yield the collectors in use with their names, in the order in which they write."""
        made = vars(self)
        # One by one: the commit of one collector may make another.
        return ((name, made[name]) for name in COMMIT_ORDER if name in made)

    def commit(self, step: int, group: ProcessGroup | None = None) -> StepValues:
        """Let every collector write a step, and return its values; one that fails costs the others nothing.

        With a group, what its processes measured and reported is exchanged, and written by one of them.
        """
        attempt = self._recording.problems.attempt
        finishes: list[Finish | None] = []
        gathered = () if group is None else GATHERED
        if group is not None:
            finishes += self._commit_gathered(step, group)
        for name, collector in self:
            if name not in gathered:
                finishes.append(attempt(f"commit of {name}", collector.commit, step))
        attempt("commit of problems", self._write_problems)
        return StepValues([finish for finish in finishes if finish is not None], self._recording.problems.report)

    def _commit_gathered(self, step: int, group: ProcessGroup) -> list[Finish | None]:
        """Exchange the parts that all processes of a group have, and write them; without a result, write the own."""
        problems, made = self._recording.problems, vars(self)
        shares = {name: self._share(name, step) for name in GATHERED if name in made}
        found = problems.attempt("gather of a commit", exchange, group, step, shares, self._recording.contributes)
        commits: list[tuple[str, Callable[..., Finish | None], tuple[Any, ...]]]
        if found is None:
            # Some of the others may have a result, with this process's states in it: readers must be able to tell.
            self._recording.journal.event("gather_failed", step=step)
            commits = [(name, made[name].commit_own, ()) for name in shares]
        else:
            if len(found.steps) > 1:
                problems.warn(f"commit(gather=True): the ranks of the group commit different steps: {found.steps}")
            of_parts = {name: found.of(name) for name in GATHERED if found.of(name)}
            commits = [
                (name, getattr(self, name).commit_shares, (of_part, found.is_writer))
                for name, of_part in of_parts.items()
            ]
        return [problems.attempt(f"commit of {name}", commit, step, *args) for name, commit, args in commits]

    def _share(self, name: str, step: int) -> Share:
        """Return this process's share of a part; one that fails says so, and takes part all the same."""
        try:
            share: Share = getattr(self, name).share(step)
        except Exception as error:  # noqa: BLE001 - the other processes wait for this one
            self._recording.problems.report(f"commit of {name}", error)
            return Share(error=describe_error(error))
        return share

    def _write_problems(self) -> None:
        """Write how often each part has failed so far, where that has changed."""
        problems = self._recording.problems
        if problems.failures == self._failures:
            return
        self._failures = problems.failures
        totals: Counter[str] = Counter()
        for call, count in problems.by_call().items():
            part = _part(call)
            if part is not None:
                totals[f"barograph/problems/{part}"] += count
        changed = {name: float(count) for name, count in totals.items() if count != self._problems.get(name)}
        self._problems = totals
        if changed:
            self._recording.write_row(changed, None)

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
