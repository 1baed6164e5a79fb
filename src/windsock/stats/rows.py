"""Statistics of every sequence of a batch, computed on the device of its tensors, in one pass and without waiting.

The result is a matrix with a row for each sequence and a column for each statistic of each channel. It is small enough
to be copied once per step, and complete enough for the host to compute every metric of the batch from it, in double
precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windsock.stats.channels import CHANNELS, Channel, Statistics

SLOTS: dict[Statistics, tuple[str, ...]] = {
    # The sum and the squares of a spread are of the distances to ``shift``, so that nothing cancels.
    "spread": ("sum", "squares", "shift", "min", "max", "bad", "nan"),
    "sum": ("sum", "bad", "nan"),
    "count": ("sum",),
}
STORED: tuple[Channel, ...] = tuple(
    channel
    for statistics in SLOTS
    for channel in CHANNELS.values()
    if channel.statistics == statistics and not channel.combines
)
"""The channels that a pass computes, in the order of their columns: spreads, then sums, then counts."""

COLUMNS: dict[tuple[str, str], int] = {
    column: place
    for place, column in enumerate(
        [("valid", "sum"), ("response", "sum")]
        + [(channel.name, slot) for channel in STORED for slot in SLOTS[channel.statistics]]
    )
}
WIDTH = len(COLUMNS)


def torch_rows(channels: Mapping[str, Callable[[], Any]], valid: Any, response: Any, bounds: Any | None) -> Any:
    """Return the matrix by plain torch operations, for devices without Triton. Nothing here waits for the device.

    ``channels`` compute token arrays; ``valid`` and ``response`` are boolean masks; ``bounds`` are the boundaries of a
    packed batch, or None for a padded one.
    """
    import torch

    sequences = len(valid) if bounds is None else len(bounds) - 1
    rows = torch.zeros(sequences, WIDTH, dtype=torch.float64, device=valid.device)

    def put(channel: str, slot: str, values: Any, how: str = "sum") -> None:
        rows[:, COLUMNS[channel, slot]] = _per_sequence(values, how, bounds, sequences)

    put("valid", "sum", valid.double())
    put("response", "sum", response.double())
    for name, compute in channels.items():
        channel = CHANNELS[name]
        mask = response if channel.of_response else valid
        data = compute()
        if channel.statistics == "count":
            put(name, "sum", (data.bool() & mask).double())
            continue
        # Double precision has digits to spare, so the column of the shift stays 0.
        data = torch.where(mask, data.double(), 0.0)
        put(name, "sum", data)
        put(name, "bad", (~torch.isfinite(data)).double())
        put(name, "nan", torch.isnan(data).double())
        if channel.statistics == "spread":
            put(name, "squares", data * data)
            put(name, "min", torch.where(mask, data, torch.inf), "amin")
            put(name, "max", torch.where(mask, data, -torch.inf), "amax")
    return rows


def _per_sequence(values: Any, how: str, bounds: Any | None, sequences: int) -> Any:
    """Reduce token values per sequence: along the rows of a padded batch, between the bounds of a packed one."""
    import torch

    # Of a width of 0 torch has no minimum.
    if bounds is None and values.shape[1]:
        return getattr(values, how)(1)
    empty = {"sum": 0.0, "amin": torch.inf, "amax": -torch.inf}[how]
    result = torch.full((sequences,), empty, dtype=values.dtype, device=values.device)
    return result if bounds is None else result.scatter_reduce_(0, owners(bounds, len(values)), values, how)


def moved_to(device: Any, values: Any) -> Any:
    """Return values as a tensor on a device, without waiting: the copy from the host is from pinned memory."""
    import torch

    tensor = torch.as_tensor(values)
    if tensor.device == torch.device(device) or torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def owners(bounds: Any, tokens: int) -> Any:
    """Return the sequence that each token of a packed batch belongs to."""
    import torch

    places = torch.arange(tokens, device=bounds.device)
    # Not repeat_interleave, which waits for the device to learn how long its result is.
    return torch.searchsorted(bounds.long(), places, right=True) - 1
