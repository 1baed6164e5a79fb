"""Collector of rollouts and evaluations: it opens handles, closes them and writes their values.

Reports are exchanged between processes: what each sends, and what all of it is together.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, TypeVar

import numpy as np

from barograph.base.formatting import describe_error
from barograph.base.lazy import Finish, Finished
from barograph.base.process.distributed import Share
from barograph.journal.format.frames import Kind
from barograph.journal.merge.rollouts import merged_report
from barograph.metrics.rollouts.gathering import Gathering
from barograph.metrics.rollouts.plan import RolloutPlan, checked
from barograph.metrics.rollouts.statistics import StepStatistics, TaskCoverage, spell
from barograph.metrics.rollouts.wire import Encoded, compressed, encode
from barograph.recording.collectors.rollout_handles import Handle, Rollouts
from barograph.recording.context import Collector, Recording, StateBuffer


@dataclass(frozen=True, slots=True)
class SharedReport:
    """What one process reported of one kind; ``written`` says whether its journal has the state already."""

    kind: str
    taskset: str
    state: bytes
    written: bool = False
    error: str = ""


@dataclass(slots=True)
class Report:
    """What all processes reported of one kind in a step."""

    kind: str
    taskset: str
    states: list[bytes] = field(default_factory=list)
    unwritten: list[bytes] = field(default_factory=list)  # those of the states that no journal has yet
    error: str = ""

    @property
    def title(self) -> str:
        """The report in words."""
        return f"{self.kind}/{self.taskset}" if self.taskset else self.kind

    def unwritten_state(self) -> Encoded:
        """Return the unwritten states as one."""
        return encode(*merged_report(self.unwritten))

    def merged(self) -> tuple[Gathering, RolloutPlan]:
        """Return all reports together."""
        return merged_report(self.states)


def reported_share(reports: Iterable[SharedReport], error: str = "") -> Share:
    """Return the share of one process."""
    reports = list(reports)
    heads = [[one.kind, one.taskset, len(one.state), one.written, one.error] for one in reports]
    if not reports:
        return Share(error=error)
    return Share(body=json.dumps(heads).encode() + b"\n" + b"".join(one.state for one in reports), error=error)


def merged_reports(shares: Sequence[Share]) -> list[Report]:
    """Return the reports of all processes, by kind and task set."""
    found: dict[tuple[str, str], Report] = {}
    for one in (one for share in shares for one in _reports(share)):
        report = found.setdefault((one.kind, one.taskset), Report(one.kind, one.taskset))
        report.error = report.error or one.error
        if one.state:
            report.states.append(one.state)
            report.unwritten += [] if one.written else [one.state]
    return [report for _, report in sorted(found.items())]


def finished_reports(
    reports: Iterable[Report], shares: Sequence[Share], vocabulary: str
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the values of all processes, and by report why there are none: one process could not contribute."""
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    failed = next((share.error for share in shares if share.error), "")
    for report in reports:
        error = failed or report.error
        try:
            found = {} if error else StepStatistics(*report.merged(), vocabulary).values()
        except (ValueError, KeyError) as problem:
            found, error = {}, describe_error(problem)
        values |= found
        missing |= {report.title: f"a rank could not contribute: {error}"} if error else {}
    return values, missing


def _reports(share: Share) -> list[SharedReport]:
    if not share.body:
        return []
    line, _, blobs = share.body.partition(b"\n")
    found, start = [], 0
    for kind, taskset, size, written, error in json.loads(line):
        found.append(SharedReport(kind, taskset, blobs[start : start + size], written, error))
        start += size
    return found


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

MAX_UNCOMMITTED = 64  # steps whose values are kept for their commit; a process may close handles and never commit


_ReportState = tuple[str, str, Encoded]
"""Kind, task set and state of what one process reported; the state is not compressed, as most are never written."""


