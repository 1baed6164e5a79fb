"""From tokens to sequences: sums per sequence, and the ways in which losses are reduced.

Valid tokens lie one sequence after the other; ``counts`` says how many each sequence has, zero included.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reduction = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]

REDUCTIONS: tuple[Reduction, ...] = (
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm",
)  # fmt: skip


def sums(tokens: Floats, counts: Ints) -> Floats:
    """Add up the tokens of each sequence; a sequence without tokens has 0."""
    totals = np.zeros(len(counts))
    some = counts > 0
    starts = (np.cumsum(counts) - counts)[some]
    if len(starts):
        totals[some] = np.add.reduceat(tokens, starts)
    return totals


def reduced(
    totals: Floats, counts: Ints, how: Reduction, weights: Floats | None = None, norm: float | None = None
) -> tuple[float, float]:
    """Return numerator and denominator of a loss, both of which add up over micro-batches and ranks.

    ``totals`` are the sums per sequence. ``token-mean`` is over all tokens; the others are means over the sequences
    that have a token, of the sequence's mean, of its sum, or of its sum divided by ``norm``. ``weights`` multiply each
    sequence's part and leave the denominator.
    """
    some = counts > 0
    parts = (totals if weights is None else totals * weights)[some]
    if how == "token-mean":
        return float(parts.sum()), float(counts.sum())
    if how == "seq-mean-token-mean":
        parts = parts / counts[some]
    elif how == "seq-mean-token-sum-norm":
        parts = parts / (norm if norm else np.nan)
    return float(parts.sum()), float(some.sum())
