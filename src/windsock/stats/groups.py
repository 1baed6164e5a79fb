"""Statistics of groups: the samples of one prompt, whose scores are compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


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
