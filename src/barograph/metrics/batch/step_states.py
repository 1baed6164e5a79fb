"""The merged states of one step, as processes exchange and store them, and their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.plan import PackedStates, Packing
from barograph.metrics.batch.quantities import BY_STATE, COEFFICIENTS
from barograph.metrics.batch.values import Measured, finished
from barograph.metrics.states.layout import Layout

Report = Callable[[str, Exception], None]
"""Takes the name of a quantity or a metric, and why it could not be computed."""


class StepStates:
    """The states of one step, and the reasons for metrics that have none."""

    def __init__(
        self,
        states: Mapping[str, Floats] | None = None,
        missing: Mapping[str, str] | None = None,
        report: Report | None = None,
    ) -> None:
        self._report = report or (lambda quantity, error: None)
        self._states: Mapping[str, Floats] = states or {}
        self._coefficients: dict[str, Floats] = {}
        self._packed: PackedStates | None = None  # both, until one of them changes
        self._missing: Mapping[str, str] = missing or {}

    def merge(self, other: Self) -> None:
        """Merge other states of the same step into these."""
        self._merge_states(other._states, other._missing)
        self._merge_coefficients(other._coefficients)

    def _merge_states(self, states: Mapping[str, Floats], missing: Mapping[str, str]) -> None:
        known, self._packed = self._states, None
        if not known:
            self._states = states
        elif isinstance(known, PackedStates) and known.keys().isdisjoint(states):
            self._states = known.joined(states)
        elif states:
            self._states = _merged(known, states)
        # Of two reasons for one metric the newest counts. A plan's are the same object in every step.
        if missing is not self._missing:
            self._missing = {**self._missing, **missing} if self._missing else missing

    def _merge_coefficients(self, states: Mapping[str, Floats]) -> None:
        """Merge the states of options, which every part of a step may have."""
        if states:
            self._coefficients, self._packed = _merged(self._coefficients, states), None

    @property
    def states(self) -> PackedStates:
        """All states of the step."""
        if self._packed is None:
            known = self._states
            if not isinstance(known, PackedStates) and not self._coefficients.keys().isdisjoint(known):
                self._packed = PackedStates.of(_merged(known, self._coefficients))
            else:
                self._packed = PackedStates.of(known).joined(self._coefficients)
        return self._packed

    @property
    def missing(self) -> dict[str, str]:
        """The reasons for metrics that a batch lacks the inputs of, by id."""
        return dict(self._missing)

    def packed(self) -> tuple[Layout, Floats]:
        """Return all states as one vector, and its layout."""
        return laid_out(self.states)

    def finish(self, vocabulary: str) -> Measured:
        """Return the values of the step under the names of a vocabulary."""
        return finished(self.states, vocabulary, self._missing, self._report)


def _merged(known: Mapping[str, Floats], states: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the states of both; those that both have are merged."""
    found = dict(known)
    for name, state in states.items():
        old = found.get(name)
        found[name] = state if old is None else BY_STATE[name].kind.merge(old, state)
    return found


def laid_out(states: PackedStates) -> tuple[Layout, Floats]:
    """Return states as a vector in the order of their layout, as processes exchange and write it."""
    layout, order = _layout(states.packing)
    return layout, states.vector[order]


@lru_cache(maxsize=64)  # a training has a few: its steps measure the same arrays
def _layout(packing: Packing) -> tuple[Layout, NDArray[np.int64]]:
    """Return the layout of states, and which slot of theirs is in each of its places."""
    layout = Layout.from_kinds({name: BY_STATE[name].kind for name in packing.names})
    slots = [np.arange(packing.places[name].start, packing.places[name].stop) for name, _ in layout.entries]
    return layout, np.concatenate(slots) if slots else np.empty(0, np.int64)


def coefficient_states(options: Options, order: int = 0) -> dict[str, Floats]:
    """Return the states of the coefficients that are in use; that with the highest order counts in a merged one."""
    return {
        quantity.state: quantity.kind.from_values([[value, order]])
        for option, quantity in COEFFICIENTS.items()
        # None is not set. Of the others 0 is the default, and one of 0 is not in use.
        if (value := getattr(options, option)) or (option == "kl_coef" and value is not None)
    }
