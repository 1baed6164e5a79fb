"""Per-token quantities of a value update, of arrays of valid tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def squared_error(values: Floats, returns: Floats) -> Floats:
    """Return (V - R)²."""
    return np.square(values - returns)


def clipped_squared_error(values: Floats, old_values: Floats, returns: Floats, clip: float) -> Floats:
    """Return the squared error of the value when it may move no further than ``clip`` from where it was."""
    return np.square(np.clip(values, old_values - clip, old_values + clip) - returns)


def value_loss(values: Floats, returns: Floats, old_values: Floats | None = None, clip: float | None = None) -> Floats:
    """Return half the squared error, or half the larger of it and the clipped one; before any coefficient."""
    error = squared_error(values, returns)
    if clip is None or old_values is None:
        return 0.5 * error
    return 0.5 * np.maximum(error, clipped_squared_error(values, old_values, returns, clip))


def value_clip_binds(values: Floats, returns: Floats, old_values: Floats, clip: float) -> Bools:
    """Tell where the clipped error exceeds the unclipped one."""
    return clipped_squared_error(values, old_values, returns, clip) > squared_error(values, returns)
