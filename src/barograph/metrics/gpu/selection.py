"""Batches measured on a device: the statistics of their sequences, and the metrics that follow from those.

States that follow from sums over a whole batch, which the device has computed, are computed all at once: where each
slot comes from is found out once for a plan, and then a step needs a few calls of NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Bools, Floats, Ints
from barograph.metrics.batch.arrays import LABELS, to_numpy
from barograph.metrics.batch.inputs import Selection
from barograph.metrics.batch.plan import Fetched, MeasurementPlan, PackedStates, packing_of
from barograph.metrics.batch.quantities import RANK, Quantity, Sum
from barograph.metrics.formulas.channels import CHANNELS
from barograph.metrics.formulas.sequences import LossSums, joined_labels
from barograph.metrics.formulas.table import COUNT_SLOTS, REDUCED_SLOTS, WEIGHT, SequenceTable
from barograph.metrics.states.kinds import EXTREMA, MEAN, MOMENTS, Quantiles, StateKind

ZERO = ("valid", "odd")
"""A statistic that is always 0."""


class ReducedStates:
    """Where the slots of a plan's states are among the statistics that a device reduces."""

    def __init__(self, plan: MeasurementPlan, table: SequenceTable) -> None:
        summed = [(quantity.state, quantity.sums(plan.options)) for quantity in plan.quantities if quantity.sums]
        counted = _counted(plan, table)
        self._packing = packing_of((*(state for state, _ in summed), *(quantity.state for quantity in counted)))
        left = tuple(quantity for quantity in plan.quantities if quantity.state not in self._packing.places)
        self.rest = replace(plan, quantities=left)
        """The plan of the quantities that have to be computed from the statistics of single sequences."""
        slots = [slot for _, sums in summed for slot in sums]
        terms = [_terms(slot, table) for slot in slots]
        self._summed = len(slots)
        self._width = self._summed + (table.histogram_size if counted else 0)
        self._ranks = np.array([place for place, slot in enumerate(slots) if slot is RANK], np.int64)
        self._sources = np.array([of_slot[0][0] for of_slot in terms], np.int64)
        self._factors = np.array([of_slot[0][1] for of_slot in terms])
        further = [
            [(place, *of_slot[number]) for place, of_slot in enumerate(terms) if len(of_slot) > number]
            for number in range(1, max(map(len, terms), default=0))
        ]
        self._further = [
            tuple(np.array(column) for column in zip(*of_slots, strict=True)) for of_slots in further if of_slots
        ]

    def packed(self, reduced: Floats, histograms: NDArray[Any], rank: int) -> PackedStates:
        """Return the states from the reduced statistics, none of which is odd, and the histograms."""
        statistics = reduced.reshape(-1)
        vector = np.empty(self._width)
        slots = vector[: self._summed]
        statistics.take(self._sources, out=slots, mode="clip")
        slots *= self._factors
        for places, sources, factors in self._further:
            slots[places] += statistics[sources] * factors
        slots += 0.0  # 0 and not -0
        if rank:
            slots[self._ranks] = rank
        if self._width > self._summed:
            np.divide(histograms, WEIGHT, out=vector[self._summed :])
        return PackedStates(self._packing, vector)


def _counted(plan: MeasurementPlan, table: SequenceTable) -> list[Quantity]:
    """Return the quantities of quantiles in the order of the histograms; none if they are not the same."""
    found = {quantity.histogram: quantity for quantity in plan.quantities if quantity.histogram}
    return [found[name] for name in table.histograms] if found.keys() == table.histograms.keys() else []


def _terms(slot: Sum, table: SequenceTable) -> list[tuple[int, float]]:
    """Return where the statistics of a slot are, and their factors."""
    terms = [(place, factor) for place, factor in slot.items() if factor and slot is not RANK] or [(ZERO, 1.0)]
    return [
        (table.reduced[row] * len(REDUCED_SLOTS) + REDUCED_SLOTS.index(name), factor) for (row, name), factor in terms
    ]


@lru_cache(maxsize=256)
def reduced_states(plan: MeasurementPlan, table: SequenceTable) -> ReducedStates:
    """Return how the states of a plan follow from the results of a table, found out once."""
    return ReducedStates(plan, table)


COUNT, ODD = REDUCED_SLOTS.index("count"), REDUCED_SLOTS.index("odd")


