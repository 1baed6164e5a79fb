"""Per-token quantities of a policy update. Every argument is an array of valid tokens; every result has its shape.

``d`` is the log-ratio, current minus old log-prob; ``ratio`` is its exponential; ``advantages`` weigh the tokens. A
clip range is ``(low, high)``: the band runs from ``1 - low`` to ``1 + high``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Clip = tuple[float, float]


def kl_k1(d: Floats) -> Floats:
    """Return -d: unbiased for KL(old‖current), noisy, and negative for half of the tokens."""
    return -d


def kl_k2(d: Floats) -> Floats:
    """Return d²/2: biased, never negative."""
    return 0.5 * d * d


def kl_k3(d: Floats) -> Floats:
    """Return exp(d) - 1 - d: unbiased for KL(old‖current), never negative. Accurate also where d is tiny."""
    return np.expm1(d) - d


def ratio_above(ratio: Floats, clip: Clip) -> Bools:
    """Tell where the ratio is beyond the upper edge of the band."""
    return ratio > 1.0 + clip[1]


def ratio_below(ratio: Floats, clip: Clip) -> Bools:
    """Tell where the ratio is beyond the lower edge of the band."""
    return ratio < 1.0 - clip[0]


def clip_binds(ratio: Floats, advantages: Floats, clip: Clip) -> Bools:
    """Tell where clipping changes the objective: outside the band, on the side to which the advantage pushes."""
    return np.clip(ratio, 1.0 - clip[0], 1.0 + clip[1]) * advantages < ratio * advantages


def dual_clip_binds(ratio: Floats, advantages: Floats, clip: Clip, dual_clip: float) -> Bools:
    """Tell where the bound on the loss of a bad token with a huge ratio takes hold."""
    pessimistic = np.minimum(ratio * advantages, np.clip(ratio, 1.0 - clip[0], 1.0 + clip[1]) * advantages)
    return (advantages < 0) & (pessimistic < dual_clip * advantages)


def surrogate_loss(ratio: Floats, advantages: Floats, clip: Clip, dual_clip: float | None = None) -> Floats:
    """Return -min(r·A, clip(r)·A); with ``dual_clip`` c, for A < 0, at most -c·A."""
    clipped = np.clip(ratio, 1.0 - clip[0], 1.0 + clip[1])
    gain = np.minimum(ratio * advantages, clipped * advantages)
    if dual_clip is not None:
        gain = np.where(advantages < 0, np.maximum(gain, dual_clip * advantages), gain)
    return -gain
