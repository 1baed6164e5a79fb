"""Plan of a handle: the kind of its reports and their reductions. It is packed together with the reports."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from barograph.catalogue.registry import REGISTRY
from barograph.catalogue.spec import CatalogueError
from barograph.metrics.rollouts.gathering import STATISTICS, suffix_of

EVERY_RUN = ("eval", "bench", "validation", "group", "drawn")
"""Kinds whose statistics need every single run, not only sums over a task's runs."""
FAILURES = ("leave_out", "count")
MAX_KS = 64
MAX_K = 2**31
OVER_TASKS = ("mean", "max", "min", "std")
PLAIN_UNITS = ("seconds", "seconds/token", "tokens", "count")
"""Units of durations and counts: a metric that is declared with one is averaged, and has no best of k runs."""


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """Description of one kind of report in a step."""

    kind: str
    taskset: str = ""
    repeats: int | None = None
    """Number of runs that each task should have."""
    reductions: Mapping[str, str] = field(default_factory=dict)
    """Reductions of metrics that are not averaged."""
    over_tasks: tuple[str, ...] = ("mean", "max", "min")
    failures: str = "leave_out"
    failed_value: float = 0.0
    detailed: bool = False
    expected_tasks: int | None = None
    expected_names: tuple[str, ...] = ()
    ks: Sequence[int] = ()
    """The k of best@k, worst@k, pass@k and maj@k; empty for powers of two and the number of runs."""

    @property
    def every_run(self) -> bool:
        """Whether the statistics need every single run."""
        return self.kind in EVERY_RUN

    @property
    def failed_as(self) -> float | None:
        """Value of a failed run; None where failed runs are left out."""
        return self.failed_value if self.failures == "count" else None

    def statistic_of(self, metric: str) -> str:
        """Return the reduction of a metric: as given here, in its own suffix or in the catalogue, else the mean."""
        suffix = suffix_of(metric) if isinstance(metric, str) else None
        return self.reductions.get(metric) or suffix or _in_catalogue(metric) or "mean"

    def has_reduction(self, metric: str) -> bool:
        """Return whether a reduction of the metric is given, here or in the catalogue."""
        return metric in self.reductions or _in_catalogue(metric) is not None

    def declaring(self, metrics: Iterable[str]) -> RolloutPlan:
        """Return the plan with the reductions that the catalogue has of some metrics, for processes without them."""
        found = {metric: statistic for metric in metrics if (statistic := _in_catalogue(metric)) is not None}
        return replace(self, reductions={**found, **self.reductions}) if found else self

    def expecting(self, tasks: Any, runs: int | None = None) -> RolloutPlan:
        """Return the plan with the expected tasks (a number or names) and runs per task."""
        plan = self if runs is None else replace(self, repeats=operator.index(runs))
        if tasks is None:
            return plan
        with suppress(TypeError):
            return replace(plan, expected_tasks=operator.index(tasks))
        return replace(plan, expected_names=tuple(str(task) for task in tasks))

    def united(self, other: RolloutPlan) -> RolloutPlan:
        """Return the plan of two parts of a step: expected numbers add up, expected names unite."""
        # A process expects the tasks that it was given: numbers are of different tasks, equal names are of one.
        counts = [plan.expected_tasks for plan in (self, other) if plan.expected_tasks is not None]
        names = dict.fromkeys((*self.expected_names, *other.expected_names))
        ks = tuple(sorted({*self.ks, *other.ks}))
        return replace(
            self,
            reductions={**other.reductions, **self.reductions},
            expected_tasks=sum(counts) if counts else None,
            expected_names=tuple(names),
            ks=ks,
        )


def checked(plan: RolloutPlan, warn: Callable[[str], None]) -> RolloutPlan:
    """Return the plan with wrong entries replaced by defaults, with a warning: an error must not end a training."""
    if plan.failures not in FAILURES:
        warn(f"failures: expected {' or '.join(FAILURES)}, got {plan.failures!r}; failed runs are left out")
        plan = replace(plan, failures="leave_out")
    wrong = {metric: statistic for metric, statistic in plan.reductions.items() if statistic not in STATISTICS}
    for metric, statistic in wrong.items():
        warn(f"reductions: expected {', '.join(STATISTICS)}, got {statistic!r} for {metric!r}; it is averaged")
    unknown = [stat for stat in plan.over_tasks if stat not in OVER_TASKS and not _is_quantile(stat)]
    for stat in unknown:
        warn(f"stats: expected {', '.join(OVER_TASKS)} or a quantile such as p95, got {stat!r}; it is left out")
    return replace(
        plan,
        repeats=_checked_repeats(plan.repeats, warn),
        reductions={metric: statistic for metric, statistic in plan.reductions.items() if metric not in wrong},
        over_tasks=tuple(stat for stat in plan.over_tasks if stat not in unknown),
        ks=_checked_ks(plan.ks, warn),
    )


def _checked_repeats(repeats: int | None, warn: Callable[[str], None]) -> int | None:
    """Return the number of runs per task as an int, from an integer of any library."""
    if repeats is None:
        return None
    with suppress(TypeError):
        number = operator.index(repeats)
        if number >= 1:
            return number
    warn(
        f"repeats: expected an integer of at least 1, got {repeats!r}; the most runs that any task has are used instead"
    )
    return None


def _checked_ks(ks: Any, warn: Callable[[str], None]) -> tuple[int, ...]:
    """Return each k once, ascending, as ints, from integers of any library."""
    try:
        given = [ks] if hasattr(ks, "__index__") else list(ks)
    except TypeError:
        warn(f"ks: expected integers such as (1, 3, 5), got {ks!r}; the powers of two and repeats are used instead")
        return ()
    found: set[int] = set()
    for k in given:
        number = operator.index(k) if hasattr(k, "__index__") and not isinstance(k, bool) else 0
        if 1 <= number <= MAX_K:
            found.add(number)
        else:
            warn(f"ks: expected integers from 1 on, got {k!r}; it is left out")
    if len(found) > MAX_KS:
        warn(f"ks: expected at most {MAX_KS} numbers, got {len(found)}; the smallest are used")
    return tuple(sorted(found)[:MAX_KS])


def _is_quantile(statistic: str) -> bool:
    return statistic.startswith("p") and statistic[1:].isdecimal() and int(statistic[1:]) <= 100


def _in_catalogue(metric: str) -> str | None:
    """Return the reduction of a declared metric: its statistic, or the mean of a duration or a count."""
    try:
        declared = REGISTRY.metric(metric)
    except CatalogueError:
        return None
    if declared.statistic in STATISTICS:
        return declared.statistic
    return "mean" if declared.unit in PLAIN_UNITS else None
