"""Statistics of a step: runs reduced to tasks, tasks to a step, named in a vocabulary, with coverage beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from barograph.base.arrays import Floats, Ints
from barograph.catalogue.registry import REGISTRY, fill, vocabulary_name
from barograph.metrics.formulas.pass_at_k import TaskScores, mean_majority, powers_below, share_interval
from barograph.metrics.rollouts.gathering import Frame, Gathering, RolloutColumn, suffix_of
from barograph.metrics.rollouts.plan import RolloutPlan

Named = Iterator[tuple[str, float]]

DETAILED = ("mean", "std", "max", "min")
MAX_MAJORITY_REPEATS = 16  # repeats up to which maj@k is computed for k below: the number of draws grows fast
MAX_TASK_NAMES = 20  # tasks listed by name


@lru_cache(maxsize=4096)
def _pattern(id: str, vocabulary: str) -> str:
    return vocabulary_name(REGISTRY.metric(id), vocabulary).pattern


def spell(id: str, vocabulary: str, **filled: str) -> str:
    """Return the name of a metric in a vocabulary, with its placeholders filled."""
    return fill(_pattern(id, vocabulary), tuple(filled.items()))


@dataclass(frozen=True, slots=True)
class TaskCoverage:
    """Numbers of tasks and runs that were expected, observed and failed. None: no number was expected."""

    tasks_expected: int | None
    tasks_observed: int
    tasks_failed: int
    tasks_partial: int
    runs_expected: int | None
    runs_observed: int
    runs_failed: int
    partial_tasks: tuple[str, ...]  # the first few names
    failed_tasks: tuple[str, ...]
    missing_tasks: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be missing."""
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


def coverage(gathering: Gathering, plan: RolloutPlan) -> TaskCoverage:
    """Count tasks and runs that were expected, observed and failed.

    A task is observed if one of its runs is, failed if all its runs failed, and partial if it is observed and a run
    failed or is missing.
    """
    frame, names = gathering.frame(), list(gathering.tasks)
    size = len(names)
    runs_seen = np.bincount(frame.tasks, np.where(frame.observed, frame.runs, 0.0), minlength=size)
    runs_lost = np.bincount(frame.tasks, frame.failed, minlength=size)
    short = runs_seen < plan.repeats if plan.repeats else np.zeros(size, bool)
    partial = (runs_seen > 0) & ((runs_lost > 0) | short)
    lost = (runs_seen == 0) & (runs_lost > 0)
    missing = [name for name in plan.expected_names if name not in gathering.tasks]
    # Without an expectation the number stays unknown; runs are then expected of the tasks that appeared.
    expected = plan.expected_tasks if plan.expected_tasks is not None else len(plan.expected_names) or None
    return TaskCoverage(
        expected,
        int((runs_seen > 0).sum()),
        int(lost.sum()),
        int(partial.sum()),
        (expected or size) * plan.repeats if plan.repeats else None,
        int(runs_seen.sum()),
        int(runs_lost.sum()),
        tuple(names[n] for n in np.flatnonzero(partial)[:MAX_TASK_NAMES].tolist()),
        tuple(names[n] for n in np.flatnonzero(lost)[:MAX_TASK_NAMES].tolist()),
        tuple(missing[:MAX_TASK_NAMES]),
    )


