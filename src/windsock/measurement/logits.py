"""What a batch lacks and its logits tell: log-probs, entropies and the exact KL, each in one pass over the logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from windsock.measurement.batch import Batch
from windsock.measurement.options import Options
from windsock.stats.library import library
from windsock.stats.logits import kl_exact, log_prob_and_entropy


def completed(batch: Batch, options: Options, data: bool = True) -> Batch:
    """Return the batch with the token arrays that follow from its logits; what is given stays as it is.

    Where only the current entropy is there, it stands for that of the policy that was sampled as well, about which the
    data part alone asks.
    """
    found: dict[str, Any] = {}
    for prefix, logits in (("", batch.logits), ("old_", batch.old_logits)):
        if logits is not None:
            found |= _of_logits(batch, logits, prefix, options.temperature)
    if batch.exact_kl is None and batch.logits is not None and batch.old_logits is not None:
        logits, old = _array(batch.logits), _array(batch.old_logits)
        found["exact_kl"] = kl_exact(old, logits, options.temperature, _mask(batch, logits))
    entropy = batch.entropy if batch.entropy is not None else found.get("entropy")
    if data and batch.old_entropy is None and "old_entropy" not in found and entropy is not None:
        found["old_entropy"] = entropy
    return batch.having(**found) if found else batch


def _of_logits(batch: Batch, logits: Any, prefix: str, temperature: float) -> dict[str, Any]:
    """Return log-probs and entropy under their names, where the batch has neither."""
    wanted = [name for name in (f"{prefix}log_probs", f"{prefix}entropy") if getattr(batch, name) is None]
    if batch.actions is None:
        wanted = [name for name in wanted if name.endswith("entropy")]
    if not wanted:
        return {}
    logits = _array(logits)
    actions = _array(batch.actions) if batch.actions is not None else _zeros(logits)
    results = log_prob_and_entropy(logits, actions, temperature, _mask(batch, logits))
    return {
        name: result
        for name, result in zip((f"{prefix}log_probs", f"{prefix}entropy"), results, strict=True)
        if name in wanted
    }


def _array(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else np.asarray(value)


def _zeros(logits: Any) -> Any:
    xp = library(logits)
    return xp.zeros_like(logits[..., 0], dtype=xp.int64)


def _mask(batch: Batch, logits: Any) -> Any:
    mask = _array(batch.response_mask)
    return mask.bool() if library(logits) is not np else mask.astype(np.bool_)
