"""The columns of samples beside their fixed fields: components of the reward, answers, and what the trainer added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from windsock.model import Sample
from windsock.samples.transcript import CALL, Turn, tool_calls, turns_of

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
