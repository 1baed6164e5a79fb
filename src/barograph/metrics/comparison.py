"""Comparison of runs as groups of seeds: which runs differ only in the seed, means of a few independent runs with 95 %
intervals, curves with bands on common steps, each as one number, and whether one group beats another.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats

SEED = re.compile(r"(?:.*_)?seeds?(?:_.*)?$", re.IGNORECASE)
LABEL = re.compile(
    r"(?:(?:wandb_|swanlab_|tracker_)?(?:project|run|exp|experiment|trial|job)(?:_?(?:name|id|group))?"
    r"|name|id|uuid|tags?|notes?|comment|timestamp|date|host(?:name)?|(?:\w+_)?(?:port|addr|address)"
    r"|(?:\w+_)?(?:out|output|log|logs|logging|save|ckpt|checkpoint|checkpoints|local|run|work|working|cache|tmp)"
    r"_?(?:dir|path|folder|file))$",
    re.IGNORECASE,
)


def is_seed(key: str) -> bool:
    """Return whether a key of a config is that of a seed: ``seed``, ``data_seed``, ``trainer.random_seed``."""
    return SEED.match(key.rpartition(".")[2]) is not None


def is_label(key: str) -> bool:
    """Return whether a key only names a run or its place: ``run_name``, ``output_dir``, ``master_port``."""
    return LABEL.match(key.rpartition(".")[2]) is not None


def seed_of(config: Mapping[str, Any]) -> str | None:
    """Return the seeds in a flat config as one text; None if it has none."""
    found = [f"{config[key]}" for key in sorted(config) if is_seed(key)]
    return " ".join(found) or None


def setting_digest(config: Mapping[str, Any]) -> str | None:
    """Return a digest of everything in a flat config that is no seed and no label; None if nothing is left.

    Runs with the same digest differ only in the seed.
    """
    setting = sorted((key, value) for key, value in config.items() if not is_seed(key) and not is_label(key))
    if not setting:
        return None
    return blake2b(json.dumps(setting, default=str).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


COVERAGE = 0.95

NAN = math.nan


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


Curve = tuple[Floats, Floats]
"""The steps of a run's series in ascending order, and its values."""


def aligned(curves: Sequence[Curve], points: int) -> tuple[Floats, Floats]:
    """Return common steps, at most ``points``, and the values of every run there: runs x steps.

    A run that has no value at a step of another has the one on the line between its neighbours, and NaN outside of its
    own steps. Where there are more steps than points, neighbouring ones are averaged.
    """
    finite = [_finite_points(curve) for curve in curves]
    known = [steps for steps, _ in finite if len(steps)]
    if not known:
        return np.empty(0), np.empty((len(curves), 0))
    steps = np.unique(np.concatenate(known))
    values = np.array([_at(steps, curve) for curve in finite])
    if len(steps) <= points:
        return steps, values
    starts = np.linspace(0, len(steps), points, endpoint=False).astype(int)
    present = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        sums = np.add.reduceat(np.where(present, values, 0.0), starts, axis=1)
        means = sums / np.add.reduceat(present, starts, axis=1, dtype=float)
    ends = np.append(starts[1:], len(steps)) - 1
    return steps[ends], means


def common_steps(curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Return the first and the last step that all curves with values cover; None if there are none."""
    finite = [steps for steps, _ in map(_finite_points, curves) if len(steps)]
    if not finite:
        return None
    first, last = max(steps[0] for steps in finite), min(steps[-1] for steps in finite)
    return (float(first), float(last)) if first <= last else None


def last_value(curve: Curve, step: float) -> float:
    """Return the last finite value up to a step; NaN if there is none."""
    steps, values = _finite_points(curve)
    place = int(np.searchsorted(steps, step, "right")) - 1
    return float(values[place]) if place >= 0 else math.nan


def area(curve: Curve, first: float, last: float) -> float:
    """Return the area under a curve between two steps, divided by their distance: the mean over the steps."""
    steps, values = _finite_points(curve)
    if not len(steps) or steps[0] > first or steps[-1] < last:
        return math.nan
    inside = (steps > first) & (steps < last)
    x = np.concatenate([[first], steps[inside], [last]])
    y = np.concatenate([[np.interp(first, steps, values)], values[inside], [np.interp(last, steps, values)]])
    if first == last:
        return float(y[0])
    return float(((y[1:] + y[:-1]) / 2 * np.diff(x)).sum() / (last - first))


def _finite_points(curve: Curve) -> Curve:
    steps, values = np.asarray(curve[0], float), np.asarray(curve[1], float)
    kept = np.isfinite(values)
    return steps[kept], values[kept]


def _at(steps: Floats, curve: Curve) -> Floats:
    own, values = curve
    if len(own) == 0:
        return np.full(len(steps), np.nan)
    return np.interp(steps, own, values, left=np.nan, right=np.nan)


MIN_SEEDS = 3
"""Runs that each group needs: two give an interval too, but no idea of whether it can be trusted."""

Word = Literal["better", "worse", "higher", "lower", "undecided", "too few", "nothing"]

WORDS: dict[str, tuple[Word, Word]] = {"higher": ("better", "worse"), "lower": ("worse", "better")}


@dataclass(frozen=True, slots=True)
class Measure:
    """A group by one number of each of its runs, and how it differs from the group that it is compared with."""

    values: tuple[float, ...]
    mean: Interval
    difference: Interval | None = None
    word: Word | None = None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """A group of runs by its values at the last common step, and by the areas under its curves."""

    last: Measure
    area: Measure


@dataclass(frozen=True, slots=True)
class Comparison:
    """Groups of runs compared with the first of them, over the steps that all runs cover."""

    steps: tuple[float, float] | None
    groups: dict[str, GroupResult]


def compare_groups(groups: Mapping[str, Sequence[Curve]], direction: str = "none") -> Comparison:
    """Compare groups of curves with the first one; ``direction`` is which values are better: higher, lower or none."""
    steps = common_steps([curve for curves in groups.values() for curve in curves])
    lasts = {name: [last_value(one, steps[1]) if steps else float("nan") for one in groups[name]] for name in groups}
    areas = {name: [area(one, *steps) if steps else float("nan") for one in groups[name]] for name in groups}
    base = next(iter(groups), None)
    found = {
        name: GroupResult(
            *(_measure(values[name], None if name == base else values[base], direction) for values in (lasts, areas))
        )
        for name in groups
        if base is not None
    }
    return Comparison(steps, found)


def _measure(values: Sequence[float], base: Sequence[float] | None, direction: str) -> Measure:
    mean = mean_interval(values)
    if base is None:
        return Measure(tuple(values), mean)
    difference = difference_interval(values, base)
    return Measure(tuple(values), mean, difference, judged(difference, direction))


def judged(difference: Interval, direction: str = "none") -> Word:
    """Return what an interval of a difference says: it decides where it does not contain 0."""
    if difference.count == 0:
        return "nothing"
    if difference.count < MIN_SEEDS or not difference.is_known:
        return "too few"
    if difference.low <= 0.0 <= difference.high:
        return "undecided"
    above, below = WORDS.get(direction, ("higher", "lower"))
    return above if difference.mean > 0 else below