class DeviceSelection(Selection):
    """Batches with the same plan, measured on a device: the statistics of all their sequences."""

    def __init__(
        self,
        pieces: Sequence[Fetched],
        rows: NDArray[Any] | None = None,
        part_of: tuple[DeviceSelection, Bools] | None = None,
    ) -> None:
        self.plan, self.table = pieces[0].plan, pieces[0].table
        self.options, self.given = self.plan.options, self.plan.given
        self._pieces = pieces
        self._part_of = part_of
        if rows is None:
            rows = pieces[0].rows if len(pieces) == 1 else np.concatenate([piece.rows for piece in pieces], axis=1)
        self._rows = rows
        self._arrays: dict[str, NDArray[Any]] = {}

    @cached_property
    def counts(self) -> Ints:  # type: ignore[override]
        """The number of valid tokens of each sequence."""
        return np.asarray(self._rows[self.table.blocks["valid"].start], np.int64)

    @cached_property
    def response_lengths(self) -> Ints:  # type: ignore[override]
        """The number of response tokens of each sequence."""
        return np.asarray(self._rows[self.table.blocks["response"].start], np.int64)

    def subset(self, chosen: Bools) -> DeviceSelection:
        """Return the statistics of some of the sequences; they have no histograms."""
        return DeviceSelection(self._pieces, self._rows[:, chosen], (self, chosen))

    def sequence(self, name: str) -> NDArray[Any]:
        """Return an array of the sequences."""
        found = self._arrays.get(name)
        if found is None:
            if self._part_of is not None:
                whole, chosen = self._part_of
                found = whole.sequence(name)[chosen]
            else:
                arrays = [to_numpy(part) for piece in self._pieces for part in piece.arrays[name]]
                found = joined_labels(arrays) if name in LABELS else np.concatenate(arrays) if arrays[1:] else arrays[0]
            self._arrays[name] = found
        return found

    def repeats(self) -> Bools:
        """Return which sequences end in a repetition."""
        return np.asarray(self._rows[self.table.blocks["repeats"].start] > 0)

    def totals(self, channel: str) -> Floats:
        """Return the sum of a channel per sequence."""
        combined = CHANNELS[channel].combines
        if combined:
            return self._combined({other: factor * self.totals(other) for other, factor in combined.items()})
        total: Floats = self._totals[self.table.places[channel]]
        return total

    def nonfinite(self, channel: str) -> Floats:
        """Return the number of values of each sequence that are not finite; conditions are NaN or finite."""
        if (inputs := CHANNELS[channel].nan_of) is not None:
            return self._counted(self.table.row(inputs, "nan"))
        if CHANNELS[channel].combines:
            return self._combined({other: self.nonfinite(other) for other in CHANNELS[channel].combines})
        if CHANNELS[channel].statistics == "count":
            return np.zeros(len(self.counts))
        return self._counted(self.table.row(channel, "bad"))

    def state(self, kind: StateKind, channel: str, rank: int) -> Floats:
        """Return the state of a channel over all its tokens."""
        if isinstance(kind, Quantiles):
            return self._histogram(channel)
        if kind is MEAN:
            return self._mean(channel)
        assert kind is EXTREMA or kind is MOMENTS
        state: Floats = (self._extremes if kind is EXTREMA else self._moments)[self.table.places[channel]]
        if kind is EXTREMA and self.counts.any():
            state[[1, 3]] = rank
        return state

    def _mean(self, channel: str) -> Floats:
        if not CHANNELS[channel].combines:
            state: Floats = self._means[self.table.places[channel]]
            return state
        return np.array([self.totals(channel).sum(), self._tokens, self.nonfinite(channel).sum()])

    @staticmethod
    def _combined(terms: dict[str, Floats]) -> Floats:
        return reduce(np.add, terms.values())

    def _histogram(self, channel: str) -> Floats:
        bins = self.table.histograms[channel]
        state = np.zeros(bins.stop - bins.start + 1)
        for piece in self._pieces:
            state[:-1] += piece.histograms[bins] / WEIGHT
        state[-1] = self.nonfinite(channel).sum()
        return state

    def _counted(self, rows: int | slice) -> Floats:
        """Return rows of COUNT_SLOTS, which a device writes only for sequences that are odd."""
        odd = self._rows[self.table.blocks["odd"].start] > 0
        # Selected before they are converted: NumPy warns of some bits that memory may have.
        counts: Floats = np.where(odd, self._rows[rows], 0).astype(np.float64)
        return counts

    def _block(self, slot: str, size: int | None = None) -> Floats:
        """Return a slot of all its channels, or of the first ones."""
        found = self.table.blocks[slot]
        rows = slice(found.start, found.stop if size is None else found.start + size)
        block: Floats = self._counted(rows) if slot in COUNT_SLOTS else self._rows[rows].astype(np.float64)
        return block

    def _sums(self, first: int, stop: int) -> Floats:
        """Return the sums per sequence of the channels at some places."""
        start, shift = self.table.blocks["sum"].start, self.table.blocks["shift"].start
        sums: Floats = self._rows[start + first : start + stop].astype(np.float64)
        spreads = min(stop, self.table.spreads) - first
        if spreads > 0:
            # The device sums distances to the shift: add it again for every token.
            sums[:spreads] += self._rows[shift + first : shift + first + spreads] * self.counts
        return sums

    @cached_property
    def _tokens(self) -> float:
        """The number of all valid tokens."""
        return float(self.counts.sum())

    @cached_property
    def _totals(self) -> Floats:
        """The sums of all channels per sequence."""
        totals = self._sums(0, len(self.table.channels))
        if self._nan.any():
            for channel in self.table.channels:
                if channel.nan_of is not None:
                    totals[self.table.places[channel.name], self.nonfinite(channel.name) > 0] = np.nan
        return totals

    @cached_property
    def _nan(self) -> Bools:
        """Whether each spread or sum has a NaN."""
        return np.asarray(self._block("nan").any(axis=1))

    @cached_property
    def _means(self) -> Floats:
        """The states of the means of all channels."""
        table = self.table
        means = np.zeros((len(table.channels), 3))
        means[:, 0] = self._totals.sum(axis=1)
        means[:, 1] = self._tokens
        means[: table.summed, 2] = self._block("bad").sum(axis=1)
        if self._nan.any():
            for channel in table.channels[table.summed :]:
                means[table.places[channel.name], 2] = self.nonfinite(channel.name).sum()
        return means

    @cached_property
    def _moments(self) -> Floats:
        """The states of the moments of all spreads: the squares within sequences and between their means."""
        spreads = self.table.spreads
        moments = np.zeros((spreads, 4))
        if self.counts.any():
            counts = self.counts[self.some].astype(np.float64)
            around, totals = self._block("sum", spreads)[:, self.some], self._totals[:spreads, self.some]
            # The merge of MOMENTS, for all sequences at once.
            inner = self._block("squares")[:, self.some] - around * around / counts  # may round to below 0
            total, count = totals.sum(axis=1), counts.sum()
            between = totals / counts - (total / count)[:, None]
            squares = np.maximum(inner, 0.0).sum(axis=1) + (between * between) @ counts
            bad = self._block("bad", spreads).sum(axis=1)
            moments[:] = np.stack([np.full(spreads, count), total, np.where(bad > 0, np.nan, squares), bad], axis=1)
        return moments

    @cached_property
    def _extremes(self) -> Floats:
        """The states of the extremes of all spreads."""
        spreads = self.table.spreads
        states = np.tile(EXTREMA.empty(), (spreads, 1))
        if self.counts.any():
            # The kernel's extremes pass over NaN; a slot of its own says whether there was one.
            unknown = self._nan[:spreads]
            states[:, 0] = np.where(unknown, np.nan, self._block("min")[:, self.some].min(axis=1))
            states[:, 2] = np.where(unknown, np.nan, self._block("max")[:, self.some].max(axis=1))
            states[:, 4] = self._block("bad", spreads).sum(axis=1)
        return states


