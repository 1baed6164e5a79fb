"""Tokens of a sample on a terminal: coloured by one of their values, with the most extreme ones as a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windsock.formatting import number, printable
from windsock.model import Sample

if TYPE_CHECKING:
    from rich.console import Console

PREFERRED = ("entropy", "advantage", "log_prob")
EXTREMES = 10
INDENT = 2
HIGH, LOW = (0, 114, 178), (213, 94, 0)  # for the largest and the smallest value
CLIPPED = 0.02  # share of the values at each end that have the full colour


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """The value that colours tokens; None for the first of the preferred ones."""

    value: str | None = None

    def name(self, sample: Sample) -> str | None:
        """Return the value of a sample to show, if it has it."""
        names = (self.value,) if self.value is not None else (*PREFERRED, *sample.token_values)
        return next((name for name in names if name in sample.token_values), None)


def print_tokens(console: Console, sample: Sample, choice: TokenChoice) -> None:
    """Print the tokens of a sample, coloured, and the ten most extreme."""
    from rich.text import Text

    name = choice.name(sample)
    if name is None:
        has = ", ".join(sample.token_values) or "none"
        wanted = "values of tokens" if choice.value is None else f"value {choice.value!r} of tokens"
        console.print(f"{' ' * INDENT}no {printable(wanted)}; it has {printable(has)}", style="dim", markup=False)
        return
    values = sample.token_values[name]
    mask = sample.token_values.get("mask", [1.0] * len(values))
    scale = Scale.of(values)
    line = Text()
    for token, value, counts in zip(sample.tokens, values, mask, strict=True):
        line.append(printable(token, newlines=True), scale.style(value) if counts else "dim")
    console.print(f"{' ' * INDENT}{printable(name)}: {number(scale.low)} to {number(scale.high)}", style="dim")
    console.print(line, soft_wrap=True)
    for place in extremes(values, mask):
        shown = printable(sample.tokens[place]).strip() or repr(sample.tokens[place])
        console.print(f"{' ' * INDENT}{number(values[place]):>10}  {shown}  (token {place:,})", markup=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """Colours of values: from low over nothing to high; of values without a sign, from nothing to high."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Scale:
        """Return the scale of some values; a few at each end have the full colour."""
        finite = sorted(value for value in values if math.isfinite(value))
        if not finite:
            return cls(0.0, 0.0)
        cut = int(CLIPPED * len(finite))
        return cls(finite[cut], finite[-1 - cut])

    def strength(self, value: float) -> float:
        """Return the strength of a value's colour, from -1 to 1."""
        if math.isnan(value) or self.high == self.low:
            return 0.0
        if self.low < 0 < self.high:
            return max(-1.0, min(1.0, value / max(-self.low, self.high)))
        share = (value - self.low) / (self.high - self.low)
        return max(0.0, min(1.0, share)) if self.high > 0 else -max(0.0, min(1.0, 1 - share))

    def style(self, value: float) -> str:
        """Return the style of a token with this value."""
        strength = self.strength(value)
        if abs(strength) < 0.08:
            return ""
        red, green, blue = (round(abs(strength) * colour) for colour in (HIGH if strength > 0 else LOW))
        return f"white on rgb({red},{green},{blue})"


def extremes(values: Sequence[float], mask: Sequence[float]) -> list[int]:
    """Return the places of the values that are farthest from their median, among the tokens that count."""
    places = [place for place, value in enumerate(values) if mask[place] and math.isfinite(value)]
    if not places:
        return []
    middle = sorted(values[place] for place in places)[(len(places) - 1) // 2]
    return sorted(places, key=lambda place: -abs(values[place] - middle))[:EXTREMES]
