"""What was gathered, finished: reduced, named in a vocabulary, with its coverage beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from windsock.catalogue.patterns import fill
from windsock.catalogue.registry import REGISTRY, vocabulary_name
from windsock.rollouts.columns import Column
from windsock.rollouts.gathering import Gathering
from windsock.rollouts.levels import Runs, last_of, over_tasks, runs_of, tasks_of
from windsock.rollouts.plan import Plan
from windsock.stats.pass_at_k import Tries, majority, powers_below, share_interval

Named = Iterator[tuple[str, float]]

DETAILED = ("mean", "std", "max", "min")
MOST_DRAWN = 16  # repeats up to which the majority of fewer is worked out: the ways to vote grow fast
MANY_NAMES = 20  # tasks that are told by name


@lru_cache(maxsize=4096)
def _pattern(id: str, vocabulary: str) -> str:
    return vocabulary_name(REGISTRY.metric(id), vocabulary).pattern


def spell(id: str, vocabulary: str, **filled: str) -> str:
    """Return the name of a metric in a vocabulary, with its placeholders filled."""
    return fill(_pattern(id, vocabulary), tuple(filled.items()))


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of what was expected came. None: nobody said what to expect."""

    tasks_expected: int | None
    tasks_observed: int
    tasks_failed: int
    tasks_partial: int
    runs_expected: int | None
    runs_observed: int
    runs_failed: int
    partial_tasks: tuple[str, ...]  # by name, the first few
    failed_tasks: tuple[str, ...]
    missing_tasks: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether nothing is known to lack."""
        expected = (self.tasks_expected or 0) > self.tasks_observed or (self.runs_expected or 0) > self.runs_observed
        return not (expected or self.missing_tasks or self.tasks_failed or self.tasks_partial or self.runs_failed)


COUNTED = (
    "tasks_expected",
    "tasks_observed",
    "tasks_failed",
    "tasks_partial",
    "runs_expected",
    "runs_observed",
    "runs_failed",
)


def coverage(gathering: Gathering, plan: Plan) -> Coverage:
    """Count tasks and runs that were expected, observed and failed.

    A task is observed when one of its runs was, failed when all that is known of it are failures, and partial when it
    is observed with a run that failed or lacks.
    """
    frame, names = gathering.frame(), list(gathering.tasks)
    size = len(names)
    runs_seen = np.bincount(frame.tasks, np.where(frame.observed, frame.runs, 0.0), minlength=size)
    runs_lost = np.bincount(frame.tasks, frame.failed, minlength=size)
    short = runs_seen < plan.repeats if plan.repeats else np.zeros(size, bool)
    partial = (runs_seen > 0) & ((runs_lost > 0) | short)
    lost = (runs_seen == 0) & (runs_lost > 0)
    missing = [name for name in plan.expected_names if name not in gathering.tasks]
    expected = plan.expected_tasks if plan.expected_tasks is not None else len(plan.expected_names) or None
    return Coverage(
        expected,
        int((runs_seen > 0).sum()),
        int(lost.sum()),
        int(partial.sum()),
        (expected or size) * plan.repeats if plan.repeats else None,
        int(runs_seen.sum()),
        int(runs_lost.sum()),
        tuple(names[n] for n in np.flatnonzero(partial)[:MANY_NAMES].tolist()),
        tuple(names[n] for n in np.flatnonzero(lost)[:MANY_NAMES].tolist()),
        tuple(missing[:MANY_NAMES]),
    )


class Finisher:
    """Turns a gathering into named values."""

    def __init__(self, gathering: Gathering, plan: Plan, vocabulary: str) -> None:
        self._gathering = gathering
        self._plan = plan
        self._vocabulary = vocabulary
        self._finish = {
            "rollout": self._rollout,
            "eval": self._evaluation,
            "bench": self._evaluation,
            "validation": self._validation,
            "group": self._group,
            "drawn": self._drawn,
        }[plan.kind]

    def values(self) -> dict[str, float]:
        """Return the step's values by name; a metric that nothing was reported of is not among them."""
        frame = self._gathering.frame()
        values: dict[str, float] = {}
        for metric, column in self._gathering.columns.items():
            runs = runs_of(frame, column, self._plan.failed_as)
            found = dict(self._finish(metric, column, runs)) if len(runs.values) else {}
            values |= found
            if column.nonfinite and found:
                values[f"windsock/nonfinite/{next(iter(found))}"] = float(column.nonfinite)
        return values | dict(self._counts())

    @cached_property
    def coverage(self) -> Coverage:
        """What came of what was expected."""
        return coverage(self._gathering, self._plan)

    def _name(self, id: str, **filled: str) -> str:
        return spell(id, self._vocabulary, **filled)

    def _counts(self) -> Named:
        kind = self._plan.kind
        if kind == "drawn":
            yield self._name("sample/task_count"), float(len(self._gathering.tasks))
        elif kind != "group":
            counts: Mapping[str, int | None] = {what: getattr(self.coverage, what) for what in COUNTED}
            for what, count in counts.items():
                if count is not None and not (kind == "validation" and what.startswith("tasks")):
                    yield self.coverage_name(what), float(count)

    def coverage_name(self, what: str) -> str:
        """Return the name of a count of the coverage."""
        kind = self._plan.kind
        if kind in ("eval", "bench"):
            return self._name(f"{kind}/{{taskset}}/coverage/{what}", taskset=self._plan.taskset)
        return self._name(f"{kind}/coverage/{what}")

    def _rollout(self, metric: str, column: Column, runs: Runs) -> Named:
        if column.statistic != "mean":
            yield self._name(f"rollout/{{key}}/{column.statistic}", key=metric), _one_number(runs, column.statistic)
            return
        for over, value in over_tasks(tasks_of(runs, "mean"), self._plan.over_tasks).items():
            if over.startswith("p"):
                yield self._name("rollout/{key}/p{share}", key=metric, share=over[1:]), value
            else:
                yield self._name(f"rollout/{{key}}/{over}", key=metric), value

    def _evaluation(self, metric: str, column: Column, runs: Runs) -> Named:
        if self._plan.is_declared(metric):
            yield self._of_metric(metric, column.statistic), _one_number(runs, column.statistic)
            return
        tries = Tries.of(runs.values, runs.tasks)
        repeats = self._plan.repeats or int(tries.counts.max())
        ks = powers_below(repeats)
        yield from self._statistic(metric, "mean", repeats, tries.mean())
        yield from self._statistic(metric, "std", repeats, tries.std())
        for k in ks:
            yield from self._statistic(metric, "best", k, tries.best(k))
            yield from self._statistic(metric, "worst", k, tries.worst(k))
        if tries.binary:
            for k in ks:
                yield from self._pass_at(metric, k, tries)
        if self._gathering.answers:
            yield from self._majorities(metric, runs, ks if repeats <= MOST_DRAWN else [repeats])

    def _of_metric(self, metric: str, statistic: str, **filled: str) -> str:
        id = f"{self._plan.kind}/{{taskset}}/{{metric}}/{statistic}"
        return self._name(id, taskset=self._plan.taskset, metric=metric, **filled)

    def _statistic(
        self, metric: str, what: str, k: int, of_tasks: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> Named:
        """Tell a statistic of tasks: its mean over them, or with ``detailed_stats`` four of them."""
        if not self._plan.detailed:
            yield self._of_metric(metric, f"{what}@{{k}}", k=str(k)), float(of_tasks.mean())
            return
        for stat, value in over_tasks(of_tasks, DETAILED).items():
            yield self._of_metric(metric, f"{what}@{{k}}/{{stat}}", k=str(k), stat=stat), value

    def _pass_at(self, metric: str, k: int, tries: Tries) -> Named:
        chances = tries.pass_at(k)
        if len(chances):
            low, high = share_interval(chances)
            yield self._of_metric(metric, "pass@{k}", k=str(k)), float(chances.mean())
            yield self._of_metric(metric, "pass@{k}/low", k=str(k)), low
            yield self._of_metric(metric, "pass@{k}/high", k=str(k)), high
            yield self._of_metric(metric, "pass@{k}/tasks", k=str(k)), float(len(chances))

    def _majorities(self, metric: str, runs: Runs, ks: list[int]) -> Named:
        """Let the runs of each task vote; those without an answer abstain, and tasks without any are not asked."""
        answers = self._gathering.answers
        by_task: dict[int, list[tuple[float, str | None]]] = {}
        for task, value, slot in zip(runs.tasks.tolist(), runs.values.tolist(), runs.slots.tolist(), strict=True):
            by_task.setdefault(task, []).append((value, answers.get(slot)))
        for k in ks:
            worth = [
                majority([value for value, _ in tries], [answer for _, answer in tries], k)
                for tries in by_task.values()
                if len(tries) >= k and any(answer is not None for _, answer in tries)
            ]
            if worth:
                yield self._of_metric(metric, "maj@{k}", k=str(k)), float(np.mean(worth))

    def _validation(self, metric: str, column: Column, runs: Runs) -> Named:
        for over, value in over_tasks(runs.values, self._plan.over_tasks).items():
            yield self._name(f"validation/score/{over}"), value
        for tag, place in self._gathering.tasks.items():
            of_tag = runs.values[runs.tasks == place]
            if tag and len(of_tag):
                for over, value in over_tasks(of_tag, self._plan.over_tasks).items():
                    yield self._name(f"validation/{{tag}}/score/{over}", tag=tag), value

    def _group(self, metric: str, column: Column, runs: Runs) -> Named:
        tries = Tries.of(runs.values, runs.tasks)
        for what, of_groups in (("reward_mean", tries.mean()), ("reward_std", tries.std())):
            for over, value in over_tasks(of_groups, self._plan.over_tasks).items():
                yield self._name(f"pipeline/group/{what}/{over}"), value

    def _drawn(self, metric: str, column: Column, runs: Runs) -> Named:
        for over, value in over_tasks(runs.values, self._plan.over_tasks).items():
            yield self._name(f"sample/{metric}/{over}"), value


def _one_number(runs: Runs, statistic: str) -> float:
    """Reduce a metric that keeps its statistic at every level."""
    if statistic == "last":
        return last_of(runs)
    return over_tasks(tasks_of(runs, statistic), (statistic,))[statistic]
