"""The calls of a run that are about rollouts and evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from windsock.journal.frames import Kind
from windsock.recorder import Recorder

if TYPE_CHECKING:
    from windsock.rollouts.books import Books
    from windsock.rollouts.handles import Evaluation, Handle, Rollouts, Validation
    from windsock.rollouts.plan import Plan

AnyHandle = TypeVar("AnyHandle", bound="Handle")


class Reports(Recorder):
    """What a run offers to explorers and evaluators. Everything behind it is imported with the first call."""

    _books: Books | None = None

    def rollouts(
        self,
        step: int | None = None,
        *,
        stats: Sequence[str] = ("mean", "max", "min"),
        declared: Mapping[str, str] = MappingProxyType({}),
        failures: str = "leave_out",
        failed_value: float = 0.0,
    ) -> Rollouts:
        """Return the handle that gathers the rollouts of a step; closing it, or the step's commit, writes them.

        ``stats`` are over tasks: mean, max, min, std, or quantiles such as p95. ``declared`` names the metrics that
        are no means, such as ``{"tokens": "sum"}``: mean, sum, max, min or last at every level. ``failures="count"``
        lets a failed run count as ``failed_value`` instead of being left out.
        """
        from windsock.rollouts.handles import Rollouts
        from windsock.rollouts.plan import Plan

        plan = Plan("rollout", "", None, dict(declared), tuple(stats), failures, failed_value)
        return self._gathered(step, plan, Rollouts)

    def evaluation(
        self,
        taskset: str,
        step: int | None = None,
        *,
        repeats: int | None = None,
        prefix: str = "eval",
        declared: Mapping[str, str] = MappingProxyType({}),
        failures: str = "leave_out",
        failed_value: float = 0.0,
        detailed_stats: bool | None = None,
    ) -> Evaluation:
        """Return the handle that gathers one evaluation of a set of tasks; closing it writes the statistics.

        ``repeats`` is how many runs each task has, the k of mean@k; without it, the most that any task has. ``prefix``
        is ``eval`` or ``bench``. ``declared``, ``failures`` and ``failed_value`` are as in ``rollouts``.
        """
        from windsock.rollouts.handles import Evaluation
        from windsock.rollouts.plan import Plan

        if prefix not in ("eval", "bench"):
            self.notice(f"prefix: expected eval or bench, got {prefix!r}; it is eval")
            prefix = "eval"
        detailed = self._settings.detailed_stats if detailed_stats is None else detailed_stats
        plan = Plan(prefix, str(taskset), repeats, dict(declared), (), failures, failed_value, detailed)
        return self._gathered(step, plan, Evaluation)

    def validation(self, step: int | None = None) -> Validation:
        """Return the handle that gathers the scores of validation episodes; closing it writes them."""
        from windsock.rollouts.handles import Validation
        from windsock.rollouts.plan import Plan

        return self._gathered(step, Plan("validation"), Validation)

    def pipeline(
        self,
        *,
        count: int | None = None,
        rewards: Any = None,
        groups: Any = None,
        metrics: Mapping[str, Any] = MappingProxyType({}),
        seconds: Mapping[str, Any] = MappingProxyType({}),
        step: int | None = None,
    ) -> None:
        """Report what the experience pipeline did: how many experiences are left, rewards by group, operators' metrics.

        ``rewards`` and ``groups`` have an entry for each experience; ``seconds`` says how long each operator took. It
        may be called several times in a step: rewards come together, of the others the last counts.
        """
        try:
            from windsock.rollouts.handles import Rollouts
            from windsock.rollouts.pipeline import pipeline_values
            from windsock.rollouts.plan import Plan

            self.log(pipeline_values(count, metrics, seconds, self.info.vocabulary), step)
            if rewards is not None and groups is not None:
                self._gathered(step, Plan("group"), Rollouts).add_many(groups, {"reward": rewards})
        except Exception as problem:  # noqa: BLE001 - see Run.log
            self.guard(problem)

    def drawn(self, *, versions: Any, tasks: Any, trainer_version: int | None = None, step: int | None = None) -> None:
        """Report the samples drawn for an update: the weight version and the task of each.

        With ``trainer_version``, the version being trained, their staleness follows.
        """
        try:
            from windsock.rollouts.handles import Rollouts
            from windsock.rollouts.pipeline import drawn_columns
            from windsock.rollouts.plan import Plan

            self._gathered(step, Plan("drawn"), Rollouts).add_many(tasks, drawn_columns(versions, trainer_version))
        except Exception as problem:  # noqa: BLE001 - see Run.log
            self.guard(problem)

    def _gathered(self, step: int | None, plan: Plan, kind: type[AnyHandle]) -> AnyHandle:
        from windsock.rollouts.plan import checked

        handle = self._opened_books().get(None if step is None else self.as_step(step), checked(plan, self.notice))
        assert isinstance(handle, kind)
        return handle

    def _opened_books(self) -> Books:
        if self._books is not None:
            return self._books
        from windsock.rollouts.books import Books

        made = Books(self, self.info.vocabulary, self.shared)
        books: Books = vars(self).setdefault("_books", made)  # of two threads that come first, one's count
        return books

    def _forget_gathered(self) -> None:
        """Leave to the parent of a fork what is its own."""
        vars(self).pop("_books", None)  # None in its place would stay, where the first report of the child sets it

    def _close_gathered(self, step: int) -> None:
        if self._books is not None:
            self._books.commit(step)

    def _finish_gathered(self) -> None:
        """Close what is open; what belongs to a step that nobody named goes to the next."""
        if self._books is not None:
            if self._books.holds_open_step:
                self.commit()
            self._books.finish()

    def write_row(self, values: Mapping[str, float], step: int | None) -> None:
        """Write finished values."""
        self._journal.row(tuple(values), values.values(), step)

    def write_gathered(self, head: Mapping[str, Any], state: bytes) -> None:
        """Write what this process holds of a step, to be merged with what others hold."""
        self._journal.packet(Kind.GATHERED, head, state)

    def write_event(self, event: str, **fields: Any) -> None:
        """Write something that happened."""
        self._journal.event(event, **fields)
