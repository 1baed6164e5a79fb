"""The kinds of state: the slots of each, how two states merge, and the values of a state.

A state is a row of ``width`` float64 slots, so that many of them stack into an array and merge at once. Every kind has
an identity, ``empty``, and a ``merge`` that is associative and commutative up to rounding. The last slot of each counts
the inputs that were NaN or infinite; such an input makes the value non-finite.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from barograph.base.arrays import Bools, Floats

# NaN and infinities are results here, and NumPy's warnings about them would reach the training's terminal.
_quiet = np.errstate(invalid="ignore", over="ignore", divide="ignore")


class Formula(NamedTuple):
    """How a statistic follows from the slots of a state: a slot, a quotient of two slots, or the root of one."""

    numerator: str
    denominator: str | None = None
    is_root: bool = False


class StateKind(ABC):
    """A kind of mergeable state. Leading axes of a state are a stack of states."""

    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]]
    formulas: ClassVar[Mapping[str, Formula]] = {}
    """The values of a state by the name of the statistic; a kind without formulas has ``statistics``."""
    empty_mark: ClassVar[tuple[str, float] | None] = None
    """A slot, and its content in a state without values."""
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

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of the values of a state."""
        return tuple(self.formulas)

    def values_of(self, states: Floats) -> tuple[Floats, Bools]:
        """Return the values of many states of a kind without formulas: a row for each, and which states have none."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.name


def _data(values: ArrayLike) -> Floats:
    # Sums are in double precision also for float32 and half precision: a million small values lose digits otherwise.
    return np.asarray(values, np.float64).ravel()


def _nonfinite(values: Floats, totals: Floats | None = None) -> Any:
    """Return how many values of each row are not finite; ``totals`` are the sums of the rows, where they are known."""
    # The sum of a row is finite only if all its values are, and there are few sums.
    if totals is not None and math.isfinite(np.maximum.reduce(np.abs(totals), initial=0.0)):
        return 0.0
    return values.shape[-1] - np.isfinite(values).sum(axis=-1)


def _columns(size: int, *columns: Floats | float) -> Floats:
    """Return columns of some size side by side; a number is that of all rows."""
    joined = np.empty((size, len(columns)))
    for place, column in enumerate(columns):
        joined[:, place] = column
    return joined


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
    formulas: ClassVar[Mapping[str, Formula]] = {"sum": Formula("sum")}  # 0 for no values

    @_quiet
    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values."""
        total = rows.sum(axis=-1)
        return _columns(len(rows), total, _nonfinite(rows, total))


class Mean(_Stacked, _Additive):
    """A mean: sum and count, divided when the step is finished."""

    name = "mean"
    slots = ("sum", "count", "nonfinite")
    formulas: ClassVar[Mapping[str, Formula]] = {"mean": Formula("sum", "count")}
    empty_mark = ("count", 0.0)

    @_quiet
    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values."""
        total = rows.sum(axis=-1)
        return _columns(len(rows), total, rows.shape[-1], _nonfinite(rows, total))


class Ratio(_Additive):
    """A quotient of two totals, such as a loss and its denominator."""

    name = "ratio"
    slots = ("numerator", "denominator", "nonfinite")
    formulas: ClassVar[Mapping[str, Formula]] = {"ratio": Formula("numerator", "denominator")}
    empty_mark = ("denominator", 0.0)

    @_quiet
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of pairs of numerator and denominator."""
        data = np.asarray(values, np.float64).reshape(-1, 2)
        return np.array([*data.sum(axis=0), _nonfinite(data.ravel())])


class Moments(_Stacked):
    """Count, sum, and the sum of squared deviations from the mean, which does not cancel as a sum of squares does.

    Squares merge by the distance of the two means (Chan, Golub and LeVeque). The state has the sum and not the mean:
    with an infinity among the values, the mean of all then does not depend on how they were split. The squares are
    NaN in that case.
    """

    name = "moments"
    slots = ("count", "sum", "squares", "nonfinite")
    formulas: ClassVar[Mapping[str, Formula]] = {
        "mean": Formula("sum", "count"),
        "var": Formula("squares", "count"),  # with ddof 0
        "std": Formula("squares", "count", is_root=True),  # NaN for negative squares, which no values have
    }
    empty_mark = ("count", 0.0)

    @_quiet
    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values."""
        size = rows.shape[-1]
        if not size:
            return np.tile(self.empty(), (len(rows), 1))
        total = rows.sum(axis=-1)
        apart = rows - (total / size)[:, None]
        squares = np.square(apart, out=apart).sum(axis=-1)
        return _columns(len(rows), size, total, squares, _nonfinite(rows, total))

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


class Comoments(StateKind):
    """Count, sums, squares and products of two quantities, for their correlation; merged as ``Moments`` are."""

    name = "comoments"
    slots = ("count", "sum_x", "sum_y", "squares_x", "squares_y", "products", "nonfinite")
    statistics = ("correlation",)

    @_quiet
    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of pairs."""
        data = np.asarray(values, np.float64).reshape(-1, 2)
        if not len(data):
            return self.empty()
        totals: list[float] = data.sum(axis=0).tolist()
        if not math.isfinite(sum(totals)) and (bad := _nonfinite(data.sum(axis=1))):
            return np.array([len(data), *totals, *[np.nan] * 3, bad])
        x, y = (column - total / len(data) for column, total in zip(data.T, totals, strict=True))
        return np.array([len(data), *totals, x @ x, y @ y, x @ y, 0.0])

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

    @_quiet
    def values_of(self, states: Floats) -> tuple[Floats, Bools]:
        """Return the Pearson correlations; there is none where one side does not vary."""
        count, sums, squares = states[:, :1], states[:, 1:3], states[:, 3:5]
        # Equal values differ from their mean by its rounding.
        constant = (squares <= count * np.square(1e-12 * sums / count)).any(axis=1)
        correlation = states[:, 5:6] / np.sqrt(squares[:, :1]) / np.sqrt(squares[:, 1:])
        return np.clip(correlation, -1.0, 1.0), constant | (count[:, 0] == 0)


