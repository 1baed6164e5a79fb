"""Questions about a run that are true or false, ``last(val/score) > 0.5 and max(grad_norm) < 10``, and their answers
as records.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from barograph.base.arrays import Floats
from barograph.base.errors import ExpressionError, did_you_mean
from barograph.base.expressions import Call, ComparisonTerm, Condition, Expression, Word, evaluate, parse
from barograph.base.formatting import counted, flatten, json_number
from barograph.catalogue.names import recognise
from barograph.catalogue.resolution import RunNames
from barograph.diagnosis.diagnose import Visit
from barograph.importers.summary import run_names
from barograph.journal.read.series import Series
from barograph.journal.view import View

CONFIG = "config."

FACTS = ("status", "step", "seconds", "verdict", "finding", "name", "project", "tag")

ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip

EXAMPLE = "last(val/score) > 0.5 and max(grad_norm) < 10"


def _slope(steps: Floats, values: Floats) -> float:
    """Return the slope of the least-squares line, per step; NaN for fewer than two steps."""
    centred = steps - steps.mean()
    squares = float((centred**2).sum())
    return float((centred * (values - values.mean())).sum() / squares) if squares else math.nan


AGGREGATES: dict[str, Callable[[Floats, Floats], float]] = {
    "min": lambda steps, values: float(values.min()),
    "max": lambda steps, values: float(values.max()),
    "mean": lambda steps, values: float(values.mean()),
    "median": lambda steps, values: float(np.median(values)),
    "slope": _slope,
}
"""Functions of the finite values of a series; a number after the name limits them to so many of the last points."""

POINTS: dict[str, Callable[[Series], float]] = {
    "last": lambda series: float(series.values[-1]),
    "first": lambda series: float(series.values[0]),
    "count": lambda series: float(len(series)),
    "nonfinite": lambda series: float((~np.isfinite(series.values)).sum()),
}
"""Functions of a series as it was logged, NaN included."""

FUNCTIONS = (*POINTS, *AGGREGATES, "at")


@dataclass(frozen=True, slots=True)
class JudgedComparison:
    """A comparison of a question with the values of its sides, and the names that were taken for those asked for."""

    text: str
    left: Any
    right: Any
    holds: bool
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a question is true of a run, and why."""

    holds: bool
    parts: list[JudgedComparison]


def parse_question(question: str) -> Expression:
    """Parse a question; raise ExpressionError with an example where it cannot be read."""
    try:
        return parse(question, FUNCTIONS)
    except ExpressionError as problem:
        raise ExpressionError(f"{problem}; an example is {EXAMPLE!r}") from None


def answer(view: View, question: str, names: RunNames | None = None) -> Answer:
    """Answer a question about a run; raise ExpressionError where it cannot be read or answered."""
    expression = parse_question(question)
    asked = _Asked(view, names or run_names(view))
    holds = bool(evaluate(expression, asked.holds))
    return Answer(holds, asked.parts)


class _Asked:
    """One question that is being answered."""

    def __init__(self, view: View, names: RunNames) -> None:
        self._view = view
        self._names = names
        self._taken: dict[str, str] = {}
        self.parts: list[JudgedComparison] = []

    def holds(self, comparison: ComparisonTerm) -> bool:
        self._taken = {}
        left, right = comparison.left, comparison.right
        is_fact = isinstance(left, Word) and not (left.number is not None and isinstance(right, Call))
        found, values = self._of_fact(comparison) if is_fact else self._of_numbers(comparison)
        self.parts.append(JudgedComparison(str(comparison), *values, found, self._taken))
        return found

    def _of_numbers(self, comparison: ComparisonTerm) -> tuple[bool, tuple[Any, Any]]:
        if comparison.order not in ORDERS:
            raise ExpressionError(f"{comparison.order} compares texts, and {comparison} has numbers")
        left, right = self._number(comparison.left), self._number(comparison.right)
        is_known = not math.isnan(left) and not math.isnan(right)
        return is_known and ORDERS[comparison.order](left, right), (left, right)

    def _of_fact(self, comparison: ComparisonTerm) -> tuple[bool, tuple[Any, Any]]:
        name, value = comparison.left, comparison.right
        assert isinstance(name, Word)
        if isinstance(value, Call):
            raise ExpressionError(f"{comparison}: a fact such as {name} is compared with a value, not with {value}")
        condition, fact = Condition.of(comparison, name.text), self._fact(name.text)
        return condition.holds(fact), (fact, value.text)

    def _fact(self, name: str) -> Any:
        view = self._view
        if name.startswith(CONFIG):
            return dict(flatten(view.config)).get(name.removeprefix(CONFIG))
        facts: dict[str, Callable[[], Any]] = {
            "status": lambda: view.status.word,
            "step": lambda: view.steps[1] if view.steps else None,
            "seconds": lambda: view.span[1] - view.span[0] or None,  # a log without times has none
            "verdict": lambda: Visit().diagnose(view, self._names).verdict,
            "finding": lambda: [finding.rule for finding in Visit().diagnose(view, self._names).findings],
            "name": lambda: view.name,
            "project": lambda: view.info.project,
            "tag": lambda: list(view.info.tags),
        }
        if name in facts:
            return facts[name]()
        if name in view.names() or recognise(name).matches:
            raise ExpressionError(f"{name} is a series: ask for one value of it, such as last({name})")
        raise ExpressionError(f"unknown fact {name!r}: expected {', '.join(FACTS)}, {CONFIG}KEY, or last(METRIC)")

    def _number(self, operand: Word | Call) -> float:
        if isinstance(operand, Call):
            return self._call(operand)
        if operand.number is None:
            raise ExpressionError(f"expected a number or a function such as last(METRIC); got {str(operand)!r}")
        return operand.number

    def _call(self, call: Call) -> float:
        name, *more = call.arguments
        series, factor = self._series(name.text)
        number = more[0].number if more else None
        expected = (1,) if call.function == "at" else (0,) if call.function in POINTS else (0, 1)
        if len(more) not in expected or (more and number is None):
            raise ExpressionError(f"{call}: expected {_usage(call.function)}")
        if call.function in POINTS:
            value = POINTS[call.function](series)
            return value if call.function in ("count", "nonfinite") else value * factor
        if call.function == "at":
            return _at(series, number or 0.0, call) * factor
        return _aggregate(series, call, None if number is None else int(number)) * factor

    def _series(self, asked: str) -> tuple[Series, float]:
        """Return the series of a name, and the factor that makes its numbers those of the name asked for."""
        name, factor = metric_named(self._view, self._names, asked)
        if name != asked:
            self._taken[asked] = name
        return self._view.series(name), factor


