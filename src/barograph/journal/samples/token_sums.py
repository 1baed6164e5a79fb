"""Values of tokens that follow from those that were given, and sums of them over the samples of a step.

A value that is not finite is shown and summed as it is, where its token counts. Without a mask NaN is a value that is
not known, such as that of a prompt's token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heapreplace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.model import Sample
from barograph.metrics.formulas.channels import kl_k3

Values = NDArray[np.float32]
LOG_PROB = ("log_prob", "log_probs", "logprob", "logprobs")
OLD = ("old", "old_log_prob", "old_log_probs")
ROLLOUT = ("rollout", "rollout_log_prob", "rollout_log_probs")
REFERENCE = ("reference", "ref", "ref_log_prob", "ref_log_probs", "reference_log_prob")
NEUTRAL = {
    "ratio": 1.0,
    **dict.fromkeys(("push", "gradient", "mismatch", "kl", "surprise", "advantage", "entropy", "clipped"), 0.0),
    **dict.fromkeys((*LOG_PROB, *OLD, *ROLLOUT, *REFERENCE), 0.0),
}
"""The neutral value, by name: it has no colour, and sums and extremes measure the distance from it."""
MAX_PLACES = 20  # of a token that a sum knows
ABOUT_THE_SAME = 0.02  # of the largest: before the first update the ratio is 1 but for rounding


def all_values(given: Mapping[str, Sequence[float]]) -> dict[str, Values]:
    """Return the values that were given and those that follow from several of them, which come first.

    ``gradient`` is the derivative of advantage x ratio by the logit of the token, 0 where the loss clips it.
    ``mismatch`` is of the policy that sampled: an update moves the newest log-probs away from the rollout engine's.
    ``kl`` (k3, to the reference) and ``surprise`` are of the newest policy that is known. The page computes the same.
    """
    arrays = {name: np.asarray(given[name], np.float32) for name in given}
    log_prob, old, rollout, reference = (_first(arrays, names) for names in (LOG_PROB, OLD, ROLLOUT, REFERENCE))
    newest = log_prob if log_prob is not None else old
    any_known = newest if newest is not None else rollout
    with np.errstate(all="ignore"):
        ratio = arrays.get("ratio", _combined(log_prob, old, lambda now, then: np.exp(now - then)))
        push = _combined(arrays.get("advantage"), ratio, np.multiply)
        gradient = _combined(push, log_prob, lambda push, now: push * -np.expm1(np.minimum(now, 0.0)))
        if gradient is not None and "clipped" in arrays:
            gradient[arrays["clipped"] > 0] = 0.0
        found = {
            "push": push,
            "gradient": gradient,
            "mismatch": _combined(old if old is not None else log_prob, rollout, np.subtract),
            "kl": _combined(reference, newest, lambda then, now: kl_k3(then - now)),
            "surprise": None if any_known is None else -any_known,
            "ratio": ratio,
        }
    return {name: values for name, values in (found | arrays).items() if values is not None}


def shown_value(values: Mapping[str, Values]) -> str | None:
    """Return the value to show where none is asked for: the first that is not about the same for all tokens."""
    mask = values.get("mask")
    return next((name for name in values if _varies(values[name], mask)), next(iter(values), None))


def nonfinite(values: Values, mask: Values | None) -> NDArray[np.bool_]:
    """Return which tokens have a value that is not finite; without a mask NaN is not known."""
    return np.isinf(values) if mask is None else ~np.isfinite(values) & (mask != 0)


def _varies(values: Values, mask: Values | None) -> bool:
    counted = values[np.isfinite(values) if mask is None else np.isfinite(values) & (mask != 0)]
    low, high = (float(counted.min()), float(counted.max())) if len(counted) else (0.0, 0.0)
    return high - low > ABOUT_THE_SAME * max(abs(low), abs(high))


def _first(arrays: Mapping[str, Values], names: Sequence[str]) -> Values | None:
    return next((arrays[name] for name in names if name in arrays), None)


def _combined(a: Values | None, b: Values | None, compute: Callable[[Any, Any], Any]) -> Values | None:
    """Return a value of two others, computed in 64 bits; None if one of them is not known."""
    if a is None or b is None:
        return None
    found: Values = compute(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
    return found


@dataclass(frozen=True, slots=True)
class TokenPlace:
    """A token of a sample: its value, the place of the sample, and the token's number there."""

    value: float
    place: str
    token: int


@dataclass(slots=True)
class TokenSum:
    """A token by its text: its count, and sums of a value and of its distance from the neutral value.

    Opposite values cancel in the sum, but not in the distance.
    """

    text: str
    neutral: float = 0.0
    count: int = 0
    sum: float = 0.0
    distance: float = 0.0
    share: float | None = None  # of the distances of all tokens; None where the distance is infinite
    heap: list[tuple[float, int, float, str, int]] = field(default_factory=list)  # the farthest; the least is first

    def add(self, value: float, place: str, token: int) -> None:
        """Count a token of a sample."""
        distance = abs(value - self.neutral) if math.isfinite(value) else math.inf
        self.count += 1
        self.sum += value
        self.distance += distance
        entry = distance, -self.count, value, place, token  # of equal ones the first is kept
        if len(self.heap) < MAX_PLACES:
            heappush(self.heap, entry)
        elif entry > self.heap[0]:
            heapreplace(self.heap, entry)

    @property
    def mean(self) -> float:
        """The mean of the value."""
        return self.sum / self.count

    def record(self) -> dict[str, Any]:
        """Return what the page and JSON have of it."""
        places = [{"value": one.value, "place": one.place, "token": one.token} for one in self.places]
        sums = {"share": self.share, "sum": self.sum, "mean": self.mean}
        return {"text": self.text, "count": self.count, **sums, "places": places}

    @property
    def places(self) -> list[TokenPlace]:
        """Where the value is farthest from the neutral one, the farthest first."""
        return [TokenPlace(*entry[2:]) for entry in sorted(self.heap, reverse=True)]


def token_sums(samples: Iterable[tuple[Sample, str]], value: str) -> list[TokenSum]:
    """Return the tokens of some samples, the largest distance first; masked tokens do not count."""
    found: dict[str, TokenSum] = {}
    neutral = NEUTRAL.get(value, 0.0)
    for sample, place in samples:
        for token, text, number in _counted(sample, value):
            found.setdefault(text, TokenSum(text, neutral)).add(number, place, token)
    total = math.fsum(entry.distance for entry in found.values() if math.isfinite(entry.distance))
    for entry in found.values():
        if math.isfinite(entry.distance):
            entry.share = entry.distance / (total or 1.0)
    return sorted(found.values(), key=lambda entry: -entry.distance)


def _counted(sample: Sample, value: str) -> Iterator[tuple[int, str, float]]:
    values = all_values(sample.token_values)
    if value not in values:
        return
    found, mask = values[value], values.get("mask")
    counts = ~np.isnan(found) if mask is None else mask != 0
    numbers = found.tolist()
    for token in np.flatnonzero(counts).tolist():
        yield token, sample.tokens[token], numbers[token]