class StepStatistics:
    """Named values of one gathering."""

    def __init__(self, gathering: Gathering, plan: RolloutPlan, vocabulary: str) -> None:
        self._gathering = gathering
        self._plan = plan
        self._vocabulary = vocabulary
        self._reduce = {
            "rollout": self._rollout,
            "eval": self._evaluation,
            "bench": self._evaluation,
            "validation": self._validation,
            "group": self._group,
            "drawn": self._staleness,
        }[plan.kind]

    def values(self) -> dict[str, float]:
        """Return the step's values by name, without metrics that have no reports."""
        frame = self._gathering.frame()
        values: dict[str, float] = {}
        columns = self._gathering.columns
        # Suffixed keys last: latency and latency:max have one name, and the second counts in any order of arrival.
        for metric in sorted(columns, key=lambda metric: _is_suffixed(metric, columns[metric])):
            column = columns[metric]
            runs = runs_of(frame, column, self._plan.failed_as)
            found = dict(self._reduce(metric, column, runs)) if len(runs.values) else {}
            values |= found
            # Once, under the metric's first name: all its statistics are computed from the same inputs.
            if column.nonfinite and found:
                values[f"barograph/nonfinite/{next(iter(found))}"] = float(column.nonfinite)
        return values | dict(self._counts())

    @cached_property
    def coverage(self) -> TaskCoverage:
        """Tasks and runs expected, observed and failed."""
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
        """Return the name of one count of the coverage."""
        kind = self._plan.kind
        if kind in ("eval", "bench"):
            return self._name(f"{kind}/{{taskset}}/coverage/{what}", taskset=self._plan.taskset)
        return self._name(f"{kind}/coverage/{what}")

    def _rollout(self, metric: str, column: RolloutColumn, runs: RunValues) -> Named:
        if column.statistic != "mean":
            key = self._key(metric, column)
            yield self._name(f"rollout/{{key}}/{column.statistic}", key=key), _one_number(runs, column.statistic)
            return
        for over, value in over_tasks(tasks_of(runs, "mean"), self._plan.over_tasks).items():
            if over.startswith("p"):
                yield self._name("rollout/{key}/p{share}", key=metric, share=over[1:]), value
            else:
                yield self._name(f"rollout/{{key}}/{over}", key=metric), value

    def _evaluation(self, metric: str, column: RolloutColumn, runs: RunValues) -> Named:
        if self._plan.has_reduction(metric) or _is_suffixed(metric, column):
            yield self._of_metric(self._key(metric, column), column.statistic), _one_number(runs, column.statistic)
            return
        tries = TaskScores.from_runs(runs.values, runs.tasks)
        # One k for all tasks: a task that lost a run belongs to mean@4 like the others, not to a mean@3 of its own.
        repeats = self._plan.repeats or int(tries.counts.max())
        ks = list(self._plan.ks) or powers_below(repeats)
        yield from self._statistic(metric, "mean", repeats, tries.mean())
        yield from self._statistic(metric, "std", repeats, tries.std())
        for k in ks:
            yield from self._statistic(metric, "best", k, tries.best(k))
            yield from self._statistic(metric, "worst", k, tries.worst(k))
        # pass@k is a chance to be right, which graded scores do not have.
        if tries.binary:
            for k in ks:
                yield from self._pass_at(metric, k, tries)
        if self._gathering.answers:
            voted = self._plan.ks or repeats <= MAX_MAJORITY_REPEATS
            yield from self._majorities(metric, runs, ks if voted else [repeats])

    def _key(self, metric: str, column: RolloutColumn) -> str:
        """Return the name of a metric without the suffix that gave its reduction."""
        suffixed = _is_suffixed(metric, column) and metric not in self._plan.reductions
        return metric.removesuffix(f":{column.statistic}") if suffixed else metric

    def _of_metric(self, metric: str, statistic: str, **filled: str) -> str:
        id = f"{self._plan.kind}/{{taskset}}/{{metric}}/{statistic}"
        return self._name(id, taskset=self._plan.taskset, metric=metric, **filled)

    def _statistic(
        self, metric: str, what: str, k: int, of_tasks: np.ndarray[tuple[int], np.dtype[np.float64]]
    ) -> Named:
        """Yield a statistic of tasks: its mean over tasks, or with ``detailed_stats`` mean, std, max and min."""
        if not self._plan.detailed:
            yield self._of_metric(metric, f"{what}@{{k}}", k=str(k)), float(of_tasks.mean())
            return
        for stat, value in over_tasks(of_tasks, DETAILED).items():
            yield self._of_metric(metric, f"{what}@{{k}}/{{stat}}", k=str(k), stat=stat), value

    def _pass_at(self, metric: str, k: int, tries: TaskScores) -> Named:
        chances = tries.pass_at(k)
        if len(chances):
            low, high = share_interval(chances)
            yield self._of_metric(metric, "pass@{k}", k=str(k)), float(chances.mean())
            yield self._of_metric(metric, "pass@{k}/low", k=str(k)), low
            yield self._of_metric(metric, "pass@{k}/high", k=str(k)), high
            yield self._of_metric(metric, "pass@{k}/tasks", k=str(k)), float(len(chances))

    def _majorities(self, metric: str, runs: RunValues, ks: list[int]) -> Named:
        """Yield maj@k: each task's runs vote. Runs without an answer abstain; tasks without answers are left out."""
        answers = self._gathering.answers
        by_task: dict[int, list[tuple[float, str | None]]] = {}
        for task, value, slot in zip(runs.tasks.tolist(), runs.values.tolist(), runs.slots.tolist(), strict=True):
            by_task.setdefault(task, []).append((value, answers.get(slot)))
        for k in ks:
            votes = [
                ([value for value, _ in tries], [answer for _, answer in tries])
                for tries in by_task.values()
                if len(tries) >= k and any(answer is not None for _, answer in tries)
            ]
            if votes:
                mean, error = mean_majority(votes, k)
                yield self._of_metric(metric, "maj@{k}", k=str(k)), mean
                if error is not None:
                    yield self._of_metric(metric, "maj@{k}/error", k=str(k)), error

    def _validation(self, metric: str, column: RolloutColumn, runs: RunValues) -> Named:
        for over, value in over_tasks(runs.values, self._plan.over_tasks).items():
            yield self._name(f"validation/score/{over}"), value
        for tag, place in self._gathering.tasks.items():
            of_tag = runs.values[runs.tasks == place]
            if tag and len(of_tag):
                for over, value in over_tasks(of_tag, self._plan.over_tasks).items():
                    yield self._name(f"validation/{{tag}}/score/{over}", tag=tag), value

    def _group(self, metric: str, column: RolloutColumn, runs: RunValues) -> Named:
        tries = TaskScores.from_runs(runs.values, runs.tasks)
        for what, of_groups in (("reward_mean", tries.mean()), ("reward_std", tries.std())):
            for over, value in over_tasks(of_groups, self._plan.over_tasks).items():
                yield self._name(f"pipeline/group/{what}/{over}"), value

    def _staleness(self, metric: str, column: RolloutColumn, runs: RunValues) -> Named:
        for over, value in over_tasks(runs.values, self._plan.over_tasks).items():
            yield self._name(f"sample/{metric}/{over}"), value


