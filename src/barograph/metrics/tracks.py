"""Tracks: the values of one signal over the rows of a run, with statistics of what was known at each row.

Every statistic of a row uses this row and earlier ones only, and at most ``MAX_WINDOW`` of them, the first rows, or
the rows of a schedule. So a rule says the same while a run goes on as afterwards, and a new row costs one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from barograph.base.arrays import Floats, Ints

Levels = NDArray[np.int8]
Statistic = Callable[..., Any]

MAX_WINDOW = 50
MIN_TREND = 20  # rows before a trend is judged
MIN_DEX = 0.05  # of the spread of logarithms: a flat series has no outliers of a percent
MAD_TO_SD = 1.4826


@dataclass(frozen=True)
class Trend:
    """The trend of a series up to each row: the rise from the first to the last third in units of the noise, and the
    probability of at least this trend by chance (Mann-Kendall, two-sided).
    """

    effect: Floats
    chance: Floats


@dataclass(frozen=True)
class Track:
    """The values that a run logged under one name. ``values`` has NaN and infinities as they were logged."""

    key: str
    name: str
    metric: str
    steps: Ints
    values: Floats
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # statistics of the first rows

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def finite(self) -> Floats:
        """The values, where one that is not finite is replaced by the last finite one before it."""
        good = np.isfinite(self.values)
        if good.all():
            return self.values
        place = np.maximum.accumulate(np.where(good, np.arange(len(good)), -1))
        return np.where(place >= 0, self.values[place], np.nan)

    @cached_property
    def is_constant(self) -> bool:
        """Whether all values are the same: then nothing is measured, or nothing happens."""
        return len(self) > 0 and bool((self.values == self.values[0]).all())

    def first(self, count: int) -> float:
        """Return the median of the first rows."""
        return _median(self.finite[:count])

    def mean(self, width: int) -> Floats:
        """Return the mean of the last rows, up to each row."""
        return self._statistic(("mean", width), lambda start: _rolling(self.finite, width, _quiet_mean, start))

    def median(self, width: int) -> Floats:
        """Return the median of the last rows, up to each row."""
        return self._statistic(("median", width), lambda start: _rolling(self.finite, width, _quiet_median, start))

    def largest(self, width: int) -> Floats:
        """Return the largest of the last rows."""
        return self._statistic(("largest", width), lambda start: _rolling(self.finite, width, np.fmax.reduce, start))

    def share(self, condition: NDArray[np.bool_], width: int) -> Floats:
        """Return the share of the last rows in which a condition holds; NaN while there are fewer than ``width``."""
        found = _rolling(condition.astype(np.float64), width, _quiet_mean)
        found[: min(width - 1, len(found))] = math.nan
        return found

    def outlying(self, width: int = MAX_WINDOW, least: int = 10) -> Floats:
        """Return how far the logarithm of each value lies above those before it, in robust standard deviations."""
        return self._statistic(("outlying", width, least), lambda start: _outlying(self.finite, width, least, start))

    @property
    def trend(self) -> Trend:
        """The trend up to each row; computed at some rows, about twenty per doubling, and kept in between."""
        found = self.scheduled("trend", lambda rows: _trend(self.finite[:rows]), (math.nan, 1.0))
        return Trend(found[:, 0], found[:, 1])

    def scheduled(
        self, what: Any, compute: Callable[[int], Sequence[float]], first: Sequence[float], least: int = MIN_TREND
    ) -> Floats:
        """Return numbers for each row that cost too much for every row: they are computed at some and kept in between.

        ``compute`` gets a number of rows, at least ``least``; ``first`` are the numbers of the rows before.
        """

        def since(start: int) -> Floats:
            found = np.empty((len(self) - start, len(first)))
            found[:] = self._kept[what][start - 1] if start else first
            for rows in scheduled_rows(len(self), least):
                if rows > start:
                    found[rows - 1 - start :] = compute(rows)
            return found

        return self._statistic(what, since)

    def _statistic(self, what: Any, compute: Callable[[int], Floats]) -> Floats:
        """Return a statistic of each row. What earlier rows have is kept: ``compute`` gets the first new row."""
        known: Floats | None = self._kept.get(what)
        start = 0 if known is None else len(known)
        if start < len(self) or known is None:
            known = compute(start) if known is None else np.concatenate([known, compute(start)])
            self._kept[what] = known
        return known[: len(self)].copy()

    def replaced(self, values: Floats) -> Track:
        """Return a track with other values at the same steps."""
        return Track(self.key, self.name, self.metric, self.steps, values)

    def derived(self, what: str, steps: Ints, values: Floats) -> Track:
        """Return a track that is computed from this one row by row, so that its statistics can be kept with this."""
        return Track(self.key, self.name, self.metric, steps, values, self._kept.setdefault(("derived", what), {}))

    def extended(self, steps: Ints, values: Floats) -> Track:
        """Return the track with further rows, which keeps what is known of the first ones if these are the same."""
        rows = len(self)
        is_longer = rows <= len(steps) and np.array_equal(self.steps, steps[:rows])
        same = is_longer and np.array_equal(self.values, values[:rows], equal_nan=True)
        return Track(self.key, self.name, self.metric, steps, values, self._kept if same else {})

    def upto(self, rows: int) -> Track:
        """Return the first rows."""
        return Track(self.key, self.name, self.metric, self.steps[:rows], self.values[:rows])


def scheduled_rows(count: int, least: int = MIN_TREND) -> list[int]:
    """Return the numbers of rows at which trends are computed."""
    found, rows = [], least
    while rows <= count:
        found.append(rows)
        rows += max(1, rows // 20)
    return found


def _trend(values: Floats) -> tuple[float, float]:
    return rise(values), kendall_chance(values)


def rise(values: Floats) -> float:
    """Return the rise from the first third to the last in units of the noise around the straight line."""
    values = values[np.isfinite(values)]
    third = max(1, len(values) // 3)
    if len(values) < 3:
        return math.nan
    change = float(values[-third:].mean() - values[:third].mean())
    places = np.arange(len(values)) - (len(values) - 1) / 2
    rest = values - values.mean()
    noise = math.sqrt(float(np.mean((rest - places * (places @ rest) / (places @ places)) ** 2)))
    scale = float(np.abs(values).max())
    if noise <= 1e-12 * scale:
        return math.copysign(math.inf, change) if abs(change) > 1e-9 * scale else 0.0
    return change / noise


def kendall_chance(values: Floats, most: int = 300) -> float:
    """Return the probability that independent values have a trend as monotone as these (Mann-Kendall, with ties).

    Neighbours of a training are not independent, so long series are averaged to at most ``most`` blocks.
    """
    values = values[np.isfinite(values)]
    count = len(values)
    if count < 4:
        return 1.0
    if count > most:
        values = _block_means(values, most)
        count = most
    score = float(np.sign(values[None, :] - values[:, None])[_above(count)].sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (count * (count - 1) * (2 * count + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance <= 0:
        return 1.0
    z = (score - math.copysign(1, score)) / math.sqrt(variance) if score else 0.0
    return math.erfc(abs(z) / math.sqrt(2))


def _block_means(values: Floats, blocks: int) -> Floats:
    """Return the means of blocks of equal length; the first ones have one value more if there is a rest."""
    length, rest = divmod(len(values), blocks)
    cut = rest * (length + 1)
    means = (values[:cut].reshape(rest, length + 1).mean(1), values[cut:].reshape(-1, length).mean(1))
    return np.concatenate(means)


@lru_cache(4)
def _above(count: int) -> NDArray[np.bool_]:
    """Return which entries of a square matrix are above its diagonal."""
    return np.triu(np.ones((count, count), bool), 1)


def _rolling(values: Floats, width: int, how: Statistic, start: int = 0) -> Floats:
    """Return a statistic of the last ``width`` values up to each from ``start`` on; at first of what there is."""
    early = [how(values[: row + 1]) for row in range(start, min(width - 1, len(values)))]
    first = max(start - width + 1, 0)
    late = how(sliding_window_view(values[first:], width), axis=1) if len(values) - first >= width else []
    return np.concatenate([early, late])


def _outlying(values: Floats, width: int, least: int, start: int) -> Floats:
    first = max(start - width, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log10(np.where(values[first:] > 0, values[first:], np.nan))
    found = np.full(len(values) - start, math.nan)
    whole = _outlying_windows(logs, width)
    if whole is not None and len(whole):
        places = np.arange(first + width, len(values))
        new = places >= start
        found[places[new] - start] = whole[new]
    for row in range(max(start, least), len(values) if whole is None else min(first + width, len(values))):
        before = logs[max(0, row - width - first) : row - first]
        before = before[np.isfinite(before)]
        if len(before) >= least:
            middle = np.median(before)
            spread = max(MAD_TO_SD * float(np.median(np.abs(before - middle))), MIN_DEX)
            found[row - start] = (logs[row - first] - middle) / spread
    return found


def _outlying_windows(logs: Floats, width: int) -> Floats | None:
    """Return how far each value lies above the ``width`` before it; None if one of them is no number."""
    if not np.isfinite(logs).all():
        return None
    if len(logs) <= width:
        return np.empty(0)
    windows = sliding_window_view(logs[:-1], width)
    middle = np.median(windows, axis=1)
    spread = MAD_TO_SD * np.median(np.abs(windows - middle[:, None]), axis=1)
    found: Floats = (logs[width:] - middle) / np.maximum(spread, MIN_DEX)
    return found


def _quiet_mean(values: Floats, axis: int = 0) -> Any:
    """Return the mean of the numbers, without those that are NaN; NaN if there is none."""
    if not np.isnan(values).any():
        return values.mean(axis)
    counts = (~np.isnan(values)).sum(axis)
    return np.where(counts > 0, np.nansum(values, axis) / np.maximum(counts, 1), math.nan)


def _quiet_median(values: Floats, axis: int = 0) -> Any:
    """Return the median of the numbers, without those that are NaN; NaN if there is none."""
    if not np.isnan(values).any():
        return np.median(values, axis)
    # NumPy warns where there is none, and to ignore a warning is to change what other threads do with theirs.
    has_none = np.isnan(values).all(axis)
    filled = np.where(np.expand_dims(has_none, axis), 0.0, values)
    return np.where(has_none, math.nan, np.nanmedian(filled, axis))


def _median(values: Floats) -> float:
    good = values[np.isfinite(values)]
    return float(np.median(good)) if len(good) else math.nan
