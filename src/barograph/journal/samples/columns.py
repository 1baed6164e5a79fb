"""The columns of samples beside their fixed fields (components of the reward, answers, and what the trainer added),
and conditions on them, as people write them: ``reward.format < 0.5 and correct = false``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from barograph.base import expressions
from barograph.base.expressions import ORDERS, Condition, Conditions
from barograph.base.model import Sample
from barograph.journal.samples.transcript import CALL, Turn, tool_calls, turns_of

if TYPE_CHECKING:
    from barograph.journal.samples.blocks import SampleBlock

Kind = Literal["number", "truth", "name"]

MAX_COLUMNS = 128  # of a block of samples; further ones can be read, but not searched

MAX_NAME_BYTES = 256  # of a text in a column; longer ones are found by a search of texts only

MAX_NAMES = 12  # that a summary lists

NAME_FIELDS = ("id", "answer", "reference", "discarded")


def columns_of(sample: Sample, turns: list[Turn]) -> Iterator[tuple[str, float | bool | str]]:
    """Yield the columns of a sample with their values; ``turns`` are those of its messages."""
    yield from ((f"reward.{name}", float(value)) for name, value in sample.rewards.items())
    for name in NAME_FIELDS:
        if (value := getattr(sample, name)) is not None:
            yield name, value
    if sample.messages:
        yield "turns", float(len(turns))
    calls = tool_calls(turns) + _calls_in(sample.completion)
    if (sample.messages or calls) and "tool_calls" not in sample.columns:
        yield "tool_calls", float(calls)
    if len(sample.tokens):
        yield "tokens", float(len(sample.tokens))
    yield from sample.columns.items()


def shown_columns(sample: Sample) -> dict[str, float | bool | str]:
    """Return the columns that the trainer added, and the number of calls of tools if there are any."""
    turns = turns_of(replace(sample, prompt="", completion="")) if sample.messages else []
    calls = tool_calls(turns) + _calls_in(sample.completion)
    return ({"tool_calls": calls} if calls else {}) | dict(sample.columns)


def _calls_in(completion: str) -> int:
    # Most completions have none, and the index is made of many: looking for the mark is quicker than making turns.
    return tool_calls(turns_of(Sample(completion=completion))) if CALL in completion else 0


def kind_of(value: float | bool | str) -> Kind:
    """Return the kind of a column that a value belongs to."""
    return "truth" if isinstance(value, bool) else "name" if isinstance(value, str) else "number"


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """What a column has: its kind, the range of its numbers, and the first of its names."""

    kind: Kind
    low: float | None = None
    high: float | None = None
    names: tuple[str, ...] = ()

    def with_numbers(self, values: NDArray[Any]) -> ColumnSummary:
        """Return the summary with further numbers; NaN is none."""
        finite = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        if not len(finite):
            return self
        low, high = float(finite.min()), float(finite.max())
        return replace(
            self,
            low=low if self.low is None else min(low, self.low),
            high=high if self.high is None else max(high, self.high),
        )

    def with_names(self, names: list[bytes]) -> ColumnSummary:
        """Return the summary with further names."""
        if len(self.names) >= MAX_NAMES:
            return self
        texts = (name.decode("utf-8", "surrogatepass") for name in names)
        return replace(self, names=tuple(dict.fromkeys((*self.names, *texts)))[:MAX_NAMES])


Flags = NDArray[np.bool_]

EXAMPLE = "reward.format < 0.5 and correct = false"

ALIASES = {"version": "weight_version", "finish": "finish_reason"}


def parse_conditions(text: str) -> Conditions:
    """Return the conditions on samples in a text; raise ExpressionError with what is expected."""
    return expressions.parse_conditions(text, EXAMPLE, ALIASES)


def mask(condition: Condition, block: SampleBlock) -> Flags:
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


def _equals(condition: Condition, block: SampleBlock, numbers: NDArray[Any], known: Flags) -> Flags:
    found: Flags = block.named(condition.name, condition.value.encode("utf-8", "surrogatepass"))
    if condition.number is not None and not condition.is_quoted:
        found = found | (known & (numbers == condition.number))
    return found


def _contains(condition: Condition, block: SampleBlock) -> Flags:
    wanted = condition.value.lower()
    texts = (name.decode("utf-8", "surrogatepass").lower() for name in block.names)
    matching = [number for number, text in enumerate(texts, 1) if wanted in text]
    found: Flags = np.isin(block.name_numbers(condition.name), matching)
    return found
