"""Collector of rollouts and evaluations: it opens handles, closes them and writes their values."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from windsock.journal.frames import Kind
from windsock.recording import Collector, Recording
from windsock.rollouts.gathering import Gathering
from windsock.rollouts.handles import Handle, Rollouts
from windsock.rollouts.plan import Plan, checked
from windsock.rollouts.statistics import Coverage, StepStatistics, pipeline_values, staleness_columns
from windsock.rollouts.wire import pack

Key = tuple[str, str, "int | None"]
"""Kind, task set and step of a handle; the step is None until a commit names it."""
AnyHandle = TypeVar("AnyHandle", bound=Handle)

# Kinds are stored on disk, in the states of a step: "drawn" is the staleness of an update's samples.
CLOSED_BY_COMMIT = ("rollout", "group", "drawn")
"""Kinds that the commit of their step closes. Evaluations and validations may go on for several steps."""
WITHOUT_COVERAGE = ("group", "drawn")
"""Kinds of which no number of tasks can be expected."""
MAX_REASONS = 10
MAX_CLOSED = 10_000  # closed handles that are remembered, to recognise late reports


class RolloutCollector(Collector):
    """The open and closed handles of one run. Usable from several threads."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._vocabulary = recording.info.vocabulary
        self.after_fork()

    def after_fork(self) -> None:
        """Drop all handles: the parent writes them."""
        self._open: dict[Key, Handle] = {}
        self._late: dict[Key, int] = {}  # closed handles, and how many reports arrived for them since
        self._late_unwritten: dict[Key, Plan] = {}
        self._states_without_step: dict[tuple[str, str], list[bytes]] = {}  # of handles closed before their commit
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere

    def open(self, kind: type[AnyHandle], plan: Plan, step: Any) -> AnyHandle:
        """Return the handle of a step: the open one, a new one, or a closed one if the step is closed."""
        recording = self._recording
        plan, number = checked(plan, recording.problems.warn), recording.open_step(step)
        key = (plan.kind, plan.taskset, number)
        with self._lock:
            handle = self._open.get(key)
            if handle is None:
                handle = kind(plan, number, self, recording.problems)
                if number is not None and key in self._late:
                    # The step's numbers are written: a new handle for it only counts reports as late.
                    handle.gathering.seal()
                else:
                    self._open[key] = handle
        assert isinstance(handle, kind)
        return handle

    def pipeline_values(
        self, count: int | None, metrics: Mapping[str, Any], seconds: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the numbers of the experience pipeline by name."""
        return pipeline_values(count, metrics, seconds, self._vocabulary)

    def add_group_rewards(self, rewards: Any, groups: Any, step: int | None) -> None:
        """Add the reward and the group of each experience."""
        self.open(Rollouts, Plan("group"), step).add_columns(groups, {"reward": rewards})

    def add_staleness(self, weight_versions: Any, tasks: Any, trainer_version: int | None, step: int | None) -> None:
        """Add the weight version and the task of each sample of an update."""
        columns = staleness_columns(weight_versions, trainer_version)
        self.open(Rollouts, Plan("drawn"), step).add_columns(tasks, columns)

    def close(self, handle: Handle, expected_tasks: Any = None, expected_runs: int | None = None) -> None:
        """Close a handle and write its values; a closed one stays as it is."""
        if not handle.gathering.seal():
            return
        try:
            handle.plan = handle.plan.expecting(expected_tasks, expected_runs)
        finally:  # if the expectation is wrong, the reports are still written
            self._remember_closed(handle)
            self._write(handle)

    def count_late(self, handle: Handle, count: int) -> None:
        """Count reports that arrived after their handle was closed."""
        key = _key(handle)
        with self._lock:
            self._late[key] = self._late.get(key, 0) + count
            self._late_unwritten[key] = handle.plan
        self._recording.problems.warn(
            f"{_title(handle.plan)}: a report arrived for step {handle.step} after it was closed; "
            "it is counted as late (reported once)"
        )

    def uncommitted_steps(self) -> Collection[int | None]:
        """Return None if there are reports for the step that the next commit names; other steps close by themselves."""
        without_step = any(step is None for _, _, step in self._open) or any(self._states_without_step.values())
        return [None] if without_step else []

    def commit(self, step: int) -> None:
        """Close the handles of a step; reports without a step are added to those under its number."""
        with self._lock:
            states, self._states_without_step = self._states_without_step, {}
            unnamed = [self._open.pop(key) for key in list(self._open) if key[2] is None]
            named = {key[:2]: handle for key, handle in self._open.items() if key[2] == step}
            for kind, taskset in states:
                self._remember((kind, taskset, step))
        # Written without the lock: threads that open handles do not wait for the disk.
        for (kind, taskset), packed in states.items():
            for state in packed:
                self._write_state((kind, taskset, step), state)
        for handle in unnamed:
            handle.step = step
            same = named.get((handle.plan.kind, handle.plan.taskset))
            if same is None:
                self._close_guarded(handle)
            # False where another thread has closed the handle meanwhile, and written it.
            elif handle.gathering.seal():
                same.add_gathered(handle.gathering, handle.plan)
        for handle in named.values():
            if handle.plan.kind in CLOSED_BY_COMMIT:
                self._close_guarded(handle)
        self._write_late()

    def finish(self) -> None:
        """Close every handle that is still open."""
        with self._lock:
            handles = list(self._open.values())
        for handle in handles:
            self._close_guarded(handle)
        self._write_late()

    def _close_guarded(self, handle: Handle) -> None:
        """Close a handle; if that fails, the others are still closed."""
        self._recording.problems.attempt(f"{type(handle).__name__.lower()}.close", self.close, handle)

    def _remember_closed(self, handle: Handle) -> None:
        key = _key(handle)
        with self._lock:
            if self._open.get(key) is handle:
                del self._open[key]
            if handle.step is None:
                # An entry also where no state follows, in a run of one process: the commit closes these kinds.
                self._states_without_step.setdefault(key[:2], [])
            else:
                self._remember(key)

    def _remember(self, key: Key) -> None:
        self._late.setdefault(key, 0)
        if len(self._late) > MAX_CLOSED:
            # A dict has the order of insertion, so this is the oldest.
            self._late.pop(next(iter(self._late)))

    def _write(self, handle: Handle) -> None:
        """Write a handle's values, its state if other processes have parts of the step, and any missing tasks."""
        statistics = StepStatistics(handle.gathering, handle.plan, self._vocabulary)
        values = statistics.values()
        if values:
            self._recording.write_row(values, handle.step)
        # Every process writes its own values; where several have states of a step, readers show the merged ones.
        if self._recording.shared:
            self._recording.problems.attempt(f"{_title(handle.plan)}: the state for readers", self._pack_state, handle)
        if handle.plan.kind not in WITHOUT_COVERAGE and not statistics.coverage.complete:
            self._write_incomplete(handle, statistics.coverage)

    def _pack_state(self, handle: Handle) -> None:
        self._write_state(_key(handle), pack(handle.gathering, handle.plan))

    def _write_state(self, key: Key, state: bytes) -> None:
        """Write this process's part of a step. Readers merge parts by step, so without one it waits for the commit."""
        kind, taskset, step = key
        if step is None:
            with self._lock:
                self._states_without_step.setdefault((kind, taskset), []).append(state)
        else:
            self._recording.journal.packet(Kind.GATHERED, {"kind": kind, "taskset": taskset, "step": step}, state)

    def _write_incomplete(self, handle: Handle, coverage: Coverage) -> None:
        reasons = dict(handle.gathering.reasons.most_common(MAX_REASONS))
        title = _title(handle.plan)
        self._recording.journal.event("lacking", of=title, step=handle.step, reasons=reasons, **asdict(coverage))

    def _write_late(self) -> None:
        with self._lock:
            plans, self._late_unwritten = self._late_unwritten, {}
            counts = {key: self._late[key] for key in plans}
            for key in [key for key in plans if key[2] is None]:
                del self._late[key]  # the next step without a number is another one
        for key, count in counts.items():
            if key[0] not in WITHOUT_COVERAGE:
                # The total so far, not the increase: of several values of a step the last one counts.
                name = StepStatistics(Gathering(), plans[key], self._vocabulary).coverage_name("late")
                self._recording.write_row({name: float(count)}, key[2])


def _key(handle: Handle) -> Key:
    return (handle.plan.kind, handle.plan.taskset, handle.step)


def _title(plan: Plan) -> str:
    return f"{plan.kind}/{plan.taskset}" if plan.taskset else plan.kind
