"""Conditions as people write them: ``status = running and actor.lr > 1e-6 and tag = sweep``.

The same expressions select runs and samples. Names and values that contain spaces or signs are quoted.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
QUOTED = r'"(?:[^"\\]|\\.)*"'
ONE = re.compile(
    rf"\s*(?P<name>{QUOTED}|[^\s=<>!~\"]+)\s*(?P<order><=|>=|!=|==|=|<|>|!~|~)\s*"
    rf"(?P<value>{QUOTED}|.*?)\s*(?:$|\band\b|&&|,(?=\s*[\w\"]))",
    re.DOTALL,
)
TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
NONE = ("none", "null")


@dataclass(frozen=True, slots=True)
class Condition:
    """A name, how its value is compared, and what with; ``number`` is the value as one, if it is one."""

    name: str
    order: str
    value: str
    number: float | None
    is_quoted: bool

    def __str__(self) -> str:
        return f"{self.name} {self.order} {self.value}"

    @property
    def asks_for_absence(self) -> bool:
        """Whether it is ``name = none`` or ``name != none``."""
        return self.value.lower() in NONE and not self.is_quoted and self.order in ("=", "!=")

    def holds(self, value: Any) -> bool:
        """Return whether a value fulfils the condition; None is an absent one, a list fulfils it by any element."""
        if self.asks_for_absence:
            return (value is None) == (self.order == "=")
        if value is None:
            return False
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


def parse_conditions(
    text: str, example: str = "status = running and actor.lr > 1e-6", aliases: Mapping[str, str] | None = None
) -> tuple[Condition, ...]:
    """Return the conditions in a text, joined by ``and``; raise ValueError with what is expected."""
    found, at = [], 0
    while text[at:].strip():
        match = ONE.match(text, at)
        if match is None or not match["value"]:
            raise ValueError(f"where: expected NAME < VALUE, joined by 'and', such as {example!r}; got {text[at:]!r}")
        found.append(_condition(match["name"], match["order"], match["value"], aliases or {}))
        at = match.end()
    return tuple(found)


def as_number(value: Any) -> float | None:
    """Return a value as a number, a truth as 0 or 1; None for what is none."""
    if isinstance(value, bool | int | float):
        return None if isinstance(value, float) and math.isnan(value) else float(value)
    return _number(value) if isinstance(value, str) else None


def _condition(name: str, order: str, value: str, aliases: Mapping[str, str]) -> Condition:
    plain = _unquoted(value)
    number = TRUTHS.get(plain.lower(), _number(plain))
    if order in ORDERS and number is None:
        raise ValueError(f"where: {order} compares numbers; got {plain!r}")
    bare = _unquoted(name)
    return Condition(aliases.get(bare, bare), "=" if order == "==" else order, plain, number, plain != value)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if len(text) > 1 and text[0] == text[-1] == '"' else text


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
