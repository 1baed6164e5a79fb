"""Statistics of every sequence of a batch, computed where its tensors lie, in one pass and without waiting.

The result is a matrix with a row for each sequence and a column for each statistic of each channel: small enough to be
fetched once per step, complete enough that every metric of the batch follows from it on the host, in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SPREAD_SLOTS = ("sum", "squares", "shift", "min", "max", "bad", "nan")
"""Of channels whose spread is wanted: sum and squares are of the distances to ``shift``, so that nothing cancels."""
PLAIN_SLOTS = ("sum", "bad")

SPREAD = (
    "ratio", "advantages", "returns", "old_values", "residual", "mismatch_ratio", "log_prob_difference",
    "probability_difference",
)  # fmt: skip
PLAIN = (
    "nll", "kl_k1", "kl_k2", "kl_k3", "ref_k3", "surrogate", "entropy", "exact_kl", "old_log_probs", "ref_log_probs",
    "old_entropy", "old_minus_ref", "rollout_log_probs", "mismatch", "mismatch_k3", "values", "error", "value_loss",
    "rewards",
)  # fmt: skip
FLAGS = (
    "POLICY", "NLL", "SURROGATE", "DUAL", "REF_LOSS", "ENTROPY", "EXACT", "ADVANTAGES", "RETURNS", "OLD", "REF",
    "OLD_REF", "OLD_ENTROPY", "ROLLOUT", "OLD_VALUES", "RESIDUAL", "VALUES", "ERROR", "VALUE_CLIP", "REWARDS", "ENDS",
)  # fmt: skip
"""The switches of a pass: each fills a few channels of what it needs."""
COUNTED = ("above", "below", "binds", "high", "low", "dual", "value_clip", "ends")

COLUMNS: dict[tuple[str, str], int] = {
    column: place
    for place, column in enumerate(
        [("valid", "sum"), ("response", "sum")]
        + [(channel, slot) for channel in SPREAD for slot in SPREAD_SLOTS]
        + [(channel, slot) for channel in PLAIN for slot in PLAIN_SLOTS]
        + [(channel, "sum") for channel in COUNTED]
    )
}
WIDTH = len(COLUMNS)


def torch_rows(
    channels: dict[str, Callable[[], Any]], valid: Any, response: Any, of_response: frozenset[str], bounds: Any | None
) -> Any:
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
        mask = response if name in of_response else valid
        data = compute()
        if name in COUNTED:
            put(name, "sum", (data.bool() & mask).double())
            continue
        data = torch.where(mask, data.double(), 0.0)
        put(name, "sum", data)
        put(name, "bad", (~torch.isfinite(data)).double())
        if name in SPREAD:
            put(name, "squares", data * data)
            put(name, "nan", torch.isnan(data).double())
            put(name, "min", torch.where(mask, data, torch.inf), "amin")
            put(name, "max", torch.where(mask, data, -torch.inf), "amax")
    return rows


def _per_sequence(values: Any, how: str, bounds: Any | None, sequences: int) -> Any:
    """Reduce token values per sequence: along the rows of a padded batch, between the bounds of a packed one."""
    import torch

    if bounds is None and values.shape[1]:
        return getattr(values, how)(1)
    empty = {"sum": 0.0, "amin": torch.inf, "amax": -torch.inf}[how]
    result = torch.full((sequences,), empty, dtype=values.dtype, device=values.device)
    return result if bounds is None else result.scatter_reduce_(0, owners(bounds, len(values)), values, how)


def handed_over(values: Any, device: Any) -> Any:
    """Return values as a tensor on a device, without waiting: what lies on the host goes through pinned memory."""
    import torch

    tensor = torch.as_tensor(values)
    if tensor.device == torch.device(device) or torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def owners(bounds: Any, tokens: int) -> Any:
    """Return the sequence that each token of a packed batch belongs to."""
    import torch

    places = torch.arange(tokens, device=bounds.device)
    return torch.searchsorted(bounds.long(), places, right=True) - 1
