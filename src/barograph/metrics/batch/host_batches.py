"""Small batches on the host: copied when they are measured, and computed together when their step ends.

Computing the metrics of a few hundred tokens takes as long as those of some ten thousand: the time is that of the calls
into NumPy. So micro-batches with the same arrays and options become one packed batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.metrics.batch.arrays import AXES, LABELS, Batch, to_numpy
from barograph.metrics.batch.host import HostSelection
from barograph.metrics.batch.plan import MeasurementPlan
from barograph.metrics.formulas.sequences import joined_labels

SMALL = 1 << 14
"""A batch with fewer tokens is small."""
MOST_TOKENS = 1 << 17
"""The tokens of small batches that are kept: their copies take up to about 20 MB."""

Key = tuple[MeasurementPlan, bool, tuple[Any, ...]]
Arrays = dict[str, NDArray[Any]]


class HostBatches:
    """Copies of the small batches of a step that were not computed yet."""

    def __init__(self) -> None:
        self._kept: dict[Key, list[Arrays]] = {}
        self._tokens = 0

    def add(self, batch: Batch, plan: MeasurementPlan) -> HostSelection | None:
        """Keep a small batch; return a large one, or one that finds no room, to be computed now."""
        tokens = math.prod(batch.shape)
        if tokens >= SMALL or self._tokens + tokens > MOST_TOKENS:
            return HostSelection(batch, plan.options)
        arrays = {name: np.array(to_numpy(getattr(batch, name))) for name in plan.used}
        per_sequence = batch.keep is not None and arrays["keep"].shape == (batch.sequences,)
        ids = tuple(arrays.pop("eos_ids").ravel().tolist()) if "eos_ids" in arrays else ()
        self._kept.setdefault((plan, per_sequence, ids), []).append(arrays)
        self._tokens += tokens
        return None

    def merge(self, other: HostBatches) -> None:
        """Take the batches of another one."""
        for key, kept in other._kept.items():
            self._kept.setdefault(key, []).extend(kept)
        self._tokens += other._tokens

    def take(self) -> Iterator[tuple[MeasurementPlan, HostSelection]]:
        """Yield the batches, joined where that is possible, and forget them."""
        kept, self._kept, self._tokens = self._kept, {}, 0
        for (plan, _, ids), batches in kept.items():
            more = {"eos_ids": list(ids)} if ids else {}
            joined = _joined(batches)
            for arrays in batches if joined is None else [joined]:
                yield plan, HostSelection(Batch(**arrays, **more), plan.options)


def _joined(batches: list[Arrays]) -> Arrays | None:
    """Return the arrays of one packed batch; None where its keep could be read as one per sequence."""
    if len(batches) == 1:
        return batches[0]
    lengths = np.concatenate([_lengths(arrays) for arrays in batches])
    joined: Arrays = {}
    for name in batches[0]:
        parts = [arrays[name] for arrays in batches]
        if name in LABELS:
            joined[name] = joined_labels(parts)
        elif AXES[name] == "sequences":
            joined[name] = np.concatenate(parts)
        elif name != "cu_seqlens":
            joined[name] = np.concatenate([part.ravel() for part in parts])
    if "keep" in joined and lengths.sum() == len(lengths):
        return None
    joined["cu_seqlens"] = np.concatenate([[0], np.cumsum(lengths)])
    return joined


def _lengths(arrays: Arrays) -> NDArray[np.int64]:
    """Return the number of tokens of each sequence, padding included."""
    if "cu_seqlens" in arrays:
        return np.diff(arrays["cu_seqlens"]).astype(np.int64)
    sequences, width = arrays["response_mask"].shape
    return np.full(sequences, width, np.int64)
