"""Tokens of a sample on a terminal: coloured by one of their values, with the most extreme ones as a list."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windsock.formatting import counted, number, printable
from windsock.model import Sample
from windsock.samples.token_sums import NEUTRAL, TokenSum, Values, all_values, nonfinite, shown_value

if TYPE_CHECKING:
    from rich.console import Console

EXTREMES = 10
ALTERNATIVES = 5
INDENT = 2
HIGH, LOW = (0, 114, 178), (213, 94, 0)  # for the largest and the smallest value
NONFINITE = "bold white on red"
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
    found = given[name]
    values: list[float] = found.tolist()
    marked = nonfinite(found, given.get("mask")).tolist()
    mask: list[float] = given["mask"].tolist() if "mask" in given else [1.0] * len(values)
    scale = Scale.of([value for value, counts in zip(values, mask, strict=True) if counts], NEUTRAL.get(name, 0.0))
    line = Text()
    for token, value, counts, is_marked in zip(sample.tokens, values, mask, marked, strict=True):
        style = NONFINITE if is_marked else scale.style(value) if counts else "dim"
        line.append(printable(token, newlines=True), style)
    console.print(f"{' ' * INDENT}{printable(name)}: {scale}", style="dim", markup=False)
    _print_nonfinite(console, given)
    console.print(line, soft_wrap=True)
    for place in extremes(values, mask, marked, NEUTRAL.get(name)):
        shown = printable(sample.tokens[place]).strip() or repr(sample.tokens[place])
        likely = alternatives(sample, place)
        console.print(f"{' ' * INDENT}{number(values[place]):>10}  {shown}  (token {place:,}){likely}", markup=False)


def _print_nonfinite(console: Console, given: Mapping[str, Values]) -> None:
    """Print of how many tokens each value is NaN or infinite."""
    counts = {name: int(nonfinite(values, given.get("mask")).sum()) for name, values in given.items()}
    shown = ", ".join(f"{printable(name)} {count:,}" for name, count in counts.items() if count)
    if shown:
        line = f"{' ' * INDENT}tokens with NaN or ±Inf: {shown}"
        console.print(line, style="bold red", markup=False, soft_wrap=True)


def alternatives(sample: Sample, place: int) -> str:
    """Return the most likely tokens at a place with their probabilities, if they are known."""
    known = sample.top_logprobs[place][:ALTERNATIVES] if len(sample.top_logprobs) else ()
    shown = (f"{printable(text).strip() or repr(text)} {math.exp(min(value, 0.0)):.2g}" for text, value in known)
    return f"  of {', '.join(shown)}" if known else ""


def print_token_sums(console: Console, name: str, sums: Sequence[TokenSum], count: int | None) -> None:
    """Print the first sums of a value of tokens, all of them without a count."""
    listed = sums[:count]
    console.print(f"{'share':>8}{'sum':>12}{'mean':>12}{'count':>10}  token", style="dim", markup=False)
    for entry in listed:
        text = printable(entry.text).strip() or repr(entry.text)
        share = "–" if entry.share is None else f"{entry.share:.1%}"
        columns = f"{share:>8}{number(entry.sum):>12}{number(entry.mean):>12}{entry.count:>10,}"
        console.print(f"{columns}  {text}", markup=False)
    more = f", {len(listed):,} shown (-n 0 shows all)" if len(listed) < len(sums) else ""
    console.print(f"{printable(name)} of {counted(len(sums), 'different token')}{more}", style="dim", markup=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """Colours of values from low to high, with none at the neutral value; on one side of it there is one colour."""

    low: float
    high: float
    neutral: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float], neutral: float = 0.0) -> Scale:
        """Return the scale of some values; a few at each end have the full colour, unless they are all that differs."""
        finite = sorted(value for value in values if math.isfinite(value))
        if not finite:
            return cls(math.nan, math.nan)
        most = int(CLIPPED * len(finite))
        cut = most if finite[most] < finite[-1 - most] else 0
        return cls(finite[cut], finite[-1 - cut], neutral)

    def __str__(self) -> str:
        """Return its range."""
        if self.low < self.high:
            return f"{number(self.low)} to {number(self.high)}"
        return number(self.low) if self.low == self.high else "no finite value"

    def strength(self, value: float) -> float:
        """Return the strength of a value's colour, from -1 to 1."""
        low, high = self.low - self.neutral, self.high - self.neutral
        if math.isnan(value) or not low < high:
            return 0.0
        if low < 0 < high:
            return max(-1.0, min(1.0, (value - self.neutral) / max(-low, high)))
        share = max(0.0, min(1.0, (value - self.low) / (high - low)))
        return share if high > 0 else share - 1

    def style(self, value: float) -> str:
        """Return the style of a token with this value."""
        strength = self.strength(value)
        if abs(strength) < 0.08:
            return ""
        red, green, blue = (round(abs(strength) * colour) for colour in (HIGH if strength > 0 else LOW))
        return f"white on rgb({red},{green},{blue})"


def extremes(
    values: Sequence[float], mask: Sequence[float], marked: Sequence[bool], neutral: float | None = None
) -> list[int]:
    """Return the places of the most extreme values, of tokens that count: first those that are ``marked``.

    The others are the farthest from the neutral value, else from their median; none of them if all are equal.
    """
    places = [place for place, value in enumerate(values) if mask[place] and math.isfinite(value)]
    ordered = sorted(values[place] for place in places)
    first = [place for place, is_marked in enumerate(marked) if is_marked]
    if not places or ordered[0] == ordered[-1]:
        return first[:EXTREMES]
    middle = ordered[(len(places) - 1) // 2] if neutral is None else neutral
    far = sorted((place for place in places if values[place] != middle), key=lambda place: -abs(values[place] - middle))
    return [*first, *far][:EXTREMES]
