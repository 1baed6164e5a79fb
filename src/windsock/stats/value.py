"""Per-token formulas of a value update, for NumPy arrays and torch tensors."""

from __future__ import annotations

from typing import Any

from windsock.stats.numpy_or_torch import numpy_or_torch


def squared_error(values: Any, returns: Any) -> Any:
    """Return (V - R)²."""
    return numpy_or_torch(values).square(values - returns)


def clipped_squared_error(values: Any, old_values: Any, returns: Any, clip: float) -> Any:
    """Return the squared error of the value, clipped to within ``clip`` of the old value."""
    xp = numpy_or_torch(values)
    return xp.square(xp.clip(values, old_values - clip, old_values + clip) - returns)


def value_loss(values: Any, returns: Any, old_values: Any | None = None, clip: float | None = None) -> Any:
    """Return half the squared error, or with a clip half the larger of it and the clipped error; no coefficient."""
    error = squared_error(values, returns)
    if clip is None or old_values is None:
        return 0.5 * error
    return 0.5 * numpy_or_torch(values).maximum(error, clipped_squared_error(values, old_values, returns, clip))


def value_clip_binds(values: Any, returns: Any, old_values: Any, clip: float) -> Any:
    """Return where the clipped error is larger than the unclipped one."""
    return clipped_squared_error(values, old_values, returns, clip) > squared_error(values, returns)
