"""Per-token quantities of a value update, of NumPy arrays or torch tensors."""

from __future__ import annotations

from typing import Any

from windsock.stats.numpy_or_torch import numpy_or_torch


def squared_error(values: Any, returns: Any) -> Any:
    """Return (V - R)²."""
    return numpy_or_torch(values).square(values - returns)


def clipped_squared_error(values: Any, old_values: Any, returns: Any, clip: float) -> Any:
    """Return the squared error of the value when it may move no further than ``clip`` from where it was."""
    xp = numpy_or_torch(values)
    return xp.square(xp.clip(values, old_values - clip, old_values + clip) - returns)


def value_loss(values: Any, returns: Any, old_values: Any | None = None, clip: float | None = None) -> Any:
    """Return half the squared error, or half the larger of it and the clipped one; before any coefficient."""
    error = squared_error(values, returns)
    if clip is None or old_values is None:
        return 0.5 * error
    return 0.5 * numpy_or_torch(values).maximum(error, clipped_squared_error(values, old_values, returns, clip))


def value_clip_binds(values: Any, returns: Any, old_values: Any, clip: float) -> Any:
    """Tell where the clipped error exceeds the unclipped one."""
    return clipped_squared_error(values, old_values, returns, clip) > squared_error(values, returns)
