"""The states that follow from sums over a whole batch, which a device has computed: all of them at once.

Most slots are one of the reduced statistics, some a sum of a few with factors. Where each comes from is found out once
for a plan; then a step needs a few calls of NumPy, and not some for each state.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.packed_states import PackedStates, packing_of
from windsock.measurement.plan import Plan
from windsock.measurement.quantities import RANK, Quantity, Sum
from windsock.stats.rows import REDUCED_SLOTS, WEIGHT, Table

Floats = NDArray[np.float64]

ZERO = ("valid", "odd")
"""A statistic that is always 0."""


class ReducedStates:
    """Where the slots of a plan's states are among the statistics that a device reduces."""

    def __init__(self, plan: Plan, table: Table) -> None:
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


def _counted(plan: Plan, table: Table) -> list[Quantity]:
    """Return the quantities of quantiles in the order of the histograms; none if they are not the same."""
    found = {quantity.histogram: quantity for quantity in plan.quantities if quantity.histogram}
    return [found[name] for name in table.histograms] if found.keys() == table.histograms.keys() else []


def _terms(slot: Sum, table: Table) -> list[tuple[int, float]]:
    """Return where the statistics of a slot are, and their factors."""
    terms = [(place, factor) for place, factor in slot.items() if factor and slot is not RANK] or [(ZERO, 1.0)]
    return [
        (table.reduced[row] * len(REDUCED_SLOTS) + REDUCED_SLOTS.index(name), factor) for (row, name), factor in terms
    ]


@lru_cache(maxsize=256)
def reduced_states(plan: Plan, table: Table) -> ReducedStates:
    """Return how the states of a plan follow from the results of a table, found out once."""
    return ReducedStates(plan, table)