def metric_named(view: View, names: RunNames, asked: str) -> tuple[str, float]:
    """Return the name of a metric in a run, and the factor that makes its numbers those of the name asked for.

    That is the name itself, the one that it is short for, or one with the meaning that it has in some framework. Raise
    ExpressionError where there is none, or several.
    """
    if view.find_series(asked) is not None:
        return asked, 1.0
    found = dict.fromkeys(_short_for(asked, view.names()), 1.0) or _same_meaning(names, asked)
    if not found:
        raise ExpressionError(f"run {view.id} has no metric {asked!r}; {_near(asked, view.names())}")
    if len(found) > 1:
        raise ExpressionError(f"{asked!r} may be {' or '.join(found)} here: give one of these names")
    [(name, factor)] = found.items()
    if factor is None:
        raise ExpressionError(f"{asked!r} is {name} here, whose numbers are not the same: ask for {name}")
    return name, factor


def _same_meaning(names: RunNames, asked: str) -> dict[str, float | None]:
    """Return names of the run with the meaning of another, each with the factor between them, None for none."""
    wanted = {(match.metric.id, match.evaluated): match.name.factor for match in recognise(asked).matches}
    found: dict[str, float | None] = {}
    for name in names.known if wanted else ():
        match = names.match(name)
        if match is not None and (match.metric.id, match.evaluated) in wanted:
            there, here = wanted[match.metric.id, match.evaluated], match.name.factor
            found[name] = None if not there or here is None else here / there
    return found


def _usage(function: str) -> str:
    if function == "at":
        return "at(METRIC, STEP)"
    return f"{function}(METRIC)" if function in POINTS else f"{function}(METRIC) or {function}(METRIC, LAST_POINTS)"


def _at(series: Series, step: float, call: Call) -> float:
    place = int(np.searchsorted(series.steps, step, "right")) - 1
    if place < 0:
        raise ExpressionError(f"{call}: the first point is at step {int(series.steps[0])}")
    return float(series.values[place])


def _aggregate(series: Series, call: Call, last: int | None) -> float:
    if last is not None and last < 1:
        raise ExpressionError(f"{call}: expected a number of points of at least 1")
    begin = 0 if last is None else max(0, len(series) - last)
    steps, values = series.steps[begin:].astype(float), series.values[begin:]
    finite = np.isfinite(values)
    if not finite.any():
        raise ExpressionError(f"{call}: none of {counted(len(values), 'value')} is finite")
    with np.errstate(over="ignore", invalid="ignore"):
        return AGGREGATES[call.function](steps[finite], values[finite])


def _short_for(asked: str, names: list[str]) -> list[str]:
    """Return the names of which one is a short form: without its family, or without ``/mean``."""
    return [name for name in names if f"/{name.removesuffix('/mean')}".endswith((f"/{asked}", f"/{asked}/mean"))]


def _near(name: str, names: list[str]) -> str:
    """Return names of the run that are similar to an unknown one: those with the same ending first."""
    last = name.rpartition("/")[2].lower()
    ending = [known for known in names if last and last in known.lower()]
    otherwise = f"it has {counted(len(names), 'metric')}"
    return did_you_mean(name, names, otherwise, also=ending, count=3, quoted=str)


def question_record(expression: str, found: Answer) -> dict[str, Any]:
    """Return the answer to a question, with the comparisons that it is made of."""
    parts = [{**asdict(part), "left": _plain(part.left), "right": _plain(part.right)} for part in found.parts]
    return {"expression": expression, "answer": found.holds, "comparisons": parts}


def _plain(value: object) -> object:
    return json_number(value) if isinstance(value, float) else value
