"""A batch on the host: its channels at the valid tokens, and their sums per sequence.

Padding is excluded by selection and not by multiplication: 0 times NaN is NaN.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Bools, Floats, Ints
from barograph.metrics.batch.arrays import Batch, to_numpy
from barograph.metrics.batch.inputs import Options, Selection
from barograph.metrics.formulas import sequences
from barograph.metrics.formulas.channels import CHANNELS, Tokens
from barograph.metrics.formulas.sequences import ends_in_repetition
from barograph.metrics.states.kinds import StateKind


class HostSelection(Selection):
    """A batch on the host, as flat arrays of its tokens in double precision."""

    def __init__(self, batch: Batch, options: Options) -> None:
        self.batch = batch
        self.given = batch.given
        self.options = options
        self.response = to_numpy(batch.response_mask).astype(np.bool_)
        self.valid = self._kept()
        self.counts, self.response_lengths = self._count(self.valid), self._count(self.response)
        self._tokens = {
            of_response: Tokens(partial(_read, batch, mask), options, keep=True)
            for of_response, mask in ((False, self.valid), (True, self.response))
        }

    def sequence(self, name: str) -> NDArray[Any]:
        """Return an array of the sequences."""
        return to_numpy(getattr(self.batch, name))

    def state(self, kind: StateKind, channel: str, rank: int) -> Floats:
        """Return the state of a channel over all its tokens."""
        return kind.from_values(self.channel(channel), rank)

    def totals(self, channel: str) -> Floats:
        """Return the sum of a channel per sequence."""
        counts = self.response_lengths if CHANNELS[channel].of_response else self.counts
        return sequences.sums(self.channel(channel).astype(np.float64, copy=False), counts)

    def nonfinite(self, channel: str) -> Floats:
        """Return the number of a channel's values per sequence that are NaN or infinite."""
        return sequences.sums((~np.isfinite(self.channel(channel))).astype(np.float64), self.counts)

    def subset(self, chosen: Bools) -> Selection:
        """Return the chosen sequences."""
        return HostPart(self, chosen)

    def repeats(self) -> Bools:
        """Return which sequences end in a repetition."""
        return self._repeats

    @cached_property
    def _repeats(self) -> Bools:
        actions = to_numpy(self.batch.actions).reshape(-1)
        if self.batch.cu_seqlens is not None:
            starts, stops = self._bounds[:-1], self._bounds[1:]
            pairs = zip(starts.tolist(), stops.tolist(), strict=True)
            # The distance of the last response token from the end; 0 for a sequence without one, which is not used.
            behind = [int(self.response[start:stop][::-1].argmax()) if stop > start else 0 for start, stop in pairs]
            lasts = stops - 1 - np.array(behind, np.int64)
        else:
            count, width = self.response.shape
            starts = np.arange(count) * width
            lasts = starts + width - 1 - (self.response[:, ::-1].argmax(axis=1) if width else 0)
        return ends_in_repetition(actions, self.response.reshape(-1), starts, lasts)

    def channel(self, name: str) -> NDArray[Any]:
        """Return a channel at its tokens, one sequence after the other."""
        channel = CHANNELS[name]
        tokens = self._tokens[channel.of_response]
        values: NDArray[Any] = getattr(tokens, name)
        if channel.nan_of is not None and (unknown := np.isnan(getattr(tokens, channel.nan_of))).any():
            values = np.where(unknown, np.nan, values)
        return values

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
        # Differences of the running total are right for empty sequences too, which reduceat is not.
        before = np.concatenate([[0], np.cumsum(mask, dtype=np.int64)])
        return np.diff(before[self._bounds])


class HostPart(HostSelection):
    """Some sequences of a batch on the host. Channels are computed once, for the whole batch."""

    def __init__(self, whole: HostSelection, chosen: Bools) -> None:
        self.batch, self.given = whole.batch, whole.given
        self.options = whole.options
        self.counts, self.response_lengths = whole.counts[chosen], whole.response_lengths[chosen]
        self._whole = whole
        self._chosen = chosen

    def subset(self, chosen: Bools) -> Selection:
        """Return the chosen ones of these sequences."""
        both = self._chosen.copy()
        both[self._chosen] = chosen
        return HostPart(self._whole, both)

    def sequence(self, name: str) -> NDArray[Any]:
        """Return an array of the sequences."""
        return self._whole.sequence(name)[self._chosen]

    def repeats(self) -> Bools:
        """Return which sequences end in a repetition."""
        return self._whole.repeats()[self._chosen]

    def channel(self, name: str) -> NDArray[Any]:
        """Return a channel at its tokens, one sequence after the other."""
        return self._whole.channel(name)[self._places[CHANNELS[name].of_response]]

    @cached_property
    def _places(self) -> dict[bool, Ints]:
        """The places of the tokens among those of the whole batch: of valid ones, and of all of the response."""
        counts = {False: self._whole.counts, True: self._whole.response_lengths}
        return {of: np.flatnonzero(np.repeat(self._chosen, lengths)) for of, lengths in counts.items()}


def _read(batch: Batch, mask: Bools, name: str) -> NDArray[Any]:
    """Return an array of the batch at the tokens of a mask, in double precision; ``eos_ids`` as they are."""
    array = to_numpy(getattr(batch, name))
    return array.ravel() if name == "eos_ids" else array[mask].astype(np.float64, copy=False)
