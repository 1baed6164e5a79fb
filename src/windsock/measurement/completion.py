"""Arrays of a batch that follow from others: log-probs, entropies and exact KLs from logits, lengths from masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from windsock.measurement.batch import Batch
from windsock.measurement.options import Options
from windsock.stats.logits import kl_exact, log_prob_and_entropy
from windsock.stats.numpy_or_torch import numpy_or_torch

LOGITS = frozenset(("logits", "old_logits"))
SOURCES = {False: LOGITS, True: LOGITS | {"entropy", "prompt_mask"}}
"""The arrays from which others follow, with and without the data part."""


def completed(batch: Batch, options: Options, data: bool = True) -> Batch:
    """Return the batch with the arrays that follow from its own; given arrays stay as they are.

    ``data`` says whether the data part is measured. Only that part uses the prompt lengths and the entropy of the
    sampled policy, for which the current entropy stands in where neither it nor the old logits are given.
    """
    if batch.given.isdisjoint(SOURCES[data]):
        return batch
    found: dict[str, Any] = {}
    if not batch.given.isdisjoint(LOGITS):
        found = _from_all_logits(batch, options)
    if data:
        found |= _for_data(batch, found)
    return batch.completed(**found) if found else batch


def _from_all_logits(batch: Batch, options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for prefix, logits in (("", batch.logits), ("old_", batch.old_logits)):
        if logits is not None:
            found |= _from_logits(batch, logits, prefix, options.temperature)
    if batch.exact_kl is None and batch.logits is not None and batch.old_logits is not None:
        found["exact_kl"] = _divergence(batch, batch.old_logits, batch.logits, options.temperature)
    if batch.exact_ref_kl is None and batch.logits is not None and batch.ref_logits is not None:
        found["exact_ref_kl"] = _divergence(batch, batch.logits, batch.ref_logits, options.temperature)
    return found


def _for_data(batch: Batch, found: dict[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = {}
    entropy = batch.entropy if batch.entropy is not None else found.get("entropy")
    if batch.old_entropy is None and "old_entropy" not in found and entropy is not None:
        more["old_entropy"] = entropy
    if batch.prompt_lengths is None and batch.prompt_mask is not None:
        more["prompt_lengths"] = (_array(batch.prompt_mask) != 0).sum(-1)
    return more


def _divergence(batch: Batch, left: Any, right: Any, temperature: float) -> Any:
    left, right = _array(left), _array(right)
    return kl_exact(left, right, temperature, _mask(batch, left))


def _from_logits(batch: Batch, logits: Any, prefix: str, temperature: float) -> dict[str, Any]:
    """Return the log-probs and the entropy, and the extremes of current logits, that the batch does not have."""
    names = (f"{prefix}log_probs", f"{prefix}entropy", *(() if prefix else ("highest_logits", "lowest_logits")))
    wanted = [name for name in names if getattr(batch, name) is None]
    if batch.actions is None:
        wanted = [name for name in wanted if not name.endswith("log_probs")]
    if not wanted:
        return {}
    logits = _array(logits)
    # One pass gives all results. Without actions any token will do, as its log-prob is not used.
    actions = _array(batch.actions) if batch.actions is not None else _zeros(logits)
    results = log_prob_and_entropy(logits, actions, temperature, _mask(batch, logits), extremes=not prefix)
    return {name: result for name, result in zip(names, results, strict=True) if name in wanted}


def _array(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else np.asarray(value)


def _zeros(logits: Any) -> Any:
    xp = numpy_or_torch(logits)
    return xp.zeros_like(logits[..., 0], dtype=xp.int64)


def _mask(batch: Batch, logits: Any) -> Any:
    mask = _array(batch.response_mask)
    # Padding is masked before the pass: its logits may be anything, and need not be read.
    return mask.bool() if numpy_or_torch(logits) is not np else mask.astype(np.bool_)
