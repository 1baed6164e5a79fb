"""Statistics of sequences: sums of their tokens and the reductions of a loss, the groups of one prompt whose scores
are compared, and sequences whose end repeats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Bools, Floats, Ints

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


SOLVE_RATES = ("0", "0_25", "25_50", "50_75", "75_100", "100")
"""The bins of a group's solve rate, in per cent: exactly 0, up to and with 25, …, below 100, exactly 100."""


class GroupScores(NamedTuple):
    """Statistics of the scores of each group, and numbers of groups. Of one with a NaN only the size counts."""

    sizes: Ints
    deviations: Floats
    is_equal: Bools
    """Which groups have equal scores only, whose advantages are 0."""
    in_bins: Ints
    """How many groups have each of ``SOLVE_RATES``."""
    unknown: int
    """How many groups have a NaN among their scores."""


def summarised(scores: Floats, groups: NDArray[np.generic], right: float = 1.0) -> GroupScores:
    """Return the size, extremes, standard deviation (ddof 0) and share of right scores of each group.

    A score whose group is None belongs to none and is left out.
    """
    names, place = numbered(groups)
    belongs = place >= 0
    if np.count_nonzero(belongs) < len(place):
        scores, place = scores[belongs], place[belongs]
    sizes = np.bincount(place, minlength=len(names))
    low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    # np.minimum and np.maximum pass NaN on; np.fmin and np.fmax would drop it.
    np.minimum.at(low, place, scores)
    np.maximum.at(high, place, scores)

    def means(values: NDArray[np.generic]) -> Floats:
        return np.asarray(np.bincount(place, values, len(sizes)) / sizes, np.float64)

    deviations = np.sqrt(means(np.square(scores - means(scores)[place])))
    # By the extremes: the deviation of equal scores may round to above 0.
    is_equal = low == high
    deviations[is_equal] = 0.0
    rates = means((scores >= right).astype(np.float64))
    bins = np.where(rates == 1, 5, np.ceil(4 * rates)).astype(np.int64)
    in_bins = np.bincount(bins, minlength=len(SOLVE_RATES))
    return GroupScores(sizes, deviations, is_equal, in_bins, int(np.count_nonzero(np.isnan(low))))


def numbered(labels: NDArray[np.generic]) -> tuple[NDArray[np.generic], Ints]:
    """Return the different labels, and the place of each label among them; -1 for None, which is no label."""
    if labels.dtype.kind == "i" and len(labels) and 0 <= labels.min() <= labels.max() < 4 * len(labels):
        present = np.bincount(labels) > 0  # without sorting, as the numbers are small
        if np.count_nonzero(present) == len(present):
            return np.arange(len(present)), labels.astype(np.int64)
        return np.flatnonzero(present), (present.cumsum() - 1)[labels]
    # The samples of a prompt are mostly neighbours: to compare a label with the last one is faster than to look it up.
    begins = np.ones(len(labels), np.bool_)
    np.not_equal(labels[1:], labels[:-1], out=begins[1:])
    names, found = _numbered_firsts(labels[begins])
    return names, found[begins.cumsum() - 1]


def _numbered_firsts(labels: NDArray[np.generic]) -> tuple[NDArray[np.generic], Ints]:
    if labels.dtype != np.object_:
        ordered, place = np.unique(labels, return_inverse=True)
        return ordered, place.astype(np.int64)
    # Python's equality, not an order: None and text, or text and numbers, have none.
    listed = labels.tolist()
    names = dict.fromkeys(listed)
    names.pop(None, None)
    places: dict[object, int] = {None: -1, **dict(zip(names, range(len(names)), strict=True))}
    found = np.fromiter(map(places.__getitem__, listed), np.int64, len(listed))
    return np.array([*names, None], np.object_)[:-1], found


def joined_labels(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
    """Return labels of several batches such that those of different batches differ; None stays no label."""
    if len(parts) == 1:
        return parts[0]
    found, before = [], 0
    for labels in parts:
        names, place = numbered(labels)
        found.append(np.where(place < 0, -1, place + before))
        before += len(names)
    joined = np.concatenate(found)
    if (joined >= 0).all():
        return joined
    return np.where(joined < 0, np.array(None, np.object_), joined.astype(np.object_))


MAX_PERIOD = 128  # tokens

MIN_STRETCH = 64  # tokens; one of a longer period must repeat once

_PERIODS = np.arange(1, MAX_PERIOD + 1)

# Every stretch has at least 32 tokens that equal the one a period before them. These are looked at before all others.
_FIRST_PLACES = (1, 2, 4, 8, 16, 31)


def ends_in_repetition(tokens: NDArray[Any], response: Bools, starts: Ints, lasts: Ints) -> Bools:
    """Return which sequences of a stream end in a repetition, of a period p of 1 to 128 tokens.

    It is one if the last max(64, 2·p) tokens up to the last response token are all response tokens, and each equals
    the one p places before it in this stretch. ``starts`` are the first tokens of the sequences and ``lasts`` their
    last response tokens; what is not of the response is never compared with a result.
    """
    found = np.zeros(len(lasts), np.bool_)
    rows, periods = _repetition_candidates(tokens, starts, lasts)
    for row, period in zip(rows.tolist(), periods.tolist(), strict=True):
        if found[row]:
            continue
        end = int(lasts[row]) + 1
        begin = end - max(MIN_STRETCH, 2 * period)
        if begin >= starts[row] and response[begin:end].all():
            found[row] = (tokens[begin + period : end] == tokens[begin : end - period]).all()
    return found


def _repetition_candidates(tokens: NDArray[Any], starts: Ints, lasts: Ints) -> tuple[Ints, Ints]:
    """Return sequences and periods whose last tokens fit, the shorter periods of a sequence first."""
    rows = np.flatnonzero(lasts - starts >= MIN_STRETCH - 1)
    if not len(rows):
        return rows, rows
    ends = lasts[rows]
    # Places before the stream are those at its end: any token will do, as the whole stretch is checked afterwards.
    equal = tokens.take(ends[:, None] - _PERIODS, mode="wrap") == tokens.take(ends)[:, None]
    places, periods = equal.nonzero()
    periods += 1
    for back in _FIRST_PLACES:
        if not len(places):
            break
        at = ends[places] - back
        fits = tokens.take(at, mode="wrap") == tokens.take(at - periods, mode="wrap")
        places, periods = places[fits], periods[fits]
    return rows[places], periods
