"""The kinds of state: the slots of each, how two states merge, and the values of a state.

A state is a row of ``width`` float64 slots, so that many of them stack into an array and merge at once. Every kind has
an identity, ``empty``, and a ``merge`` that is associative and commutative up to rounding. The last slot of each counts
the inputs that were NaN or infinite; such an input makes the value non-finite.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
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
    is_sparse: ClassVar[bool] = False
    """Whether most slots are 0, all are in an empty state, and states merge by adding them up."""

    @property
    def width(self) -> int:
        """The number of slots."""
        return len(self.slots)

    def empty(self) -> Floats:
        """Return the state of no data."""
        return np.zeros(self.width)

    stacks: ClassVar[bool] = False
    """Whether ``from_rows`` computes many states at once."""

    @abstractmethod
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of some values."""

    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values."""
        return np.array([self.from_values(row, rank) for row in rows])

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


def _nonfinite(values: Floats) -> Any:
    """Return how many values of each row are not finite."""
    return values.shape[-1] - np.isfinite(values).sum(axis=-1)


class _Stacked(StateKind):
    """A kind whose states are computed from a row of values each, many at once."""

    stacks = True

    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of some values."""
        state: Floats = self.from_rows(_data(values)[None], rank)[0]
        return state

    @abstractmethod
    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values."""


class _Additive(StateKind):
    """A kind that merges by adding slot to slot."""

    @_quiet
    def merge(self, a: Floats, b: Floats) -> Floats:
        """Return the sum of both states."""
        return a + b


class Sum(_Stacked, _Additive):
    """A total."""

    name = "sum"
    slots = ("sum", "nonfinite")

    @_quiet
    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values."""
        return np.stack([rows.sum(axis=-1), _nonfinite(rows)], axis=-1)

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the total, which is 0 for no values."""
        return {"sum": state.item(0)}


class Mean(_Stacked, _Additive):
    """A mean: sum and count, divided when the step is finished."""

    name = "mean"
    slots = ("sum", "count", "nonfinite")

    @_quiet
    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values."""
        count = np.full(len(rows), rows.shape[-1])
        return np.stack([rows.sum(axis=-1), count, _nonfinite(rows)], axis=-1)

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the mean."""
        return {"mean": quotient(state.item(0), state.item(1), NO_VALUES)}


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
        return {"ratio": quotient(state.item(0), state.item(1), "the denominator is zero")}


class Moments(_Stacked):
    """Count, sum, and the sum of squared deviations from the mean, which does not cancel as a sum of squares does.

    Squares merge by the distance of the two means (Chan, Golub and LeVeque). The state has the sum and not the mean:
    with an infinity among the values, the mean of all then does not depend on how they were split. The squares are
    NaN in that case.
    """

    name = "moments"
    slots = ("count", "sum", "squares", "nonfinite")

    @_quiet
    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values."""
        size = rows.shape[-1]
        if not size:
            return np.tile(self.empty(), (len(rows), 1))
        total = rows.sum(axis=-1)
        squares = np.square(rows - (total / size)[:, None]).sum(axis=-1)
        return np.stack([np.full(len(rows), size), total, squares, _nonfinite(rows)], axis=-1)

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
        count, total, squares, _ = state.tolist()
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