class Extrema(_Stacked):
    """Smallest and largest value, and the rank of each. A NaN anywhere makes both NaN."""

    name = "extrema"
    slots = ("min", "min_rank", "max", "max_rank", "nonfinite")
    formulas: ClassVar[Mapping[str, Formula]] = {name: Formula(name) for name in ("min", "min_rank", "max", "max_rank")}
    empty_mark = ("min_rank", math.inf)

    def empty(self) -> Floats:
        """Return the state of no data: every value is inside of its bounds."""
        # The infinite rank marks an empty state; an infinite bound may be data.
        return np.array([math.inf, math.inf, -math.inf, math.inf, 0.0])

    def from_rows(self, rows: Floats, rank: int = 0) -> Floats:
        """Return the state of each row of values of one rank."""
        if not rows.shape[-1]:
            return np.tile(self.empty(), (len(rows), 1))
        low, high = rows.min(axis=-1), rows.max(axis=-1)
        # Both are finite only if all values are.
        return _columns(len(rows), low, rank, high, rank, _nonfinite(rows, np.maximum(np.abs(low), np.abs(high))))

    @_quiet
    def merge(self, a: Floats, b: Floats) -> Floats:
        """Return the smaller minimum and the larger maximum; of equal ones those of the lower rank.

        The choice of the rank makes the result independent of the order of merging.
        """
        low, low_rank = _outer(a[..., 0], a[..., 1], b[..., 0], b[..., 1])
        # A maximum is the minimum of negated values, with the same rules for ties and NaN.
        high, high_rank = _outer(-a[..., 2], a[..., 3], -b[..., 2], b[..., 3])
        return np.stack([low, low_rank, -high, high_rank, a[..., 4] + b[..., 4]], axis=-1)


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
    formulas: ClassVar[Mapping[str, Formula]] = {"last": Formula("value")}
    empty_mark = ("order", -math.inf)

    def empty(self) -> Floats:
        """Return the state of no data: older than anything."""
        return np.array([math.nan, -math.inf, 0.0])

    def from_values(self, values: ArrayLike, rank: int = 0) -> Floats:
        """Return the state of pairs of value and order."""
        pairs = np.asarray(values, np.float64).reshape(-1, 2).tolist()
        states = [np.array([value, order, float(not math.isfinite(value))]) for value, order in pairs]
        return reduce(self.merge, states) if states else self.empty()

    def merge(self, a: Floats, b: Floats) -> Floats:
        """Return the newer state; of equally new ones the larger, so that the order of merging does not matter."""
        # As the largest value NaN wins every tie. Compared as it is, it would win or lose by its side.
        a_value, b_value = (np.where(np.isnan(s[..., 0]), np.inf, s[..., 0]) for s in (a, b))
        a_wins = (a[..., 1] > b[..., 1]) | ((a[..., 1] == b[..., 1]) & (a_value >= b_value))
        return np.where(a_wins[..., None], a, b)


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
    statistics = ("p1", "p10", "p50", "p90", "p99")
    percents = np.array([1, 10, 50, 90, 99])
    """The statistics as numbers."""
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

    def values_of(self, states: Floats) -> tuple[Floats, Bools]:
        """Return the usual quantiles."""
        below = states[:, :-1].cumsum(axis=1)
        found = np.array([self._at(counts, self.percents) for counts in below])
        bad = states[:, -1] != 0
        if bad.any():
            found[bad] = math.nan
        return found, (below[:, -1] == 0) & ~bad

    def _at(self, below: Floats, percents: Floats) -> Floats:
        """Return the smallest values that have some percents of the data at or below them."""
        # Multiplied first: 7 % of 100 are 7, and 0.07 times 100 is more.
        places = below.searchsorted(percents * below[-1] / 100, side="left")
        # Beyond the last place only for counts that no data has.
        found: Floats = self.middles.take(places, mode="clip")
        return found

    @cached_property
    def middles(self) -> Floats:
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
    def middles(self) -> Floats:
        """The value that stands for each slot."""
        with _quiet:
            return np.exp(super().middles)


SUM, MEAN, RATIO, MOMENTS, EXTREMA, LAST = Sum(), Mean(), Ratio(), Moments(), Extrema(), Last()
QUANTILES, POSITIVE_QUANTILES, LOG_QUANTILES = Quantiles(), PositiveQuantiles(), LogQuantiles()
COMOMENTS = Comoments()
_ALL = (SUM, MEAN, RATIO, MOMENTS, EXTREMA, LAST, QUANTILES, POSITIVE_QUANTILES, LOG_QUANTILES, COMOMENTS)
KINDS: dict[str, StateKind] = {kind.name: kind for kind in _ALL}
