"""Guesses about names that no source knows: unit and direction, from the form of the name where that is safe."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_RULES: tuple[tuple[str, str, str, str], ...] = (
    # The first expression that fits decides: family, unit and the better direction.
    (r"(tokens|tok)(_per_|/)(sec(ond)?|s)$|(^|[/_])tps$", "system", "tokens/s", "higher"),
    (r"samples(_per_|/)(sec(ond)?|s)$", "system", "samples/s", "higher"),
    (r"(_per_|/)(sec(ond)?|s)$", "system", "", "higher"),
    (r"(^|[/_.])(ms|milliseconds)$", "time", "ms", "none"),
    (r"^(time|timing|timing_s|timeperf)/|(^|[/_.])(s|sec|secs|seconds|time)$", "time", "seconds", "none"),
    (r"(^|[/_.])(gb|gib)$", "memory", "GiB", "none"),
    (r"(^|[/_.])(mb|mib)$", "memory", "MiB", "none"),
    (r"(^|[/_.])bytes$", "memory", "bytes", "none"),
    (r"(^|[/_.])(frac|fraction)$", "", "fraction", "none"),
    (r"(^|[/_.])(pct|percent)$", "", "percent", "none"),
    (r"(^|[/_.])(count|num|total)$|(^|[/_.])(num|n)_\w+$", "", "count", "none"),
    (r"(^|[/_.])(loss)(/(mean|avg))?$", "", "", "lower"),
    (r"(^|[/_.])(accuracy|acc)(/(mean|avg))?$", "", "fraction", "higher"),
    (r"(^|[/_.])(reward|score|return)(/(mean|avg))?$", "reward", "reward", "higher"),
)
_COMPILED = [(re.compile(expression), family, unit, better) for expression, family, unit, better in _RULES]


@dataclass(frozen=True, slots=True)
class Guess:
    """What the form of a name suggests; empty where it suggests nothing. It is shown as guessed, and never judged."""

    family: str
    unit: str
    direction: str


@lru_cache(maxsize=1 << 14)
def guess(name: str) -> Guess | None:
    """Return what the form of a name suggests, or None."""
    for expression, family, unit, direction in _COMPILED:
        if expression.search(name.lower()):
            return Guess(family, unit, direction)
    return None
