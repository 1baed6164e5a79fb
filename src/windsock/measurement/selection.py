"""The valid tokens of a batch, picked once: what every statistic of it is computed from, on the host.

Padding is left out by selection and not by multiplication, so that NaN and garbage under the mask cannot matter.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.batch import Batch, to_numpy
from windsock.stats import sequences
from windsock.stats.sequences import Reduction

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Selection:
    """One batch, seen as flat arrays of its valid tokens and arrays of its sequences."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._picked: dict[str, Floats] = {}

    @cached_property
    def response(self) -> Bools:
        """The response mask."""
        return to_numpy(self.batch.response_mask).astype(np.bool_)

    @cached_property
    def valid(self) -> Bools:
        """The response mask and ``keep``, in the shape of the tokens."""
        if self.batch.keep is None:
            return self.response
        keep = to_numpy(self.batch.keep).astype(np.bool_)
        if keep.shape != self.response.shape:
            keep = keep[:, None] if self.batch.cu_seqlens is None else np.repeat(keep, np.diff(self._bounds))
        return self.response & keep

    @cached_property
    def counts(self) -> Ints:
        """How many valid tokens each sequence has."""
        return self._count(self.valid)

    @cached_property
    def response_lengths(self) -> Ints:
        """How many response tokens each sequence has, ``keep`` or not."""
        return self._count(self.response)

    @cached_property
    def prompt_lengths(self) -> Ints:
        """How many prompt tokens each sequence has."""
        if self.batch.prompt_lengths is not None:
            return np.asarray(to_numpy(self.batch.prompt_lengths), np.int64)
        return self.count_rows(to_numpy(self.batch.prompt_mask).astype(np.bool_))

    @staticmethod
    def count_rows(mask: Bools) -> Ints:
        """Count along the last axis."""
        return np.asarray(mask.sum(axis=-1), np.int64)

    def tokens(self, name: str) -> Floats:
        """Return a token array at the valid tokens, in double precision."""
        return self._pick(name, self.valid, "valid")

    def response_tokens(self, name: str) -> Floats:
        """Return a token array at all response tokens, ``keep`` or not."""
        return self._pick(name, self.response, "response")

    def sequence(self, name: str) -> NDArray[Any]:
        """Return an array of the sequences as it is."""
        return to_numpy(getattr(self.batch, name))

    @cached_property
    def log_ratio(self) -> Floats:
        """Current minus old log-prob."""
        return self.tokens("log_probs") - self.tokens("old_log_probs")

    @cached_property
    def ratio(self) -> Floats:
        """The probability ratio of current and old policy."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_ratio)

    @cached_property
    def old_minus_ref(self) -> Floats:
        """Old minus reference log-prob."""
        return self.tokens("old_log_probs") - self.tokens("ref_log_probs")

    @cached_property
    def old_minus_rollout(self) -> Floats:
        """The trainer's minus the rollout engine's log-prob."""
        return self.tokens("old_log_probs") - self.tokens("rollout_log_probs")

    def sums(self, tokens: Floats) -> Floats:
        """Add up valid tokens per sequence, for the sequences that have one."""
        return sequences.sums(tokens, self.counts)[self.counts > 0]

    def means(self, tokens: Floats) -> Floats:
        """Average valid tokens per sequence, for the sequences that have one."""
        return self.sums(tokens) / self.counts[self.counts > 0]

    def reduced(
        self, tokens: Floats, how: Reduction, weights: Floats | None = None, norm: float | None = None
    ) -> tuple[float, float]:
        """Reduce a loss of the valid tokens to numerator and denominator."""
        return sequences.reduced(tokens, self.counts, how, weights, norm)

    @cached_property
    def _bounds(self) -> Ints:
        return np.asarray(to_numpy(self.batch.cu_seqlens), np.int64)

    def _count(self, mask: Bools) -> Ints:
        if self.batch.cu_seqlens is None:
            return self.count_rows(mask)
        before = np.concatenate([[0], np.cumsum(mask, dtype=np.int64)])
        return np.diff(before[self._bounds])

    def _pick(self, name: str, mask: Bools, which: str) -> Floats:
        key = f"{name}/{which}"
        if key not in self._picked:
            self._picked[key] = to_numpy(getattr(self.batch, name))[mask].astype(np.float64, copy=False)
        return self._picked[key]
