"""Rows of names and values, as JSON lines and tables have them.

Which of them are step, time, rank and split; and rows put together from values that a log has one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barograph.importers.reading.values import STEP_NAMES, TIME_NAMES, as_step, as_time, flat_numbers, text_number
from barograph.importers.recorder import Recorder

SAME_ROW_SECONDS = 1.0  # between the values of one row

RecordRow = Callable[[dict[str, float], int, float | None, float | None], object]
"""Called with the values of a row, its step, its first time and its last time."""


class StepRows:
    """Collects the values of one step that were logged at the same time; each of them is there once."""

    def __init__(self, record: RecordRow) -> None:
        self._record = record
        self._values: dict[str, float] = {}
        self._step = 0
        self._first: float | None = None
        self._last: float | None = None

    def add(self, at: float | None, step: int, names: Sequence[str], values: Sequence[float]) -> None:
        """Add values of a step; record the row before, if they are not of the same."""
        known = self._values
        if known and (
            step != self._step
            or not known.keys().isdisjoint(names)
            or (at is not None and self._first is not None and at - self._first > SAME_ROW_SECONDS)
        ):
            self.end()
        if not self._values:
            self._step, self._first = step, at
        self._values.update(zip(names, values, strict=True))
        self._last = at

    def end(self) -> None:
        """Record the row."""
        if self._values:
            values, self._values = self._values, {}
            self._record(values, self._step, self._first, self._last)


RANKS = ("rank", "global_rank", "process_index", "local_rank", "dp_rank")

SPLITS = ("split", "phase", "mode", "stage", "set")

EVALUATIONS = frozenset({"eval", "evaluation", "val", "valid", "validation", "test"})

PLACES = frozenset({*STEP_NAMES, *RANKS})

CONFIGS = ("config", "hparams", "hyperparameters")

INNER = ("metrics", "data", "logs", "values")  # objects that have the values of a row

OF_TOTAL = "global_step/max_steps"  # ms-swift: "12/100"

TEXTS = frozenset({
    "prompt", "completion", "messages", "conversations", "response", "instruction", "text", "question", "answer",
    "content", "input", "output", "chosen", "rejected",
})  # fmt: skip
"""Names of the texts in data sets, which are no rows of metrics."""

MAX_PLANS = 1000

MAX_SHORT = 32

OTHER_RANK = "a row of another rank is left out: the log has several rows per step, and ranks are not merged"


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the names of a row are, for all rows that have the same."""

    steps: tuple[str, ...]
    times: tuple[str, ...]
    rank: str
    split: str
    configs: tuple[str, ...]
    inner: str


