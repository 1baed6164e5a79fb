"""Sums per sequence, and the reductions of a loss over tokens and sequences.

Tokens are one sequence after the other; ``counts`` are the numbers of tokens of the sequences, zeros included.
"""

from __future__ import annotations

from typing import Literal, get_args

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


def reduced(
    totals: Floats,
    counts: Ints,
    how: Reduction,
    weights: Floats | None = None,
    norm: float | None = None,
    batch: float | None = None,
) -> tuple[float, float]:
    """Return the numerator and the denominator of a loss; both add up over micro-batches and ranks.

    ``totals`` are the sums per sequence. ``token-mean`` is over all tokens. The ``seq-mean`` ones are means over the
    sequences that have a token: of the sequence's mean, of its sum, or of its sum divided by ``norm``.
    ``token-sum-norm`` is the sum over an update of ``batch`` sequences, divided by ``norm`` alone, and the mean of that
    over updates. ``weights`` multiply the terms of the sequences and do not change the denominator.
    """
    some = counts > 0
    terms = (totals if weights is None else totals * weights)[some]
    if how == "token-mean":
        return float(terms.sum()), float(counts.sum())
    if how == "seq-mean-token-mean":
        terms = terms / counts[some]
    elif how in ("seq-mean-token-sum-norm", "token-sum-norm"):
        terms = terms / (norm if norm else np.nan)
    if how == "token-sum-norm":
        # The number of updates: a micro-batch is a part of one. Sequences without a token are in an update as well.
        return float(terms.sum()), len(counts) / (batch if batch else np.nan)
    return float(terms.sum()), float(some.sum())
