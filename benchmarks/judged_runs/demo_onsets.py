"""When the demo's faults begin, and when the doctor names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judged_runs.outcomes import said_by
from judged_runs.runs import NAMED_BY, WARNING
from windsock.catalogue.patterns import fill
from windsock.catalogue.registry import REGISTRY, vocabulary_name
from windsock.demo.sick_runs import SICK_RUNS
from windsock.diagnosis.case import Case
from windsock.diagnosis.diagnose import findings_of
from windsock.diagnosis.doctor import case_of
from windsock.diagnosis.rule import RULES, Reading, Rule
from windsock.journal.series import Series
from windsock.view import View

PHASES = {"slow-phase": "reward/compute_rewards", "memory-leak": "actor_train/train_step"}


@dataclass(frozen=True)
class Onset:
    """The steps of a fault: where it shows, where the doctor says it began, and when the doctor said so first."""

    name: str
    shows: int | None
    named: int | None
    said: int | None
    steps: int


def demo_onsets(views: Mapping[str, View]) -> Iterator[Onset]:
    """Yield the onsets of the sick runs among some views; the others are healthy."""
    healthy = [view for name, view in views.items() if name not in SICK_RUNS]
    for name in SICK_RUNS:
        if name in views:
            named, said = _diagnosed(views[name], NAMED_BY[name])
            steps = int(views[name].steps[1]) if views[name].steps else 0
            yield Onset(name, _shows(name, views[name], healthy), named, said, steps)


def _shows(name: str, sick: View, healthy: Sequence[View]) -> int | None:
    """Return the first step since which the metric that shows a fault is outside of the range of healthy runs."""
    metric = metric_of(name)
    low, high = _range(metric, healthy)
    series = sick.series(metric)
    steps = np.asarray(series.steps)
    inside = np.array([low.get(step, -np.inf) <= value <= high.get(step, np.inf) for step, value in _points(series)])
    last = np.flatnonzero(inside)[-1] if inside.any() else -1
    return int(steps[last + 1]) if last + 1 < len(steps) else None


def _points(series: Series) -> Iterator[tuple[int, float]]:
    return zip(series.steps.tolist(), series.values.tolist(), strict=True)


def _range(metric: str, views: Iterable[View]) -> tuple[dict[int, float], dict[int, float]]:
    low: dict[int, float] = {}
    high: dict[int, float] = {}
    for view in views:
        for step, value in _points(view.series(metric)) if metric in view.names() else ():
            low[step] = min(value, low.get(step, value))
            high[step] = max(value, high.get(step, value))
    return low, high


def metric_of(name: str) -> str:
    """Return the metric that shows a fault, in ROLL's vocabulary."""
    pattern = vocabulary_name(REGISTRY.metric(SICK_RUNS[name].shows_in), "roll").pattern
    return fill(pattern, (("phase", PHASES.get(name, "")), ("when", "end")))


def _diagnosed(view: View, rules: Sequence[str]) -> tuple[int | None, int | None]:
    """Return the onset that rules name for a run, and the first step at which one of them gives a warning."""
    case = case_of(view)
    chosen = [RULES[rule] for rule in rules]
    onsets = [
        finding.onset
        for rule in chosen
        if isinstance(reading := rule.judge(case), Reading)
        for finding in findings_of(rule, reading)
        if finding.severity != "info"
    ]
    first, last = view.steps or (0, -1)
    warned = (step for step in range(first, last + 1) if _warns(chosen, case.upto(step)))
    return min(onsets, default=None), next(warned, None)


def _warns(rules: Sequence[Rule], case: Case) -> bool:
    return any(said.now >= WARNING for said in said_by(rules, case).values())
