"""Curves of several runs on common steps, and each as one number: at the last step, and as area under the curve."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Curve = tuple[Floats, Floats]
"""The steps of a run's series in ascending order, and its values."""


def aligned(curves: Sequence[Curve], points: int) -> tuple[Floats, Floats]:
    """Return common steps, at most ``points``, and the values of every run there: runs x steps.

    A run that has no value at a step of another has the one on the line between its neighbours, and NaN outside of its
    own steps. Where there are more steps than points, neighbouring ones are averaged.
    """
    finite = [_finite(curve) for curve in curves]
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
    finite = [steps for steps, _ in map(_finite, curves) if len(steps)]
    if not finite:
        return None
    first, last = max(steps[0] for steps in finite), min(steps[-1] for steps in finite)
    return (float(first), float(last)) if first <= last else None


def last_value(curve: Curve, step: float) -> float:
    """Return the last finite value up to a step; NaN if there is none."""
    steps, values = _finite(curve)
    place = int(np.searchsorted(steps, step, "right")) - 1
    return float(values[place]) if place >= 0 else math.nan


def area(curve: Curve, first: float, last: float) -> float:
    """Return the area under a curve between two steps, divided by their distance: the mean over the steps."""
    steps, values = _finite(curve)
    if not len(steps) or steps[0] > first or steps[-1] < last:
        return math.nan
    inside = (steps > first) & (steps < last)
    x = np.concatenate([[first], steps[inside], [last]])
    y = np.concatenate([[np.interp(first, steps, values)], values[inside], [np.interp(last, steps, values)]])
    if first == last:
        return float(y[0])
    return float(((y[1:] + y[:-1]) / 2 * np.diff(x)).sum() / (last - first))


def _finite(curve: Curve) -> Curve:
    steps, values = np.asarray(curve[0], float), np.asarray(curve[1], float)
    kept = np.isfinite(values)
    return steps[kept], values[kept]


def _at(steps: Floats, curve: Curve) -> Floats:
    own, values = curve
    if len(own) == 0:
        return np.full(len(steps), np.nan)
    return np.interp(steps, own, values, left=np.nan, right=np.nan)
