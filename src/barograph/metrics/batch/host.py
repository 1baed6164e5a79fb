"""A batch on the host: its channels at the valid tokens, and their sums per sequence.

Padding is excluded by selection and not by multiplication: 0 times NaN is NaN. Small batches are copied when they are
measured, and computed together when their step ends: computing the metrics of a few hundred tokens takes as long as
those of some ten thousand, the time of the calls into NumPy. So micro-batches with the same arrays and options become
one packed batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Bools, Floats, Ints
from barograph.metrics.batch.arrays import AXES, LABELS, Batch, to_numpy
from barograph.metrics.batch.inputs import Options, Selection
from barograph.metrics.batch.plan import MeasurementPlan
from barograph.metrics.formulas import sequences
from barograph.metrics.formulas.channels import CHANNELS, Tokens
from barograph.metrics.formulas.sequences import ends_in_repetition, joined_labels
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