def _is_suffixed(metric: str, column: RolloutColumn) -> bool:
    """Return whether the reduction is in the key; in states of older versions such a key may be averaged."""
    return isinstance(metric, str) and column.statistic != "mean" and suffix_of(metric) == column.statistic


def _one_number(runs: RunValues, statistic: str) -> float:
    """Return a metric that has the same reduction at every level."""
    if statistic == "last":
        return last_of(runs)
    return over_tasks(tasks_of(runs, statistic), (statistic,))[statistic]


@dataclass(frozen=True, slots=True)
class RunValues:
    """Values of one metric in the runs that have one, with their weights."""

    values: Floats
    tasks: Ints
    weights: Floats  # experiences without run ids are stored together, and weigh as many runs
    times: Floats
    slots: Ints


def runs_of(frame: Frame, column: RolloutColumn, failed_value: float | None = None) -> RunValues:
    """Return the runs of a metric; failed runs have ``failed_value``, or are left out if that is None."""
    size = len(frame)
    values, present = column.runs(size)
    weights = np.where(frame.lone, column.counts(size), 1.0)
    if failed_value is not None:
        values, present = np.where(frame.failed, failed_value, values), present | frame.failed
    if present.all():
        return RunValues(values, frame.tasks, weights, column.times(size), np.arange(size))
    slots = np.flatnonzero(present)
    return RunValues(values[slots], frame.tasks[slots], weights[slots], column.times(size)[slots], slots)


def tasks_of(runs: RunValues, statistic: str) -> Floats:
    """Reduce runs to tasks by sum, mean, max or min; tasks without a run are left out."""
    present = np.bincount(runs.tasks) > 0
    # Numbered without gaps: a task without a value must not appear as 0 or as an infinity.
    dense = runs.tasks if present.all() else (np.cumsum(present) - 1)[runs.tasks]
    size = int(present.sum())
    if statistic == "sum":
        return _sums(dense, runs.values, size)
    if statistic == "mean":
        return _sums(dense, runs.values * runs.weights, size) / _sums(dense, runs.weights, size)
    start, ufunc = {"max": (-np.inf, np.maximum), "min": (np.inf, np.minimum)}[statistic]
    found = np.full(size, start)
    ufunc.at(found, dense, runs.values)
    return found


def _sums(places: Ints, parts: Floats, size: int) -> Floats:
    return np.bincount(places, parts, minlength=size).astype(np.float64, copy=False)


def over_tasks(values: Floats, statistics: Iterable[str]) -> dict[str, float]:
    """Return statistics over the values of at least one task; std has ddof 0, p95 is a quantile."""
    return {statistic: _statistic(values, statistic) for statistic in statistics}


def _statistic(values: Floats, statistic: str) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        if statistic == "std":
            return float(np.sqrt(np.square(values - values.mean()).mean()))
        if statistic.startswith("p"):
            return float(np.quantile(values, float(statistic[1:]) / 100))
        return float(getattr(values, statistic)())


def last_of(runs: RunValues) -> float:
    """Return the value that arrived last."""
    return float(runs.values[np.argmax(runs.times)])