@dataclass(slots=True)
class _Closed:
    """A handle that was closed before the commit of its step, or by it."""

    kind: str
    taskset: str
    values: Mapping[str, float]
    state: Encoded | None = None  # None where no other process can have a part of the step
    written: bool = False
    """Whether the state is on its way to the journal. Readers merge parts by step, so without one it waits."""
    handle: Handle | None = None  # if nothing of it is written yet
    error: str = ""


class RolloutCollector(Collector):
    """The open and closed handles of one run. Usable from several threads."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._vocabulary = recording.info.vocabulary
        self._states: StateBuffer[_ReportState] = StateBuffer(recording, "rollouts", self._write_state)
        self.after_fork()

    def after_fork(self) -> None:
        """Drop all handles: the parent writes them."""
        self._open: dict[Key, Handle] = {}
        self._late: dict[Key, int] = {}  # closed handles, and how many reports arrived for them since
        self._late_unwritten: dict[Key, RolloutPlan] = {}
        self._closed: dict[int | None, list[_Closed]] = {}  # by step, until its commit
        self._taken: list[_Closed] = []  # of the step that is being exchanged
        self._announced: set[Key] = set()  # open handles of committed steps
        self._states.after_fork()
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere

    def open(self, kind: type[AnyHandle], plan: RolloutPlan, step: Any) -> AnyHandle:
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
                    if number is not None and recording.step is not None and number <= recording.step:
                        self._announce_open(recording.step)
        assert isinstance(handle, kind)
        return handle

    def pipeline_values(
        self, count: int | None, metrics: Mapping[str, Any], seconds: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the numbers of the experience pipeline by name."""
        vocabulary = self._vocabulary
        values: dict[str, Any] = {}
        if count is not None:
            values[spell("pipeline/experience_count", vocabulary)] = count
        values |= {spell("pipeline/{key}", vocabulary, key=key): value for key, value in metrics.items()}
        named = {spell("time/experience_pipeline/{operator}", vocabulary, operator=o): s for o, s in seconds.items()}
        return values | named

    def add_group_rewards(self, rewards: Any, groups: Any, step: int | None) -> None:
        """Add the reward and the group of each experience."""
        self.open(Rollouts, RolloutPlan("group"), step).add_columns(groups, {"reward": rewards})

    def add_staleness(self, weight_versions: Any, tasks: Any, trainer_version: int | None, step: int | None) -> None:
        """Add the weight version and the task of each sample of an update."""
        columns: dict[str, Any] = {"model_version": weight_versions}
        if trainer_version is not None:
            columns["staleness"] = trainer_version - np.asarray(weight_versions, np.float64)
        self.open(Rollouts, RolloutPlan("drawn"), step).add_columns(tasks, columns)

    def close(self, handle: Handle, expected_tasks: Any = None, expected_runs: int | None = None) -> None:
        """Close a handle and write its values; a closed one stays as it is."""
        if not handle.gathering.seal():
            return
        try:
            handle.plan = handle.plan.expecting(expected_tasks, expected_runs)
        finally:  # if the expectation is wrong, the reports are still written
            self._remember_closed(handle)
            self._keep(handle.step, self._write(handle))

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
        return [None] if None in self._closed or any(step is None for _, _, step in self._open) else []

    def commit(self, step: int) -> Finish | None:
        """Close the handles of a step; reports without a step are added to those under its number."""
        return self._commit(self._take(step, self._close_guarded), step)

    def share(self, step: int) -> Share:
        """Close the handles of a step, to exchange the reports: ``commit_shares`` or ``commit_own`` writes them."""
        self._taken = self._take(step, self._hold)
        if not self._recording.contributes:
            return Share()
        return reported_share(
            SharedReport(one.kind, one.taskset, compressed(one.state) if one.state else b"", one.written, one.error)
            for one in self._taken
            if one.state or one.error
        )

    def commit_own(self, step: int) -> Finish | None:
        """Write what ``share`` has taken out, where the exchange failed."""
        taken, self._taken = self._taken, []
        return self._commit(taken, step)

    def commit_shares(self, step: int, shares: Sequence[Share], is_writer: bool) -> Finish:
        """Write what all processes reported in a step, if this one is to; return how to get its values."""
        taken, self._taken = self._taken, []
        reports = merged_reports(shares)

        @cache
        def finish() -> Finished:
            values, missing = finished_reports(reports, shares, self._vocabulary)
            # A process that is alone has no states of handles that were closed before this commit, only values.
            return {
                name: value for one in taken for name, value in one.values.items() if not one.state
            } | values, missing

        for report in reports if is_writer and not any(share.error for share in shares) else ():
            # Where all journals have their own states, readers merge those.
            if report.unwritten and not report.error:
                self._recording.problems.attempt("commit of rollouts", self._write_report, report, step)
        self._end_commit(step)
        return finish

    def finish(self) -> None:
        """Close every handle that is still open."""
        with self._lock:
            handles = list(self._open.values())
        for handle in handles:
            self._close_guarded(handle)
        self._states.flush()
        self._write_late()

    def _commit(self, taken: Sequence[_Closed], step: int) -> Finish | None:
        attempt = self._recording.problems.attempt
        values: dict[str, float] = {}
        for held in taken:
            one = held if held.handle is None else self._write(held.handle)
            if one.state and not one.written:
                attempt("commit of rollouts", self._add_state, step, one.kind, one.taskset, one.state)
            values |= one.values
        self._end_commit(step)
        return (lambda: (values, {})) if values else None

    def _take(self, step: int, close: Callable[[Handle], None]) -> list[_Closed]:
        """Close the handles of a step, and remove what was closed of it since the last commit."""
        with self._lock:
            unnamed = [self._open.pop(key) for key in list(self._open) if key[2] is None]
            named = {key[:2]: handle for key, handle in self._open.items() if key[2] == step}
            # Added to the step's own before anything can fail: later reports must not find them without a step.
            self._closed[step] = [*self._closed.pop(None, []), *self._closed.pop(step, [])]
            for one in self._closed[step]:
                self._remember((one.kind, one.taskset, step))
        # Written without the lock: threads that open handles do not wait for the disk.
        for handle in unnamed:
            handle.step = step
            same = named.get((handle.plan.kind, handle.plan.taskset))
            if same is None:
                close(handle)
            # False where another thread has closed the handle meanwhile, and written it.
            elif handle.gathering.seal():
                same.add_gathered(handle.gathering, handle.plan)
        for handle in named.values():
            if handle.plan.kind in CLOSED_BY_COMMIT:
                close(handle)
        with self._lock:
            for old in [old for old in self._closed if old is not None and old < step]:
                del self._closed[old]
            return self._closed.pop(step)

    def _end_commit(self, step: int) -> None:
        self._states.flush()
        self._announce_open(step)
        self._write_late()

    def _announce_open(self, committed: int | None) -> None:
        """Write which handles of committed steps are open: readers then know that a contribution is still to come."""
        if committed is None or not self._recording.contributes or not self._recording.shared:
            return
        with self._lock:
            found = {key for key in self._open if key[2] is not None and key[2] <= committed}
            new, self._announced = found - self._announced, found
        for kind, taskset, step in sorted(new):
            self._recording.journal.event("open_report", kind=kind, taskset=taskset, step=step)

    def _close_guarded(self, handle: Handle) -> None:
        """Close a handle; if that fails, the others are still closed."""
        self._recording.problems.attempt(_close_of(handle), self.close, handle)

    def _hold(self, handle: Handle) -> None:
        """Close a handle without writing its values: they are to be merged with those of other processes."""
        if not handle.gathering.seal():
            return
        self._remember_closed(handle)
        plan, state, error = handle.plan, None, ""
        try:
            state = encode(handle.gathering, plan) if self._recording.contributes else None
        except Exception as problem:  # noqa: BLE001 - the others are to know that a part is missing
            self._recording.problems.report(_close_of(handle), problem)
            error = describe_error(problem)
        self._keep(handle.step, _Closed(plan.kind, plan.taskset, {}, state, handle=handle, error=error))

    def _remember_closed(self, handle: Handle) -> None:
        key = _key(handle)
        with self._lock:
            if self._open.get(key) is handle:
                del self._open[key]
            if handle.step is not None:
                self._remember(key)

    def _remember(self, key: Key) -> None:
        self._late.setdefault(key, 0)
        if len(self._late) > MAX_CLOSED:
            # A dict has the order of insertion, so this is the oldest.
            self._late.pop(next(iter(self._late)))

    def _keep(self, step: int | None, closed: _Closed) -> None:
        """Keep what a commit of the step returns and writes."""
        with self._lock:
            self._closed.setdefault(step, []).append(closed)
            named = [known for known in self._closed if known is not None]
            if len(named) > MAX_UNCOMMITTED:
                del self._closed[named[0]]  # a dict has the order of insertion, so this is the oldest

    def _write(self, handle: Handle) -> _Closed:
        """Write a handle's values, its state if other processes have parts of the step, and any missing tasks."""
        closed = _Closed(handle.plan.kind, handle.plan.taskset, {})
        try:
            self._write_closed(handle, closed)
        except Exception as problem:  # noqa: BLE001 - the others are to know that a part is missing
            self._recording.problems.report(_close_of(handle), problem)
            closed.error = describe_error(problem)
        return closed

    def _write_closed(self, handle: Handle, closed: _Closed) -> None:
        plan, recording = handle.plan, self._recording
        statistics = StepStatistics(handle.gathering, plan, self._vocabulary)
        closed.values = statistics.values()
        if not recording.contributes:
            return
        # Every process writes its own values; where several have states of a step, readers show the merged ones.
        if closed.values:
            recording.write_row(closed.values, handle.step)
        if self._states.wants(plan.kind, plan.taskset):
            self._encode(handle, closed)
        if closed.state is not None and handle.step is not None:
            self._add_state(handle.step, plan.kind, plan.taskset, closed.state)
            closed.written = True
        self._write_incomplete(handle.step, plan, handle.gathering, statistics.coverage)

    def _encode(self, handle: Handle, closed: _Closed) -> None:
        """Make the state of a closed handle; one that is too large costs the values of all processes only."""
        try:
            closed.state = encode(handle.gathering, handle.plan)
        except Exception as problem:  # noqa: BLE001 - the values of this process are to be written
            closed.error = describe_error(problem)
            if self._recording.shared:
                self._recording.problems.report(f"{_title(handle.plan)}: the state for readers", problem)

    def _write_report(self, report: Report, step: int) -> None:
        """Write a report of all processes: its values, its state and any missing tasks."""
        gathering, plan = report.merged()
        statistics = StepStatistics(gathering, plan, self._vocabulary)
        values = statistics.values()
        if values:
            self._recording.write_row(values, None)
        if self._states.wants(report.kind, report.taskset):
            self._add_state(step, report.kind, report.taskset, report.unwritten_state())
        self._write_incomplete(step, plan, gathering, statistics.coverage)

    def _add_state(self, step: int, kind: str, taskset: str, encoded: Encoded) -> None:
        self._states.add(step, (kind, taskset, encoded), len(encoded.data))

    def _write_state(self, step: int, state: _ReportState, at: float) -> None:
        kind, taskset, encoded = state
        head = {"kind": kind, "taskset": taskset, "step": step, "time": at}
        self._recording.journal.packet(Kind.GATHERED, head, compressed(encoded))

    def _write_incomplete(
        self, step: int | None, plan: RolloutPlan, gathering: Gathering, coverage: TaskCoverage
    ) -> None:
        if plan.kind in WITHOUT_COVERAGE or coverage.complete:
            return
        reasons = dict(gathering.reasons.most_common(MAX_REASONS))
        self._recording.journal.event("lacking", of=_title(plan), step=step, reasons=reasons, **asdict(coverage))

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


def _title(plan: RolloutPlan) -> str:
    return f"{plan.kind}/{plan.taskset}" if plan.taskset else plan.kind


def _close_of(handle: Handle) -> str:
    """Return the call that closes a handle, as problems are reported."""
    return f"{type(handle).__name__.lower()}.close"
