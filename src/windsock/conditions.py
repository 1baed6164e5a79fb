"""Conditions as people write them: ``status = running and actor.lr > 1e-6 and tag = sweep``.

The same expressions select runs and samples; ``windsock.expressions`` reads them.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windsock.errors import ExpressionError
from windsock.expressions import Comparison, Expression, Word, comparisons, evaluate, parse, to_number

ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
NONE = ("none", "null")
LAST_JOINER = re.compile(r"(?:\band|&&|,)\s*$")  # a person may still be typing


@dataclass(frozen=True, slots=True)
class Condition:
    """A name, how its value is compared, and what with; ``number`` is the value as one, if it is one."""

    name: str
    order: str
    value: str
    number: float | None
    is_quoted: bool
    asks_for_absence: bool = field(init=False)
    """Whether it is ``name = none`` or ``name != none``."""

    def __post_init__(self) -> None:
        is_absence = self.value.lower() in NONE and not self.is_quoted and self.order in ("=", "!=")
        object.__setattr__(self, "asks_for_absence", is_absence)

    def __str__(self) -> str:
        return f"{self.name} {self.order} {self.value}"

    def holds(self, value: Any) -> bool:
        """Return whether a value fulfils the condition; None is an absent one, a list fulfils it by any element."""
        if self.asks_for_absence:
            return (value is None) == (self.order == "=")
        if value is None:
            return False
        if type(value) is float and self.order in ORDERS:  # most values of a table; no order holds for NaN
            return bool(ORDERS[self.order](value, self.number))
        values = value if isinstance(value, list | tuple) else (value,)
        if self.order.startswith("!"):
            return not any(self._is_like(one) for one in values)
        return any(self._is_like(one) for one in values)

    def _is_like(self, value: Any) -> bool:
        if self.order in ORDERS:
            number = as_number(value)
            return number is not None and bool(ORDERS[self.order](number, self.number))
        if self.order.endswith("~"):
            return self.value.lower() in str(value).lower()
        if str(value) == self.value:
            return True
        return self.number is not None and not self.is_quoted and as_number(value) == self.number


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions that are joined by ``and``, ``or``, ``not`` and parentheses; without an expression, none."""

    expression: Expression | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    def parts(self) -> list[Condition]:
        """Return all conditions, however they are joined."""
        return [self._condition(one) for one in (comparisons(self.expression) if self.expression is not None else ())]

    def names(self) -> set[str]:
        """Return the names that the conditions are about."""
        return {condition.name for condition in self.parts()}

    def evaluate(self, holds: Callable[[Condition], Any]) -> Any:
        """Return whether they hold; ``holds`` returns it for one, as truth value or array of them."""
        return True if self.expression is None else evaluate(self.expression, lambda one: holds(self._condition(one)))

    def _condition(self, comparison: Comparison) -> Condition:
        left, value = comparison.left, comparison.right
        assert isinstance(left, Word)  # no function is allowed here
        assert isinstance(value, Word)
        if comparison.order in ORDERS and value.number is None:
            raise ExpressionError(f"{comparison.order} compares numbers; got {value.text!r}")
        name = self.aliases.get(left.text, left.text)
        return Condition(name, comparison.order, value.text, value.number, value.is_quoted)


def parse_conditions(
    text: str, example: str = "status = running and actor.lr > 1e-6", aliases: Mapping[str, str] | None = None
) -> Conditions:
    """Return the conditions in a text; raise ExpressionError with what is expected."""
    text = LAST_JOINER.sub("", text)
    if not text.strip():
        return Conditions()
    try:
        found = Conditions(parse(text), aliases or {})
        found.parts()  # raises where one is not a condition
    except ExpressionError as problem:
        raise ExpressionError(f"where: {problem}; an example is {example!r}") from None
    return found


def as_number(value: Any) -> float | None:
    """Return a value as a number, a truth as 0 or 1; None for what is none."""
    if isinstance(value, bool | int | float):
        return None if isinstance(value, float) and math.isnan(value) else float(value)
    return to_number(value) if isinstance(value, str) else None
