"""A batch as metrics see it: channels of valid tokens, sums and counts of sequences. This is the host's.

Padding is left out by selection and not by multiplication, so that NaN and garbage under the mask cannot matter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.batch import Batch, to_numpy
from windsock.measurement.channels import CHANNELS, RESPONSE
from windsock.measurement.options import Options
from windsock.states import StateKind
from windsock.stats import sequences

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Selection(ABC):
    """What the quantities of a batch are computed from, wherever its arrays lie."""

    batch: Batch
    options: Options
    counts: Ints
    """How many valid tokens each sequence has."""
    response_lengths: Ints
    """How many response tokens each sequence has, ``keep`` or not."""

    @abstractmethod
    def state(self, kind: StateKind, channel: str, rank: int) -> Floats:
        """Return the state of a channel over all its tokens."""

    @abstractmethod
    def totals(self, channel: str) -> Floats:
        """Add a channel up per sequence; a sequence without tokens has 0."""

    def sequence(self, name: str) -> NDArray[Any]:
        """Return an array of the sequences as it is."""
        return to_numpy(getattr(self.batch, name))

    @cached_property
    def prompt_lengths(self) -> Ints:
        """How many prompt tokens each sequence has."""
        if self.batch.prompt_lengths is not None:
            return np.asarray(self.sequence("prompt_lengths"), np.int64)
        return np.asarray(self.sequence("prompt_mask").astype(np.bool_).sum(axis=-1), np.int64)

    def sums(self, channel: str) -> Floats:
        """Add a channel up per sequence, for the sequences that have a valid token."""
        return self.totals(channel)[self.counts > 0]

    def means(self, channel: str) -> Floats:
        """Average a channel per sequence, for the sequences that have a valid token."""
        return self.sums(channel) / self.counts[self.counts > 0]

    def reduced(self, channel: str, weights: Floats | None = None, chosen: Bools | None = None) -> tuple[float, float]:
        """Reduce a loss to numerator and denominator, of all sequences or the chosen ones."""
        counts = self.counts if chosen is None else np.where(chosen, self.counts, 0)
        return sequences.reduced(self.totals(channel), counts, self.options.loss, weights, self.options.loss_norm)


class HostSelection(Selection):
    """A batch whose arrays are on the host, seen as flat arrays of its tokens in double precision."""

    def __init__(self, batch: Batch, options: Options) -> None:
        self.batch = batch
        self.options = options
        self.response = to_numpy(batch.response_mask).astype(np.bool_)
        self.valid = self._kept()
        self.counts, self.response_lengths = self._count(self.valid), self._count(self.response)
        self._channels: dict[str, NDArray[Any]] = {}
        self._picked: dict[tuple[str, bool], Floats] = {}

    def state(self, kind: StateKind, channel: str, rank: int) -> Floats:
        """Return the state of a channel over all its tokens."""
        return kind.of(self.channel(channel), rank)

    def totals(self, channel: str) -> Floats:
        """Add a channel up per sequence."""
        counts = self.response_lengths if channel in RESPONSE else self.counts
        return sequences.sums(self.channel(channel).astype(np.float64, copy=False), counts)

    def channel(self, name: str) -> NDArray[Any]:
        """Return a channel at its tokens, one sequence after the other."""
        if name not in self._channels:
            mask = self.response if name in RESPONSE else self.valid
            self._channels[name] = CHANNELS[name](lambda field: self._pick(field, mask), self.options)
        return self._channels[name]

    def _pick(self, name: str, mask: Bools) -> Floats:
        key = name, mask is self.response
        if key not in self._picked:
            self._picked[key] = self._tokens(name)[mask].astype(np.float64, copy=False)
        return self._picked[key]

    def _tokens(self, name: str) -> NDArray[Any]:
        if name == "ends":
            return np.isin(to_numpy(self.batch.actions), np.asarray(self.batch.eos_ids).ravel())
        return to_numpy(getattr(self.batch, name))

    def _kept(self) -> Bools:
        if self.batch.keep is None:
            return self.response
        keep = to_numpy(self.batch.keep).astype(np.bool_)
        if keep.shape == (self.batch.sequences,):
            keep = keep[:, None] if self.batch.cu_seqlens is None else np.repeat(keep, np.diff(self._bounds))
        return self.response & keep

    @cached_property
    def _bounds(self) -> Ints:
        return np.asarray(to_numpy(self.batch.cu_seqlens), np.int64)

    def _count(self, mask: Bools) -> Ints:
        if self.batch.cu_seqlens is None:
            return np.asarray(mask.sum(axis=-1), np.int64)
        before = np.concatenate([[0], np.cumsum(mask, dtype=np.int64)])
        return np.diff(before[self._bounds])