class MetricRows:
    """Records rows. ``state`` is what the next reader needs, as JSON."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def record(self, row: Mapping[str, Any], where: str, out: Recorder, at: float | None = None) -> bool:
        """Record a row; return whether it has values. ``at`` is its time, if it has none itself."""
        plan = self._plan(tuple(row))
        rest = dict(row)
        if (plan.rank or "role" in row) and self._is_of_other_rank(rest, plan.rank):
            out.unread(where, OTHER_RANK)
            return False
        step = _take_step(rest, plan, out)
        at = _take_time(rest, plan, out, at)
        for name in plan.configs:
            if isinstance(rest[name], Mapping):
                out.config(rest.pop(name))
        values = _values(rest, plan, out)
        if not values:
            out.unread(where, "a row without numbers")
            return False
        out.row(values, step, at)
        return True

    def _plan(self, names: tuple[str, ...]) -> _Plan:
        plan = self._plans.get(names)
        if plan is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            plan = self._plans[names] = _plan_of(names)
        return plan

    def _is_of_other_rank(self, rest: dict[str, Any], name: str) -> bool:
        """Return whether a row is not of the rank that its role began with."""
        rank, role = as_step(rest.get(name)) if name else None, rest.get("role")
        if rank is None:
            return False
        del rest[name]
        ranks: dict[str, int] = self._state.setdefault("ranks", {})
        return ranks.setdefault(role if isinstance(role, str) else "", rank) != rank


def _plan_of(names: tuple[str, ...]) -> _Plan:
    known = {*STEP_NAMES, *TIME_NAMES, *RANKS, *SPLITS, *CONFIGS, *INNER, "role"}
    inner = next((name for name in INNER if name in names), "")
    return _Plan(
        steps=tuple(name for name in (*STEP_NAMES, OF_TOTAL) if name in names),
        times=tuple(name for name in TIME_NAMES if name in names),
        rank=next((name for name in RANKS if name in names), ""),
        split=next((name for name in SPLITS if name in names), ""),
        configs=tuple(name for name in CONFIGS if name in names),
        inner=inner if known.issuperset(names) else "",
    )


def _take_step(rest: dict[str, Any], plan: _Plan, out: Recorder) -> int | None:
    """Take the step out of a row."""
    for name in plan.steps:
        value = rest[name]
        step = as_step(value.partition("/")[0] if name == OF_TOTAL and isinstance(value, str) else value)
        if step is not None:
            del rest[name]
            out.note(f"steps are read from {name!r}")
            return step
    if not plan.steps:
        for name, inner in rest.items():
            if isinstance(inner, Mapping) and (step := as_step(inner.get("step"))) is not None:
                out.note(f"steps are read from '{name}/step'")
                rest[name] = {key: value for key, value in inner.items() if key != "step"}
                return step
    return None


def _take_time(rest: dict[str, Any], plan: _Plan, out: Recorder, at: float | None) -> float | None:
    """Take the time out of a row."""
    for name in plan.times:
        found = as_time(rest[name])
        if found is not None:
            del rest[name]
            out.note(f"times are read from {name!r}")
            return found
    return at


def _values(rest: dict[str, Any], plan: _Plan, out: Recorder) -> dict[str, float | None]:
    split = rest.get(plan.split) if plan.split else None
    if plan.inner and isinstance(rest.get(plan.inner), Mapping):
        rest |= rest.pop(plan.inner)
    values = flat_numbers(rest)
    if isinstance(split, str) and split.lower() in EVALUATIONS:
        out.note(f"values of rows whose {plan.split!r} is {split!r} have it before their names")
        return {f"{split}/{name}": value for name, value in values.items()}
    return values


def is_metric_row(row: Mapping[str, Any]) -> bool:
    """Return whether a row has values of metrics, and is not one of a data set."""
    if any(name in TEXTS and isinstance(value, str | list | dict) for name, value in row.items()):
        return False
    others = {name: value for name, value in row.items() if not (name in PLACES or _is_time(name, value))}
    numbers = flat_numbers(others)
    texts = sum(_is_text(name, value) for name, value in others.items())
    return bool(numbers) and texts <= len(numbers)


def _is_time(name: str, value: Any) -> bool:
    return name in TIME_NAMES and as_time(value) is not None


def _is_text(name: str, value: Any) -> bool:
    if isinstance(value, str):
        is_short = len(value) <= MAX_SHORT and value[:1].isdigit()  # a duration, a percentage
        return not is_short and name not in SPLITS and name != "role" and text_number(value) is None
    return isinstance(value, list) and any(isinstance(entry, str | dict) for entry in value)


def has_place(row: Mapping[str, Any]) -> bool:
    """Return whether a row tells its step or its time."""
    inner = [value for value in row.values() if isinstance(value, Mapping)]
    return any(
        any(as_step(one.get(name)) is not None for name in STEP_NAMES)
        or any(as_time(one.get(name)) is not None for name in TIME_NAMES)
        or OF_TOTAL in one
        for one in (row, *inner)
    )


def has_fractions(row: Mapping[str, Any]) -> bool:
    """Return whether a value of a row is no whole number: metrics mostly have one, ids and labels have none."""
    return any(value is not None and as_step(value) is None for value in flat_numbers(row).values())
