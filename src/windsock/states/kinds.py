"""The kinds of state: the slots of each, how two states merge, and the values of a state.

A state is a row of ``width`` float64 slots, so that many of them stack into an array and merge at once. Every kind has
an identity, ``empty``, and a ``merge`` that is associative and commutative up to rounding. The last slot of each counts
the inputs that were NaN or infinite; such an input makes the value non-finite.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from windsock.model import Missing

Floats = NDArray[np.float64]

NO_VALUES = "there were no values"


class StateKind(ABC):
    """A kind of mergeable state. Leading axes of a state are a stack of states."""

    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]]

    @property
    def width(self) -> int:
        """The number of slots."""
        return len(self.slots)

    def empty(self) -> Floats:
        """Return the state of no data."""
        return np.zeros(self.width)

    @abstractmethod
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of some values."""

    @abstractmethod
    def merge(self, a: Floats, b: Floats) -> Floats:
        """Return the state of both data sets together; works on stacks of states."""

    @abstractmethod
    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the finished values by the name of the statistic."""

    def __repr__(self) -> str:
        return self.name


# NaN and infinities are results here, and NumPy's warnings about them would reach the training's terminal.
_quiet = np.errstate(invalid="ignore", over="ignore", divide="ignore")


def _data(values: ArrayLike) -> Floats:
    # Sums are in double precision also for float32 and half precision: a million small values lose digits otherwise.
    return np.asarray(values, np.float64).ravel()


def _nonfinite(values: Floats) -> float:
    return float(len(values) - np.isfinite(values).sum())


class _Additive(StateKind):
    """A kind that merges by adding slot to slot."""

    @_quiet
    def merge(self, a: Floats, b: Floats) -> Floats:
        """Return the sum of both states."""
        return a + b


class Sum(_Additive):
    """A total."""

    name = "sum"
    slots = ("sum", "nonfinite")

    @_quiet
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of some values."""
        data = _data(values)
        return np.array([data.sum(), _nonfinite(data)])

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the total, which is 0 for no values."""
        return {"sum": float(state[0])}


class Mean(_Additive):
    """A mean: sum and count, divided when the step is finished."""

    name = "mean"
    slots = ("sum", "count", "nonfinite")

    @_quiet
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of some values."""
        data = _data(values)
        return np.array([data.sum(), len(data), _nonfinite(data)])

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the mean."""
        return {"mean": quotient(state[0], state[1], NO_VALUES)}


class Ratio(_Additive):
    """A quotient of two totals, such as a loss and its denominator."""

    name = "ratio"
    slots = ("numerator", "denominator", "nonfinite")

    @_quiet
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of pairs of numerator and denominator."""
        data = np.asarray(values, np.float64).reshape(-1, 2)
        return np.array([*data.sum(axis=0), _nonfinite(data.ravel())])

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the quotient."""
        return {"ratio": quotient(state[0], state[1], "the denominator is zero")}


class Moments(StateKind):
    """Count, sum, and the sum of squared deviations from the mean, which does not cancel as a sum of squares does.

    Squares merge by the distance of the two means (Chan, Golub and LeVeque). The state has the sum and not the mean:
    with an infinity among the values, the mean of all then does not depend on how they were split. The squares are
    NaN in that case.
    """

    name = "moments"
    slots = ("count", "sum", "squares", "nonfinite")

    @_quiet
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of some values."""
        data = _data(values)
        if not len(data):
            return self.empty()
        total = data.sum()
        return np.array([len(data), total, np.square(data - total / len(data)).sum(), _nonfinite(data)])

    @_quiet
    def merge(self, a: Floats, b: Floats) -> Floats:
        """Return the sum of both states, with the distance of the two means added to the squares."""
        merged = a + b
        one_is_empty = (a[..., 0] == 0) | (b[..., 0] == 0)
        # 0/0 on an empty side is NaN, which the ``where`` below leaves out.
        apart = b[..., 1] / b[..., 0] - a[..., 1] / a[..., 0]
        between = apart * apart * (a[..., 0] * b[..., 0] / merged[..., 0])
        merged[..., 2] += np.where(one_is_empty, 0.0, between)
        # NaN in the whole wherever a part has an infinity, so that the split of the data does not matter.
        merged[..., 2] = np.where(merged[..., 3] > 0, np.nan, merged[..., 2])
        return merged

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the mean, and the variance and standard deviation with ddof 0."""
        count, total, squares = (float(slot) for slot in state[:3])
        if count == 0:
            nothing = Missing(NO_VALUES)
            return {"mean": nothing, "var": nothing, "std": nothing}
        variance = squares / count
        # A state that no values can have: a root of it does not exist.
        return {"mean": total / count, "var": variance, "std": math.nan if variance < 0 else math.sqrt(variance)}


class Comoments(StateKind):
    """Count, sums, squares and products of two quantities, for their correlation; merged as ``Moments`` are."""

    name = "comoments"
    slots = ("count", "sum_x", "sum_y", "squares_x", "squares_y", "products", "nonfinite")

    @_quiet
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of pairs."""
        data = np.asarray(values, np.float64).reshape(-1, 2)
        if not len(data):
            return self.empty()
        totals = data.sum(axis=0)
        x, y = (data - totals / len(data)).T
        bad = _nonfinite(data.sum(axis=1))
        inner = [np.nan] * 3 if bad else [(x * x).sum(), (y * y).sum(), (x * y).sum()]
        return np.array([len(data), *totals, *inner, bad])

    @_quiet
    def merge(self, a: Floats, b: Floats) -> Floats:
        """Return the sum of both states, with the distances of the means added to the squares and products."""
        merged = a + b
        one_is_empty = (a[..., 0] == 0) | (b[..., 0] == 0)
        # 0/0 on an empty side is NaN, which the ``where`` below leaves out.
        x, y = (b[..., slot] / b[..., 0] - a[..., slot] / a[..., 0] for slot in (1, 2))
        weight = a[..., 0] * b[..., 0] / merged[..., 0]
        between = np.stack([x * x * weight, y * y * weight, x * y * weight], axis=-1)
        inner = merged[..., 3:6] + np.where(one_is_empty[..., None], 0.0, between)
        # NaN in the whole wherever a part has an infinity, so that the split of the data does not matter.
        merged[..., 3:6] = np.where(merged[..., 6:] > 0, np.nan, inner)
        return merged

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the Pearson correlation; Missing where one side does not vary."""
        count, *sums, x_squares, y_squares, products = (float(slot) for slot in state[:6])
        if count == 0:
            return {"correlation": Missing(NO_VALUES)}
        for total, squares in zip(sums, (x_squares, y_squares), strict=True):
            # Equal values differ from their mean by its rounding.
            if squares <= count * (1e-12 * total / count) ** 2:
                return {"correlation": Missing("the values do not vary")}
        correlation = products / math.sqrt(x_squares) / math.sqrt(y_squares)
        return {"correlation": correlation if math.isnan(correlation) else min(1.0, max(-1.0, correlation))}


class Extrema(StateKind):
    """Smallest and largest value, and the rank of each. A NaN anywhere makes both NaN."""

    name = "extrema"
    slots = ("min", "min_rank", "max", "max_rank", "nonfinite")

    def empty(self) -> Floats:
        """Return the state of no data: every value is inside of its bounds."""
        # The infinite rank marks an empty state; an infinite bound may be data.
        return np.array([math.inf, math.inf, -math.inf, math.inf, 0.0])

    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of some values of one rank."""
        data = _data(values)
        if not len(data):
            return self.empty()
        return np.array([data.min(), rank, data.max(), rank, _nonfinite(data)])

    def merge(self, a: Floats, b: Floats) -> Floats:
        """Return the smaller minimum and the larger maximum; of equal ones those of the lower rank.

        The choice of the rank makes the result independent of the order of merging.
        """
        low, low_rank = _outer(a[..., 0], a[..., 1], b[..., 0], b[..., 1])
        # A maximum is the minimum of negated values, with the same rules for ties and NaN.
        high, high_rank = _outer(-a[..., 2], a[..., 3], -b[..., 2], b[..., 3])
        return np.stack([low, low_rank, -high, high_rank, a[..., 4] + b[..., 4]], axis=-1)

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return minimum, maximum and their ranks."""
        if math.isinf(state[1]):
            nothing = Missing(NO_VALUES)
            return dict.fromkeys(("min", "max", "min_rank", "max_rank"), nothing)
        return {"min": float(state[0]), "max": float(state[2]), "min_rank": state[1], "max_rank": state[3]}


def _outer(a: Floats, a_rank: Floats, b: Floats, b_rank: Floats) -> tuple[Floats, Floats]:
    """Return the smaller value and its rank. NaN is smaller than every number, so that it is never dropped."""
    # NaN equals nothing, not even NaN: ties are found by the flags together with the keys.
    a_nan, b_nan = np.isnan(a), np.isnan(b)
    a_key, b_key = np.where(a_nan, -np.inf, a), np.where(b_nan, -np.inf, b)
    tie = (a_nan == b_nan) & (a_key == b_key)
    a_wins = np.where(tie, a_rank <= b_rank, (a_nan & ~b_nan) | (a_key < b_key))
    return np.where(a_wins, a, b), np.where(a_wins, a_rank, b_rank)


class Last(StateKind):
    """The newest value, by an order that the caller gives, such as a time or the number of an update."""

    name = "last"
    slots = ("value", "order", "nonfinite")

    def empty(self) -> Floats:
        """Return the state of no data: older than anything."""
        return np.array([math.nan, -math.inf, 0.0])

    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of pairs of value and order."""
        state = self.empty()
        for value, order in np.asarray(values, np.float64).reshape(-1, 2):
            state = self.merge(state, np.array([value, order, float(not math.isfinite(value))]))
        return state

    def merge(self, a: Floats, b: Floats) -> Floats:
        """Return the newer state; of equally new ones the larger, so that the order of merging does not matter."""
        # As the largest value NaN wins every tie. Compared as it is, it would win or lose by its side.
        a_value, b_value = (np.where(np.isnan(s[..., 0]), np.inf, s[..., 0]) for s in (a, b))
        a_wins = (a[..., 1] > b[..., 1]) | ((a[..., 1] == b[..., 1]) & (a_value >= b_value))
        return np.where(a_wins[..., None], a, b)

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the newest value."""
        return {"last": Missing(NO_VALUES) if state[1] == -math.inf else float(state[0])}


class Quantiles(_Additive):
    """Counts in bins whose width grows with the value: any quantile to within 2 % of the value.

    This is DDSketch with a fixed range of bins. A sketch that grows (t-digest, KLL, DDSketch itself) does not fit into
    a vector whose slots add up; counts in fixed bins merge on any device and in one all-reduce. Values closer to zero
    than ``TINY`` count as zero, those beyond ``HUGE`` as ``HUGE``.
    """

    name = "quantiles"
    ACCURACY: ClassVar[float] = 0.02
    TINY: ClassVar[float] = 1e-9
    HUGE: ClassVar[float] = 1e9
    GAMMA: ClassVar[float] = (1 + ACCURACY) / (1 - ACCURACY)
    SIDE: ClassVar[int] = math.ceil(math.log(HUGE / TINY) / math.log(GAMMA)) + 1
    slots = (*(f"bin{n}" for n in range(2 * SIDE + 1)), "nonfinite")

    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of some values; those that are not finite are counted and have no bin."""
        data = _data(values)
        finite = data[np.isfinite(data)]
        state = self.empty()
        state[: 2 * self.SIDE + 1] = np.bincount(self.bins(finite), minlength=2 * self.SIDE + 1)
        state[-1] = len(data) - len(finite)
        return state

    def bins(self, values: Floats) -> NDArray[np.int64]:
        """Return the bin of each finite value: negative ones first, zero in the middle."""
        size = np.abs(values)
        steps = np.ceil(np.log(np.clip(size, self.TINY, self.HUGE) / self.TINY) / math.log(self.GAMMA))
        # Step 0 is the bin of zero, so the smallest magnitude has step 1.
        signed = np.sign(values) * np.where(size < self.TINY, 0, steps + 1)
        # The logarithm of HUGE may round up to one bin beyond the last.
        return np.clip(signed.astype(np.int64), -self.SIDE, self.SIDE) + self.SIDE

    def quantile(self, state: Floats, share: float) -> float | Missing:
        """Return the value with ``share`` of the data below it, to within 2 %."""
        counts = state[:-1]
        total = counts.sum()
        if total == 0:
            return Missing("there were no finite values")
        # Above 0, so that a share of 0 finds the first bin with data and not the first of all.
        place = int(np.searchsorted(np.cumsum(counts), max(share * total, 1e-12), side="left"))
        steps = place - self.SIDE
        if steps == 0:
            return 0.0
        # Not the arithmetic middle: from this point both ends of the bin are ACCURACY away, relative to themselves.
        middle = self.TINY * self.GAMMA ** (abs(steps) - 1) * 2 / (1 + self.GAMMA)
        return math.copysign(middle, steps)

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the usual quantiles."""
        return {f"p{share:g}": self.quantile(state, share / 100) for share in (1, 5, 25, 50, 75, 95, 99)}


def quotient(numerator: Any, denominator: Any, reason: str) -> float | Missing:
    """Return the quotient, or Missing with the reason where the denominator is 0."""
    if denominator == 0:
        return Missing(reason)
    return float(numerator) / float(denominator)


SUM, MEAN, RATIO, MOMENTS, EXTREMA, LAST, QUANTILES = Sum(), Mean(), Ratio(), Moments(), Extrema(), Last(), Quantiles()
COMOMENTS = Comoments()
KINDS: dict[str, StateKind] = {
    kind.name: kind for kind in (SUM, MEAN, RATIO, MOMENTS, EXTREMA, LAST, QUANTILES, COMOMENTS)
}
