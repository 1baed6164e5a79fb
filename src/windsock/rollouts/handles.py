"""What a user holds while the tasks of a step come in: rollouts, an evaluation, a validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from types import TracebackType
from typing import Any, Protocol, Self

from windsock.rollouts.gathering import Gathering
from windsock.rollouts.plan import Plan
from windsock.rollouts.travel import pack, unpack


class Keeper(Protocol):
    """Who made a handle, and takes it back."""

    def close(self, handle: Handle) -> None:
        """Finish and write what the handle gathered."""

    def late(self, handle: Handle, count: int) -> None:
        """Count what came after the end."""

    def guard(self, problem: Exception) -> None:
        """Show a problem; the training goes on."""

    def refuse(self, refused: Mapping[str, str]) -> None:
        """Count values that are no numbers."""


class Handle:
    """Gathers one thing of one step. Usable from several threads, and as a context manager that closes it.

    Nothing here raises inside a training loop: what cannot be counted is told once and counted as such.
    """

    def __init__(self, plan: Plan, step: int | None, keeper: Keeper) -> None:
        self.plan = plan
        self.step = step
        self.gathering = Gathering(plan.statistic_of, plan.every_run, keeper.refuse)
        self._keeper = keeper

    def __repr__(self) -> str:
        what = f"{self.plan.kind} {self.plan.taskset}".strip()
        return f"<{what} of step {self.step}: {len(self.gathering.tasks)} tasks{', closed' if self.closed else ''}>"

    def state(self) -> bytes:
        """Return all that was gathered here as bytes, for a process that merges the parts of several."""
        return pack(self.gathering, self.plan)

    @property
    def closed(self) -> bool:
        """Whether the step is over: what comes now is late."""
        return self.gathering.sealed

    def merge(self, state: bytes) -> None:
        """Take in what another process gathered: the bytes of its ``state()``."""
        try:
            self._take_in(*unpack(state))
        except Exception as problem:  # noqa: BLE001 - nothing may stop the training
            self._keeper.guard(problem)

    def unite(self, other: Handle) -> None:
        """Take in what another handle of this process gathered, and let it gather no more."""
        try:
            if other.gathering.seal():
                self._take_in(other.gathering, other.plan)
        except Exception as problem:  # noqa: BLE001 - see merge
            self._keeper.guard(problem)

    def close(self, expected_tasks: int | Iterable[Any] | None = None, expected_runs: int | None = None) -> None:
        """Reduce what came and write it under the step.

        ``expected_tasks`` is how many there should be, or their names; ``expected_runs`` how many of each. Whatever
        comes later is counted as late. Further calls do nothing.
        """
        try:
            if self.gathering.seal():
                try:
                    self.plan = self.plan.expecting(expected_tasks, expected_runs)
                finally:  # whatever is wrong with what was expected, what came is written
                    self._keeper.close(self)
        except Exception as problem:  # noqa: BLE001 - see merge
            self._keeper.guard(problem)

    def _take_in(self, gathering: Gathering, plan: Plan) -> None:
        if self.gathering.merge(gathering):
            self.plan = self.plan.united(plan)
        else:
            self._keeper.late(self, len(gathering))

    def _add(self, task: Any, run: Any, metrics: Mapping[str, Any], answer: Any = None) -> None:
        try:
            if not self.gathering.add(task, run, metrics, answer):
                self._keeper.late(self, 1)
        except Exception as problem:  # noqa: BLE001 - see merge
            self._keeper.guard(problem)

    def _add_many(self, tasks: Iterable[Any], runs: Iterable[Any] | None, metrics: Mapping[str, Any]) -> None:
        try:
            sized = tasks if isinstance(tasks, Sized) else list(tasks)
            if not self.gathering.add_columns(sized, runs, metrics):
                self._keeper.late(self, len(sized))
        except Exception as problem:  # noqa: BLE001 - see merge
            self._keeper.guard(problem)

    def _fail(self, task: Any, run: Any, reason: Any) -> None:
        try:
            if not self.gathering.fail(task, run, str(reason)):
                self._keeper.late(self, 1)
        except Exception as problem:  # noqa: BLE001 - see merge
            self._keeper.guard(problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Rollouts(Handle):
    """The rollouts of a step: ``rollout/{metric}/{mean,max,min}`` over its tasks."""

    def add(self, task: Any, metrics: Mapping[str, Any], run: Any = None) -> None:
        """Report one experience: it averages into its run, runs into their task, tasks into the step.

        Without ``run`` an experience is a run of its own. A task or run is known by what ``str`` makes of it.
        """
        self._add(task, run, metrics)

    def add_many(self, tasks: Iterable[Any], metrics: Mapping[str, Any], runs: Iterable[Any] | None = None) -> None:
        """Report many experiences: sequences or arrays with an entry for each; None in a metric is no report of it."""
        self._add_many(tasks, runs, metrics)

    def fail(self, task: Any, run: Any = None, reason: Any = "") -> None:
        """Report that a run failed. If it is reported as well, as after a retry, it counts as observed."""
        self._fail(task, run, reason)


class Evaluation(Rollouts):
    """One evaluation of a set of tasks: ``eval/{taskset}/{metric}/{mean,std,best,worst}@k``, pass@k, maj@k."""

    def add(self, task: Any, metrics: Mapping[str, Any], run: Any = None, answer: Any = None) -> None:
        """Report a run, or an experience of one; ``answer`` is what it answered, for the majority."""
        self._add(task, run, metrics, answer)


class Validation(Handle):
    """Validation episodes of a step: ``val/score/{mean,max,min}`` over all of them, whatever their tag."""

    def add(self, score: Any, tag: Any = "", episode: Any = None) -> None:
        """Report an episode's score; ``tag`` is its environment or data set."""
        self._add(tag, episode, {"score": score})

    def add_many(self, scores: Any, tags: Iterable[Any] | None = None, episodes: Iterable[Any] | None = None) -> None:
        """Report many episodes: sequences or arrays with an entry for each."""
        self._add_many([""] * len(scores) if tags is None else tags, episodes, {"score": scores})

    def fail(self, tag: Any = "", episode: Any = None, reason: Any = "") -> None:
        """Report that an episode failed."""
        self._fail(tag, episode, reason)