class ReducedSelection(DeviceSelection):
    """Batches that the device has reduced over all sequences: with tokens, and without a number that is not finite."""

    def __init__(self, piece: Fetched) -> None:
        super().__init__([piece])
        self._totals_so_far: dict[str, Floats] = {}
        self._means_so_far: dict[str, Floats] = {}

    def totals(self, channel: str) -> Floats:
        """Return the sum of a channel per sequence."""
        found = self._totals_so_far.get(channel)
        if found is None:
            if CHANNELS[channel].combines:
                found = super().totals(channel)
            else:
                place = self.table.places[channel]
                found = self._sums(place, place + 1)[0]
            self._totals_so_far[channel] = found
        return found

    def means(self, channel: str) -> Floats:
        """Return the mean of a channel for each sequence with a valid token."""
        found = self._means_so_far.get(channel)
        if found is None:
            found = self._means_so_far[channel] = super().means(channel)
        return found

    def nonfinite(self, channel: str) -> Floats:
        """Return the number of values of each sequence that are not finite: none."""
        return np.zeros(len(self.counts))

    def reduced(self, channel: str, weights: Floats | None = None, chosen: Bools | None = None) -> Floats:
        """Return the state of a loss, over all sequences or the chosen ones."""
        if weights is not None or chosen is None:
            return super().reduced(channel, weights, chosen)
        some = chosen[self.some].astype(np.float64)
        sums = LossSums(
            float(some @ self.sums(channel)),
            float(some @ self.means(channel)),
            float(some @ self.counts[self.some]),
            float(some.sum()),
            len(self.counts),
        )
        return np.array([*self._loss_of(sums), 0.0])

    def packed(self, rank: int) -> tuple[PackedStates, MeasurementPlan]:
        """Return the states that follow from the reduced statistics, and the plan of the others."""
        piece = self._pieces[0]
        assert piece.reduced is not None
        prepared = reduced_states(self.plan, self.table)
        return prepared.packed(piece.reduced, piece.histograms, rank), prepared.rest


def selection_of(pieces: Sequence[Fetched]) -> DeviceSelection:
    """Return the selection of batches with the same plan."""
    reduced, table = pieces[0].reduced, pieces[0].table
    if len(pieces) > 1 or reduced is None or np.count_nonzero(reduced[:, ODD]):
        return DeviceSelection(pieces)
    return ReducedSelection(pieces[0]) if reduced[table.reduced["some_valid"], COUNT] else DeviceSelection(pieces)
