"""Conditions on the columns of samples, as people write them: ``reward.format < 0.5 and correct = false``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from windsock import conditions
from windsock.conditions import ORDERS, Condition, Conditions

if TYPE_CHECKING:
    from windsock.samples.blocks import Block

Flags = NDArray[np.bool_]
EXAMPLE = "reward.format < 0.5 and correct = false"
ALIASES = {"version": "weight_version", "finish": "finish_reason"}


def parse_conditions(text: str) -> Conditions:
    """Return the conditions on samples in a text; raise ExpressionError with what is expected."""
    return conditions.parse_conditions(text, EXAMPLE, ALIASES)


def mask(condition: Condition, block: Block) -> Flags:
    """Return which samples of a block fulfil a condition."""
    numbers, known = block.numbers(condition.name)
    if condition.order in ORDERS:
        with np.errstate(invalid="ignore"):
            found: Flags = known & ORDERS[condition.order](numbers, condition.number)
        return found
    if condition.asks_for_absence:
        has = block.has(condition.name)
        return has if condition.order == "!=" else ~has
    is_part = condition.order.endswith("~")
    equal = _contains(condition, block) if is_part else _equals(condition, block, numbers, known)
    return block.has(condition.name) & ~equal if condition.order.startswith("!") else equal


def _equals(condition: Condition, block: Block, numbers: NDArray[Any], known: Flags) -> Flags:
    found: Flags = block.named(condition.name, condition.value.encode("utf-8", "surrogatepass"))
    if condition.number is not None and not condition.is_quoted:
        found = found | (known & (numbers == condition.number))
    return found


def _contains(condition: Condition, block: Block) -> Flags:
    wanted = condition.value.lower()
    texts = (name.decode("utf-8", "surrogatepass").lower() for name in block.names)
    matching = [number for number, text in enumerate(texts, 1) if wanted in text]
    found: Flags = np.isin(block.name_numbers(condition.name), matching)
    return found
