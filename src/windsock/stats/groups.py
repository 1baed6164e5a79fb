"""Statistics of groups: the samples of one prompt, whose scores are compared with each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def extremes(scores: Floats, groups: NDArray[np.generic]) -> tuple[NDArray[np.generic], Ints, Floats, Floats]:
    """Return the groups, their numbers of scores, and their smallest and largest scores; a NaN makes both NaN.

    A score whose group is None belongs to none and is left out.
    """
    names, place = numbered(groups)
    scores, place = scores[place >= 0], place[place >= 0]
    low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    # np.minimum and np.maximum pass NaN on; np.fmin and np.fmax would drop it.
    np.minimum.at(low, place, scores)
    np.maximum.at(high, place, scores)
    return names, np.bincount(place, minlength=len(names)).astype(np.int64), low, high


def numbered(labels: NDArray[np.generic]) -> tuple[NDArray[np.generic], Ints]:
    """Return the different labels, and the place of each label among them; -1 for None, which is no label."""
    if labels.dtype != np.object_:
        names, place = np.unique(labels, return_inverse=True)
        return names, place.astype(np.int64)
    # Python's equality, not an order: None and text, or text and numbers, have none.
    places: dict[object, int] = {}
    found = [-1 if label is None else places.setdefault(label, len(places)) for label in labels]
    return np.array([*places, None], np.object_)[:-1], np.array(found, np.int64)


def solved(low: Floats, high: Floats, right: float = 1.0) -> tuple[Bools, Bools, Bools]:
    """Return which groups have no score, only scores, or some scores of at least ``right``."""
    none, every = high < right, low >= right
    return none, every, ~none & ~every


def zero_spread(low: Floats, high: Floats) -> Bools:
    """Return which groups have equal scores only; their advantages are 0."""
    # By the extremes: the deviation of equal scores may round to above 0.
    return np.equal(low, high)
