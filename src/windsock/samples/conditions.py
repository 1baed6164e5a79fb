"""Conditions on the columns of samples, as people write them: ``reward.format < 0.5 and correct = false``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from windsock.samples.blocks import Block

Flags = NDArray[np.bool_]
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
EXAMPLE = "reward.format < 0.5 and correct = false"
ALIASES = {"version": "weight_version", "finish": "finish_reason"}


@dataclass(frozen=True, slots=True)
class Condition:
    """A column, how it is compared, and what with; ``number`` is the value as one, if it is one."""

    name: str
    order: str
    value: str
    number: float | None
    is_quoted: bool

    def __str__(self) -> str:
        return f"{self.name} {self.order} {self.value}"

    def mask(self, block: Block) -> Flags:
        """Return which samples of a block fulfil the condition."""
        numbers, known = block.numbers(self.name)
        if self.order in ORDERS:
            with np.errstate(invalid="ignore"):
                found: Flags = known & ORDERS[self.order](numbers, self.number)
            return found
        if self.value.lower() in NONE and not self.is_quoted and self.order in ("=", "!="):
            has = block.has(self.name)
            return has if self.order == "!=" else ~has
        equal = self._contains(block) if self.order in ("~", "!~") else self._equals(block, numbers, known)
        return block.has(self.name) & ~equal if self.order.startswith("!") else equal

    def _equals(self, block: Block, numbers: NDArray[Any], known: Flags) -> Flags:
        found = block.named(self.name, self.value.encode("utf-8", "surrogatepass"))
        return found if self.number is None or self.is_quoted else found | (known & (numbers == self.number))

    def _contains(self, block: Block) -> Flags:
        wanted = self.value.lower()
        texts = (name.decode("utf-8", "surrogatepass").lower() for name in block.names)
        matching = [number for number, text in enumerate(texts, 1) if wanted in text]
        found: Flags = np.isin(block.name_numbers(self.name), matching)
        return found


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Return the conditions in a text, joined by ``and``; raise ValueError with what is expected."""
    found, at = [], 0
    while text[at:].strip():
        match = ONE.match(text, at)
        if match is None or not match["value"]:
            raise ValueError(f"where: expected NAME < VALUE, joined by 'and', such as {EXAMPLE!r}; got {text[at:]!r}")
        found.append(_condition(match["name"], match["order"], match["value"]))
        at = match.end()
    return tuple(found)


def _condition(name: str, order: str, value: str) -> Condition:
    plain = _unquoted(value)
    number = TRUTHS.get(plain.lower(), _number(plain))
    if order in ORDERS and number is None:
        raise ValueError(f"where: {order} compares numbers; got {plain!r}")
    bare = _unquoted(name)
    return Condition(ALIASES.get(bare, bare), "=" if order == "==" else order, plain, number, plain != value)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if len(text) > 1 and text[0] == text[-1] == '"' else text


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
