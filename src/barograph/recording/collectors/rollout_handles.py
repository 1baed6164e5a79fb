"""Handles that a user reports to while the tasks of a step arrive: rollouts, an evaluation, a validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from barograph.base.problems import Problems, guarded
from barograph.metrics.rollouts.gathering import Gathering
from barograph.metrics.rollouts.plan import RolloutPlan
from barograph.metrics.rollouts.wire import MAX_SENT_BYTES, pack, unpack

if TYPE_CHECKING:
    from barograph.recording.collectors.rollouts import RolloutCollector


class Handle:
    """Reports of one kind for one step. Usable from several threads, and as a context manager that closes it.

    No call raises: a report that cannot be counted is reported and counted as a problem of the run. A handle without
    an owner belongs to a disabled run; its calls do nothing.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        plan: RolloutPlan,
        step: int | None,
        owner: RolloutCollector | None = None,
        problems: Problems | None = None,
    ) -> None:
        self.plan = plan
        self.step = step
        self.gathering = Gathering(plan.statistic_of, plan.every_run, problems.skip if problems else None)
        self._owner: Any = owner
        self._problems = problems

    @classmethod
    def inert(cls) -> Self:
        """Return a handle whose calls do nothing."""
        return cls(RolloutPlan(cls.kind), None)

    def __repr__(self) -> str:
        what = f"{self.plan.kind} {self.plan.taskset}".strip()
        return f"<{what} of step {self.step}: {len(self.gathering.tasks)} tasks{', closed' if self.closed else ''}>"

    def state(self) -> bytes:
        """Return all reports as bytes, for a process that merges the states of several."""
        return pack(self.gathering, self.plan, MAX_SENT_BYTES)

    @property
    def closed(self) -> bool:
        """Whether the step is closed: reports that arrive now are late."""
        return self.gathering.sealed

    @guarded()
    def merge(self, state: bytes) -> None:
        """Add the reports of another process: the bytes of its ``state()``."""
        self.add_gathered(*unpack(state, limit=MAX_SENT_BYTES))

    @guarded()
    def close(self, expected_tasks: int | Iterable[Any] | None = None, expected_runs: int | None = None) -> None:
        """Reduce the reports and write the values under the step.

        ``expected_tasks`` is the number of tasks there should be, or their names; ``expected_runs`` the number of runs
        of each. Reports that arrive later are counted as late. Further calls do nothing.
        """
        self._owner.close(self, expected_tasks, expected_runs)

    def add_gathered(self, gathering: Gathering, plan: RolloutPlan) -> None:
        """Add reports that were gathered elsewhere, as another part of the same step."""
        if self.gathering.merge(gathering):
            self.plan = self.plan.united(plan)
        else:
            self._owner.count_late(self, len(gathering))

    def add_columns(self, tasks: Iterable[Any], metrics: Mapping[str, Any], runs: Iterable[Any] | None = None) -> None:
        """Add many experiences. Unlike the calls of a user, this raises."""
        sized = tasks if isinstance(tasks, Sized) else list(tasks)
        if not self.gathering.add_columns(sized, runs, metrics):
            self._owner.count_late(self, len(sized))

    def _add(self, task: Any, run: Any, metrics: Mapping[str, Any], answer: Any = None) -> None:
        if not self.gathering.add(task, run, metrics, answer):
            self._owner.count_late(self, 1)

    def _fail(self, task: Any, run: Any, reason: Any) -> None:
        if not self.gathering.fail(task, run, str(reason)):
            self._owner.count_late(self, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Rollouts(Handle):
    """Rollouts of a step: ``rollout/{metric}/{mean,max,min}`` over its tasks."""

    kind = "rollout"

    @guarded()
    def add(self, task: Any, metrics: Mapping[str, Any], run: Any = None) -> None:
        """Report one experience: it is averaged into its run, runs into their task, tasks into the step.

        Without ``run`` an experience is a run of its own. Tasks and runs are identified by their ``str``.
        """
        self._add(task, run, metrics)

    @guarded()
    def add_many(self, tasks: Iterable[Any], metrics: Mapping[str, Any], runs: Iterable[Any] | None = None) -> None:
        """Report many experiences: sequences or arrays with one entry each. None means that a metric has no value."""
        self.add_columns(tasks, metrics, runs)

    @guarded()
    def fail(self, task: Any, run: Any = None, reason: Any = "") -> None:
        """Report that a run failed. If it is also reported, as after a retry, it counts as observed."""
        self._fail(task, run, reason)


class Evaluation(Rollouts):
    """One evaluation of a set of tasks: ``eval/{taskset}/{metric}/{mean,std,best,worst}@k``, pass@k, maj@k."""

    kind = "eval"

    @guarded()
    def add(self, task: Any, metrics: Mapping[str, Any], run: Any = None, answer: Any = None) -> None:
        """Report a run, or an experience of one; ``answer`` is the run's answer, for the majority vote."""
        self._add(task, run, metrics, answer)


class Validation(Handle):
    """Validation episodes of a step: ``val/score/{mean,max,min}`` over all of them and by tag."""

    kind = "validation"

    @guarded()
    def add(self, score: Any, tag: Any = "", episode: Any = None) -> None:
        """Report an episode's score; ``tag`` is its environment or data set."""
        self._add(tag, episode, {"score": score})

    @guarded()
    def add_many(self, scores: Any, tags: Iterable[Any] | None = None, episodes: Iterable[Any] | None = None) -> None:
        """Report many episodes: sequences or arrays with one entry each."""
        self.add_columns([""] * len(scores) if tags is None else tags, {"score": scores}, episodes)

    @guarded()
    def fail(self, tag: Any = "", episode: Any = None, reason: Any = "") -> None:
        """Report that an episode failed."""
        self._fail(tag, episode, reason)
