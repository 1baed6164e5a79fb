"""Sums per sequence, and the reductions of a loss over tokens and sequences.

Tokens are one sequence after the other; ``counts`` are the numbers of tokens of the sequences, zeros included.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reduction = Literal[
    "token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-sum-norm"
]

REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)


def sums(tokens: Floats, counts: Ints) -> Floats:
    """Return the sum of each sequence's tokens, 0 for a sequence without tokens."""
    totals = np.zeros(len(counts))
    # reduceat takes the sum of a slice that is not empty, so sequences without tokens are left out.
    some = counts > 0
    starts = (np.cumsum(counts) - counts)[some]
    if len(starts):
        totals[some] = np.add.reduceat(tokens, starts)
    return totals


class LossSums(NamedTuple):
    """The sums of a loss over all sequences, from which every reduction of it follows."""

    total: float
    means: float  # of the sequences' means
    tokens: float
    with_tokens: float  # sequences that have a token
    sequences: float

    def reduced(self, how: Reduction, norm: float | None = None, batch: float | None = None) -> tuple[float, float]:
        """Return the numerator and the denominator of a loss; both add up over micro-batches and ranks.

        ``token-mean`` is over all tokens. The ``seq-mean`` ones are means over the sequences that have a token: of the
        sequence's mean, of its sum, or of its sum divided by ``norm``. ``token-sum-norm`` is the sum over an update of
        ``batch`` sequences, divided by ``norm`` alone, and the mean of that over updates.
        """
        if how == "token-mean":
            return self.total, self.tokens
        if how == "seq-mean-token-mean":
            return self.means, self.with_tokens
        if how == "seq-mean-token-sum":
            return self.total, self.with_tokens
        numerator = self.total / (norm if norm else math.nan)
        if how == "token-sum-norm":
            # The number of updates: a micro-batch is a part of one. Sequences without a token are in one as well.
            return numerator, self.sequences / (batch if batch else math.nan)
        return numerator, self.with_tokens


def loss_sums(totals: Floats, counts: Ints, how: Reduction, weights: Floats | None = None) -> LossSums:
    """Return the sums of a loss that a reduction needs. ``weights`` multiply the terms of the sequences."""
    some = counts > 0
    terms = (totals if weights is None else totals * weights)[some]
    means = float((terms / counts[some]).sum()) if how == "seq-mean-token-mean" else math.nan
    return LossSums(float(terms.sum()), means, float(counts.sum()), float(some.sum()), len(counts))
