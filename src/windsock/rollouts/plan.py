"""What is gathered and how it is to be reduced: plain data that travels with the states."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from windsock.catalogue.registry import REGISTRY
from windsock.catalogue.spec import CatalogueError
from windsock.rollouts.columns import STATISTICS

EVERY_RUN = ("eval", "bench", "validation", "group", "drawn")
"""Kinds that need each run by itself, not only what a task's runs sum up to."""
FAILURES = ("leave_out", "count")
OVER_TASKS = ("mean", "max", "min", "std")


@dataclass(frozen=True, slots=True)
class Plan:
    """One thing that is gathered in a step."""

    kind: str
    taskset: str = ""
    repeats: int | None = None
    """How many runs each task should have."""
    declared: Mapping[str, str] = field(default_factory=dict)
    """Statistics of metrics that are no means."""
    over_tasks: tuple[str, ...] = ("mean", "max", "min")
    failures: str = "leave_out"
    failed_value: float = 0.0
    detailed: bool = False
    expected_tasks: int | None = None
    expected_names: tuple[str, ...] = ()

    @property
    def every_run(self) -> bool:
        """Whether each run is needed by itself."""
        return self.kind in EVERY_RUN

    @property
    def failed_as(self) -> float | None:
        """What a failed run counts as; None where it does not."""
        return self.failed_value if self.failures == "count" else None

    def statistic_of(self, metric: str) -> str:
        """Return how a metric passes from level to level: as declared here or in the catalogue, else its mean."""
        return self.declared.get(metric) or _in_catalogue(metric) or "mean"

    def is_declared(self, metric: str) -> bool:
        """Tell whether somebody said which statistic a metric is."""
        return metric in self.declared or _in_catalogue(metric) is not None

    def expecting(self, tasks: Any, runs: int | None = None) -> Plan:
        """Return the plan with what should have come: so many tasks, of any library's integers, or these names."""
        plan = self if runs is None else replace(self, repeats=operator.index(runs))
        if tasks is None:
            return plan
        with suppress(TypeError):
            return replace(plan, expected_tasks=operator.index(tasks))
        return replace(plan, expected_names=tuple(str(task) for task in tasks))

    def united(self, other: Plan) -> Plan:
        """Return the plan of two parts: expected tasks add up, those with names unite."""
        counts = [plan.expected_tasks for plan in (self, other) if plan.expected_tasks is not None]
        names = dict.fromkeys((*self.expected_names, *other.expected_names))
        return replace(self, expected_tasks=sum(counts) if counts else None, expected_names=tuple(names))


def checked(plan: Plan, say: Callable[[str], None]) -> Plan:
    """Return the plan with what is wrong in it told and left at its default: an evaluation must not end a training."""
    if plan.failures not in FAILURES:
        say(f"failures: expected {' or '.join(FAILURES)}, got {plan.failures!r}; failed runs are left out")
        plan = replace(plan, failures="leave_out")
    wrong = {metric: statistic for metric, statistic in plan.declared.items() if statistic not in STATISTICS}
    for metric, statistic in wrong.items():
        say(f"{metric!r} is declared as {statistic!r}; expected {', '.join(STATISTICS)}; it is averaged")
    unknown = [stat for stat in plan.over_tasks if stat not in OVER_TASKS and not _is_quantile(stat)]
    for stat in unknown:
        say(f"stats: expected {', '.join(OVER_TASKS)} or a quantile such as p95, got {stat!r}; it is left out")
    return replace(
        plan,
        repeats=_checked_repeats(plan.repeats, say),
        declared={metric: statistic for metric, statistic in plan.declared.items() if metric not in wrong},
        over_tasks=tuple(stat for stat in plan.over_tasks if stat not in unknown),
    )


def _checked_repeats(repeats: int | None, say: Callable[[str], None]) -> int | None:
    """Return how many runs each task has as a plain integer, whatever library it is of."""
    if repeats is None:
        return None
    with suppress(TypeError):
        number = operator.index(repeats)
        if number >= 1:
            return number
    say(f"repeats: expected an integer of at least 1, got {repeats!r}; the most runs of a task are taken instead")
    return None


def _is_quantile(statistic: str) -> bool:
    return statistic.startswith("p") and statistic[1:].isdecimal() and int(statistic[1:]) <= 100


def _in_catalogue(metric: str) -> str | None:
    try:
        statistic = REGISTRY.metric(metric).statistic
    except CatalogueError:
        return None
    return statistic if statistic in STATISTICS else None