class Extrema(_Stacked):
    """Smallest and largest value, and the rank of each. A NaN anywhere makes both NaN."""

    name = "extrema"
    slots = ("min", "min_rank", "max", "max_rank", "nonfinite")

    def empty(self) -> Floats:
        """Return the state of no data: every value is inside of its bounds."""
        # The infinite rank marks an empty state; an infinite bound may be data.
        return np.array([math.inf, math.inf, -math.inf, math.inf, 0.0])

    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values of one rank."""
        if not rows.shape[-1]:
            return np.tile(self.empty(), (len(rows), 1))
        ranks = np.full(len(rows), rank)
        return np.stack([rows.min(axis=-1), ranks, rows.max(axis=-1), ranks, _nonfinite(rows)], axis=-1)

    @_quiet
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
        low, low_rank, high, high_rank, _ = state.tolist()
        if math.isinf(low_rank):
            nothing = Missing(NO_VALUES)
            return dict.fromkeys(("min", "max", "min_rank", "max_rank"), nothing)
        return {"min": low, "max": high, "min_rank": low_rank, "max_rank": high_rank}


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
    """Counts in bins whose width grows with the value: any quantile to within 3 % of the value.

    This is DDSketch with a fixed range of bins. A sketch that grows (t-digest, KLL, DDSketch itself) does not fit into
    a vector whose slots add up; counts in fixed bins merge on any device and in one all-reduce. Bin 0 is that of zero,
    and has the values closer to it than ``TINY``. Bin n has the sizes from ``TINY * GAMMA ** (n - 1)`` to ``TINY *
    GAMMA ** n``, the last one, ``SIDE``, all beyond ``HUGE`` too. Slots are the bins of negative values, from the
    largest size on, that of zero, and those of positive values. A count may be a fraction, where a value stands for
    several.
    """

    name = "quantiles"
    is_sparse = True
    ACCURACY: ClassVar[float] = 0.03
    TINY: ClassVar[float] = 1e-5
    HUGE: ClassVar[float] = 1e6
    GAMMA: ClassVar[float] = (1 + ACCURACY) / (1 - ACCURACY)
    SIDE: ClassVar[int] = math.ceil(math.log(HUGE / TINY) / math.log(GAMMA))
    ZERO: ClassVar[int] = SIDE
    """The slot of zero."""
    signed: ClassVar[bool] = True
    _names = ("p1", "p10", "p50", "p90", "p99")
    _percents = np.array([1, 10, 50, 90, 99])
    slots = (*(f"bin{n}" for n in range(-SIDE, SIDE + 1)), "nonfinite")

    @property
    def scale_and_offset(self) -> tuple[float, float]:
        """The line that leads from the logarithm of a size to the number of its bin."""
        scale = 1 / math.log(self.GAMMA)
        return scale, 1 - math.log(self.TINY) * scale

    @_quiet
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of some values; those that are not finite are counted and have no bin."""
        data = _data(values)
        finite = np.isfinite(data)
        usable = data if finite.all() else data[finite]
        state = np.empty(self.width)
        state[:-1] = np.bincount(self.bins(usable), minlength=self.width - 1)
        state[-1] = len(data) - len(usable)
        return state

    def bins(self, values: Floats) -> NDArray[np.int64]:
        """Return the slot of each finite value."""
        scale, offset = self.scale_and_offset
        # Steps above 1 from TINY on. The logarithm of 0 is minus infinity, which the bound below takes to 0.
        steps = np.abs(values) if self.signed else np.maximum(values, 0.0)
        np.log(steps, out=steps)
        steps *= scale
        steps += offset
        np.maximum(steps, 0.0, out=steps)
        np.minimum(steps, self.SIDE, out=steps)
        if self.signed:
            np.copysign(steps, values, out=steps)
        # Converted by truncation, so towards the bin of zero from both sides.
        places = steps.astype(np.int64)
        places += self.ZERO
        return places

    def quantile(self, state: Floats, percent: float) -> float | Missing:
        """Return the smallest value with ``percent`` of the data at or below it; NaN if a value is not finite."""
        found = self._quantiles(state, np.array([percent]))
        return found if isinstance(found, Missing) else found[0]

    def values(self, state: Floats) -> dict[str, float | Missing]:
        """Return the usual quantiles."""
        found = self._quantiles(state, self._percents)
        if isinstance(found, Missing):
            return dict.fromkeys(self._names, found)
        return dict(zip(self._names, found, strict=True))

    def _quantiles(self, state: Floats, percents: Floats) -> list[float] | Missing:
        if state[-1]:
            return [math.nan] * len(percents)
        below = state[:-1].cumsum()
        total = below[-1]
        if total == 0:
            return Missing(NO_VALUES)
        # Multiplied first: 7 % of 100 are 7, and 0.07 times 100 is more. Above 0, to find the first bin with data.
        wanted = np.maximum(percents * total / 100, 1e-12)
        places = below.searchsorted(wanted, side="left")
        # Beyond the last place only for counts that no data has.
        found: list[float] = self._middles[np.minimum(places, len(below) - 1)].tolist()
        return found

    @cached_property
    def _middles(self) -> Floats:
        """The value that stands for each slot."""
        steps = np.arange(self.width - 1) - self.ZERO
        # Not the arithmetic middle: from this point both ends of the bin are ACCURACY away, relative to themselves.
        sizes = self.TINY * self.GAMMA ** np.abs(steps) * 2 / (1 + self.GAMMA)
        return np.sign(steps) * sizes


class PositiveQuantiles(Quantiles):
    """Quantiles of values that are not negative; one that is, by rounding, counts as zero."""

    name = "positive-quantiles"
    ZERO = 0
    signed = False
    slots = (*(f"bin{n}" for n in range(Quantiles.SIDE + 1)), "nonfinite")


class LogQuantiles(Quantiles):
    """Quantiles of numbers whose logarithms are given, to within 3 % of the logarithm: precise for numbers near 1."""

    name = "log-quantiles"

    @cached_property
    def _middles(self) -> Floats:
        with _quiet:
            return np.exp(super()._middles)


def quotient(numerator: float, denominator: float, reason: str) -> float | Missing:
    """Return the quotient, or Missing with the reason where the denominator is 0."""
    return Missing(reason) if denominator == 0 else numerator / denominator


SUM, MEAN, RATIO, MOMENTS, EXTREMA, LAST = Sum(), Mean(), Ratio(), Moments(), Extrema(), Last()
QUANTILES, POSITIVE_QUANTILES, LOG_QUANTILES = Quantiles(), PositiveQuantiles(), LogQuantiles()
COMOMENTS = Comoments()
_ALL = (SUM, MEAN, RATIO, MOMENTS, EXTREMA, LAST, QUANTILES, POSITIVE_QUANTILES, LOG_QUANTILES, COMOMENTS)
KINDS: dict[str, StateKind] = {kind.name: kind for kind in _ALL}
