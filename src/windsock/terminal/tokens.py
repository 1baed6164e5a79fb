"""Tokens of a sample on a terminal: coloured by one of their values, with the most extreme ones as a list."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windsock.formatting import number, printable
from windsock.model import Sample
from windsock.samples.token_sums import Values, all_values, shown_value, token_sums

if TYPE_CHECKING:
    from rich.console import Console

EXTREMES = 10
ALTERNATIVES = 5
SUMS = 30  # tokens with the largest sums
INDENT = 2
HIGH, LOW = (0, 114, 178), (213, 94, 0)  # for the largest and the smallest value
CLIPPED = 0.02  # share of the values at each end that have the full colour


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """The value that colours tokens; None for the first that tells them apart, as on the page."""

    value: str | None = None

    def name(self, values: Mapping[str, Values]) -> str | None:
        """Return the name of the value to show, if it is there."""
        return shown_value(values) if self.value is None else self.value if self.value in values else None


def print_tokens(console: Console, sample: Sample, choice: TokenChoice) -> None:
    """Print the tokens of a sample, coloured, and the ten most extreme."""
    from rich.text import Text

    given = all_values(sample.token_values)
    name = choice.name(given)
    if name is None:
        has = ", ".join(given) or "none"
        wanted = "values of tokens" if choice.value is None else f"value {choice.value!r} of tokens"
        console.print(f"{' ' * INDENT}no {printable(wanted)}; it has {printable(has)}", style="dim", markup=False)
        return
    values: list[float] = given[name].tolist()
    mask: list[float] = given["mask"].tolist() if "mask" in given else [1.0] * len(values)
    scale = Scale.of([value for value, counts in zip(values, mask, strict=True) if counts])
    line = Text()
    for token, value, counts in zip(sample.tokens, values, mask, strict=True):
        line.append(printable(token, newlines=True), scale.style(value) if counts else "dim")
    span = f"{number(scale.low)} to {number(scale.high)}" if scale.low < scale.high else number(scale.low)
    console.print(f"{' ' * INDENT}{printable(name)}: {span}", style="dim", markup=False)
    console.print(line, soft_wrap=True)
    for place in extremes(values, mask):
        shown = printable(sample.tokens[place]).strip() or repr(sample.tokens[place])
        likely = alternatives(sample, place)
        console.print(f"{' ' * INDENT}{number(values[place]):>10}  {shown}  (token {place:,}){likely}", markup=False)


def alternatives(sample: Sample, place: int) -> str:
    """Return the most likely tokens at a place with their probabilities, if they are known."""
    known = sample.top_logprobs[place][:ALTERNATIVES] if len(sample.top_logprobs) else ()
    shown = (f"{printable(text).strip() or repr(text)} {math.exp(min(value, 0.0)):.2g}" for text, value in known)
    return f"  of {', '.join(shown)}" if known else ""


def print_token_sums(console: Console, samples: Iterable[Sample], choice: TokenChoice) -> None:
    """Print the tokens of some samples that have the largest sums of a value."""
    listed = list(samples)
    named = (choice.name(all_values(sample.token_values)) for sample in listed)
    name = next((name for name in named if name is not None), None)
    if name is None:
        names = {name for sample in listed for name in all_values(sample.token_values)}
        console.print(
            f"no such values of tokens; there are {printable(', '.join(sorted(names)) or 'none')}", style="dim"
        )
        return
    console.print(f"{printable(name):>12}{'mean':>12}{'count':>10}  token", style="dim", markup=False)
    for entry in token_sums(((sample, "") for sample in listed), name)[:SUMS]:
        shown = printable(entry.text).strip() or repr(entry.text)
        console.print(f"{number(entry.sum):>12}{number(entry.mean):>12}{entry.count:>10,}  {shown}", markup=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """Colours of values: from low over nothing to high; of values without a sign, from nothing to high."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Scale:
        """Return the scale of some values; a few at each end have the full colour, unless they are all that differs."""
        finite = sorted(value for value in values if math.isfinite(value))
        if not finite:
            return cls(0.0, 0.0)
        most = int(CLIPPED * len(finite))
        cut = most if finite[most] < finite[-1 - most] else 0
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
    """Return the places of values farthest from their median, of tokens that count; none if all values are equal."""
    places = [place for place, value in enumerate(values) if mask[place] and math.isfinite(value)]
    if not places:
        return []
    ordered = sorted(values[place] for place in places)
    if ordered[0] == ordered[-1]:
        return []
    middle = ordered[(len(places) - 1) // 2]
    return sorted(places, key=lambda place: -abs(values[place] - middle))[:EXTREMES]
