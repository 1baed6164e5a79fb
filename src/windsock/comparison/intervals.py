"""Means of a few independent runs with 95 % intervals, and differences of two means.

The intervals are Student's t, and Welch's for a difference: they are right for any number of roughly normal values from
two on. A percentile bootstrap of three to five values covers the mean far too seldom, so it is not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

COVERAGE = 0.95
NAN = math.nan
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, or a difference of means, with the ends of its 95 % interval, which are NaN for too few values."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def is_known(self) -> bool:
        """Whether there were enough values for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def mean_interval(values: Iterable[float]) -> Interval:
    """Return the mean of the finite values; with fewer than two there is no interval, with none no mean."""
    found = _finite(values)
    count = len(found)
    if count < 2:
        return Interval(float(found[0]) if count else NAN, NAN, NAN, count)
    mean, half = float(found.mean()), t_quantile(count - 1) * float(found.std(ddof=1)) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def difference_interval(first: Iterable[float], second: Iterable[float]) -> Interval:
    """Return the mean of the first minus that of the second; each needs two finite values for an interval.

    The values are not paired: what two trainings share by a common seed is little, and the interval is valid without.
    ``count`` is that of the smaller group.
    """
    a, b = _finite(first), _finite(second)
    count = min(len(a), len(b))
    if count == 0:
        return Interval(NAN, NAN, NAN, 0)
    difference = float(a.mean() - b.mean())
    if count < 2:
        return Interval(difference, NAN, NAN, count)
    parts = [float(one.var(ddof=1)) / len(one) for one in (a, b)]
    variance = sum(parts)
    if variance == 0.0:
        return Interval(difference, difference, difference, count)
    freedom = variance**2 / sum(part**2 / (len(one) - 1) for part, one in zip(parts, (a, b), strict=True))
    half = t_quantile(freedom) * math.sqrt(variance)
    return Interval(difference, difference - half, difference + half, count)


def band(values: Floats) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """Return mean, low, high and count of every column of runs x steps; NaN is a run without a value there."""
    known = np.isfinite(values)
    count = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, values, 0.0).sum(axis=0) / count
        squares = (np.where(known, values - mean, 0.0) ** 2).sum(axis=0)
        quantiles = np.array([t_quantile(n - 1) if n > 1 else NAN for n in range(len(values) + 1)])
        half = quantiles[count] * np.sqrt(squares / (count - 1) / count)
    return mean, mean - half, mean + half, count


@lru_cache(maxsize=1 << 12)  # degrees of freedom of differences are any numbers
def t_quantile(freedom: float) -> float:
    """Return the number that Student's t exceeds in size with a probability of 5 %, for the degrees of freedom."""
    low, high = 0.0, 1.0
    while _chance_beyond(high, freedom) > 1 - COVERAGE:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance_beyond(middle, freedom) > 1 - COVERAGE else (low, middle)
    return (low + high) / 2


def _chance_beyond(t: float, freedom: float) -> float:
    """Return the probability that Student's t is larger in size than a number."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other tail converges sooner
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    fraction, c, d = 1.0, 1.0, 0.0
    for i in range(400):
        m = i // 2
        if i == 0:
            factor = 1.0
        elif i % 2:
            factor = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            factor = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + factor * d) or 1e-300)
        c = (1 + factor / c) or 1e-300
        fraction *= c * d
        if abs(1 - c * d) < 1e-15:
            break
    return front * (fraction - 1)


def _finite(values: Iterable[float]) -> Floats:
    found: Floats = np.asarray(list(values), float)
    kept: Floats = found[np.isfinite(found)]
    return kept
