"""Suggestions for a name that no source knows: known names that are similar, by the groups of three letters that they
share, and a guess of unit and direction from its form, where that is safe.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest

from barograph.catalogue.registry import REGISTRY

_PLACEHOLDER = re.compile(r"\{\w+\}")

_SEPARATORS = re.compile(r"[^a-z0-9/]")

_ENOUGH = 0.12  # similarity from which on a name is shown


def nearest(name: str, count: int = 5) -> list[str]:
    """Return known names that are similar to a name, the closest first."""
    # The version is part of the caches' keys: ``define`` adds names.
    return list(_nearest(name, count, REGISTRY.version))


@lru_cache(maxsize=1 << 12)
def _nearest(name: str, count: int, version: int) -> tuple[str, ...]:
    return tuple(_index(version).nearest(name, count))


@lru_cache(maxsize=1)
def _index(version: int) -> _Index:
    return _Index(dict.fromkeys(entry.name.pattern for entry in REGISTRY.entries()))


class _Index:
    """Known names by their groups of letters. Rare groups say more, so they weigh more."""

    def __init__(self, names: dict[str, None]) -> None:
        self._groups = {name: _groups(name) for name in names}
        counts = Counter(group for groups in self._groups.values() for group in groups)
        self._weights = {group: math.log((len(names) + 1) / times) for group, times in counts.items()}
        self._unseen = math.log(len(names) + 1)
        self._names: dict[str, list[str]] = defaultdict(list)
        for name, groups in self._groups.items():
            for group in groups:
                self._names[group].append(name)
        self._totals = {name: sum(map(self._weights.__getitem__, groups)) for name, groups in self._groups.items()}

    def nearest(self, name: str, count: int) -> list[str]:
        groups = _groups(name)
        total = sum(self._weights.get(group, self._unseen) for group in groups)
        shared: dict[str, float] = defaultdict(float)
        for group in groups & self._weights.keys():
            for known in self._names[group]:
                shared[known] += self._weights[group]
        scores = {known: both / (total + self._totals[known] - both) for known, both in shared.items()}
        # A name that ends with the wanted one was meant, whatever its family.
        best = nlargest(
            count, scores, key=lambda known: (known.endswith(f"/{name}"), scores[known], -len(known), known)
        )
        return [known for known in best if scores[known] >= _ENOUGH]


def _groups(name: str) -> set[str]:
    # Without underscores, since one framework's policykl is the policy_kl of another.
    letters = f"/{_SEPARATORS.sub('', _PLACEHOLDER.sub('', name.lower()))}/"
    return {letters[place : place + 3] for place in range(len(letters) - 2)}


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
