"""Per-token formulas of a policy update, for NumPy arrays and torch tensors; results have the shape of the arguments.

``d`` is the log-ratio, current minus old log-prob; ``ratio`` is its exponential. A clip range is ``(low, high)``: the
band is from ``1 - low`` to ``1 + high``. Without a clip range nothing is clipped.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

from windsock.stats.numpy_or_torch import numpy_or_torch

Clip = tuple[float, float]


def kl_k2(d: Any) -> Any:
    """Return d²/2: biased, never negative."""
    return 0.5 * d * d


def kl_k3(d: Any) -> Any:
    """Return exp(d) - 1 - d: unbiased for KL(old‖current), never negative. Accurate also where d is tiny."""
    return numpy_or_torch(d).expm1(d) - d


def truncated(weights: Any, cap: float) -> Any:
    """Return min(w, cap)."""
    return numpy_or_torch(weights).clip(weights, None, cap)


def kept(weights: Any, low: float, high: float) -> Any:
    """Return where a weight is within the bounds, both included; nowhere for NaN."""
    return (weights >= low) & (weights <= high)


def rejected(weights: Any, low: float, high: float) -> Any:
    """Return where a weight is outside the bounds; nowhere for NaN."""
    return (weights < low) | (weights > high)


class Bound(NamedTuple):
    """A number near the logarithm of a bound of ratios, as the sum of two in single precision.

    Every device decides with it in the same way whether a ratio is beyond the bound: by the exact difference of two
    log-probs, which the exponential and single precision would round.
    """

    high: float
    low: float

    @classmethod
    def of(cls, ratio: float) -> Bound:
        """Return that of a ratio; of 0 and less, which no ratio is below, minus infinity."""
        if ratio <= 0:
            return cls(-math.inf, 0.0)
        exact = math.log(ratio)
        high = _single(exact)
        return cls(high, 0.0 if math.isinf(high) else _single(exact - high))


def _single(number: float) -> float:
    """Return the number in single precision."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def above(d: Any, clip: Clip) -> Any:
    """Return where the ratio is above the band, from the log-ratio in double precision."""
    return d > sum(Bound.of(1.0 + clip[1]))


def below(d: Any, clip: Clip) -> Any:
    """Return where the ratio is below the band, from the log-ratio in double precision."""
    return d < sum(Bound.of(1.0 - clip[0]))


def dual_clip_binds(d: Any, advantages: Any, dual_clip: float) -> Any:
    """Return where dual clipping bounds the loss of a token with a negative advantage and a large ratio."""
    # The clip does not matter: its bound is above 1 only for ratios that it lowers.
    return (advantages < 0) & (d > sum(Bound.of(dual_clip)))


def ratio_above(ratio: Any, clip: Clip) -> Any:
    """Return where the ratio is above the band."""
    return ratio > 1.0 + clip[1]


def ratio_below(ratio: Any, clip: Clip) -> Any:
    """Return where the ratio is below the band."""
    return ratio < 1.0 - clip[0]


def clipped(ratio: Any, clip: Clip | None) -> Any:
    """Return the ratio, clipped to the band."""
    if clip is None:
        return ratio
    return numpy_or_torch(ratio).clip(ratio, 1.0 - clip[0], 1.0 + clip[1])


def surrogate_gain(ratio: Any, advantages: Any, clip: Clip | None) -> Any:
    """Return min(r·A, clip(r)·A)."""
    return numpy_or_torch(ratio).minimum(ratio * advantages, clipped(ratio, clip) * advantages)


def surrogate_factors(ratio: Any, clip: Clip | None, dual_clip: float | None = None) -> tuple[Any, Any]:
    """Return what ``surrogate_loss`` multiplies a positive and a negative advantage with, with the sign turned."""
    xp = numpy_or_torch(ratio)
    up, down = xp.minimum(ratio, clipped(ratio, clip)), xp.maximum(ratio, clipped(ratio, clip))
    return up, down if dual_clip is None else xp.clip(down, None, dual_clip)


def surrogate_loss(ratio: Any, advantages: Any, clip: Clip | None, dual_clip: float | None = None) -> Any:
    """Return -min(r·A, clip(r)·A); with ``dual_clip`` c, for A < 0, at most -c·A."""
    xp = numpy_or_torch(ratio)
    gain = surrogate_gain(ratio, advantages, clip)
    if dual_clip is not None:
        gain = xp.where(advantages < 0, xp.maximum(gain, dual_clip * advantages), gain)
    return -gain
