"""What a measurement computes for batches with the same arrays, parts and options, found out once, and what it gives:
the results of a device's pass, and states side by side in one vector, so that all of them are computed and finished
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats
from barograph.metrics.batch.arrays import COMPUTED_FROM, FIELDS, SEQUENCE_FIELDS
from barograph.metrics.batch.inputs import Options, given
from barograph.metrics.batch.quantities import BY_STATE, QUANTITIES, Quantity
from barograph.metrics.formulas.channels import Need, arrays_of, wanted
from barograph.metrics.formulas.table import STORED, Bins, SequenceTable
from barograph.metrics.states.kinds import KINDS, POSITIVE_QUANTILES, Quantiles, StateKind


@dataclass(frozen=True, slots=True)
class Fetched:
    """The results of one pass, on the host."""

    plan: MeasurementPlan
    table: SequenceTable
    rows: NDArray[Any]  # without those of arrays
    arrays: dict[str, list[Any]]  # of the sequences, in parts
    histograms: NDArray[Any]  # times WEIGHT
    reduced: Floats | None = None
    """The statistics of ``REDUCED_SLOTS`` of each channel and number, where the device has computed them."""


class Packing:
    """The places of some states in a vector. There is one object for the same names, compared by identity."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.places: dict[str, slice] = {}
        start = 0
        for name in names:
            width = BY_STATE[name].kind.width
            self.places[name] = slice(start, start + width)
            start += width


@lru_cache(maxsize=1 << 10)  # a training has a few, as its steps have the same states; a reader asks for some of them
def packing_of(names: tuple[str, ...]) -> Packing:
    """Return the packing of states in this order."""
    return Packing(names)


@lru_cache(maxsize=256)
def _together(packing: Packing, more: tuple[str, ...]) -> Packing:
    return packing_of(packing.names + more)


class PackedStates(Mapping[str, Floats]):
    """States by name, in the order of their places in the vector. Read-only."""

    __slots__ = ("packing", "vector")

    def __init__(self, packing: Packing, vector: Floats) -> None:
        self.packing = packing
        self.vector = vector

    @classmethod
    def of(cls, states: Mapping[str, Floats]) -> PackedStates:
        """Return states as they are, or packed."""
        if isinstance(states, cls):
            return states
        return cls(packing_of(tuple(states)), np.concatenate([*states.values()]) if states else np.empty(0))

    def __getitem__(self, name: str) -> Floats:
        return self.vector[self.packing.places[name]]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a state, or the default."""
        place = self.packing.places.get(name)
        return default if place is None else self.vector[place]

    def __contains__(self, name: object) -> bool:
        return name in self.packing.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.packing.places)

    def __len__(self) -> int:
        return len(self.packing.places)

    def joined(self, more: Mapping[str, Floats]) -> PackedStates:
        """Return these states and others with further names."""
        if not more:
            return self
        others = [more.vector] if isinstance(more, PackedStates) else more.values()
        return PackedStates(_together(self.packing, tuple(more)), np.concatenate([self.vector, *others]))


Part = Literal["data", "policy", "value"]


# Compared by identity: there is one for each set of arrays, parts and options.
@dataclass(frozen=True, eq=False)
class MeasurementPlan:
    """The quantities whose inputs are given, and the reasons for the metrics of the others."""

    given: frozenset[str]
    parts: tuple[Part, ...]
    options: Options
    quantities: tuple[Quantity, ...]
    missing: dict[str, str]
    lacking: dict[str, str]
    """The inputs that the quantities without a value lack, by the name of the state."""

    @cached_property
    def channels(self) -> frozenset[str]:
        """The channels that a device computes."""
        return wanted(self.parts, given(self.given, self.options))

    @cached_property
    def arrays(self) -> frozenset[str]:
        """The arrays of tokens that the channels are computed from."""
        return frozenset(arrays_of(self.channels, given(self.given, self.options)))

    @cached_property
    def used(self) -> tuple[str, ...]:
        """All arrays that quantities are computed from."""
        more = {"response_mask", "keep", "cu_seqlens", *(["actions"] if self.repeats else [])}
        return tuple(name for name in FIELDS if name in (self.arrays | more | {*self.sequence_arrays}) & self.given)

    @cached_property
    def sequence_arrays(self) -> tuple[str, ...]:
        """The arrays of sequences that quantities are computed from."""
        needed = {need.name for quantity in self.quantities for need in quantity.needs} | {"episodes", "domains"}
        return tuple(name for name in SEQUENCE_FIELDS if name in needed & self.given)

    @cached_property
    def completes(self) -> bool:
        """Whether its batches complete the rows of tokens that the data part has chosen."""
        return "policy" in self.parts and "data" not in self.parts

    @cached_property
    def by_domain(self) -> MeasurementPlan | None:
        """The plan for the sequences of one domain; None where no domains are given."""
        if "domains" not in self.given or "data" not in self.parts:
            return None
        quantities = tuple(quantity for quantity in self.quantities if quantity.by_domain)
        return replace(self, parts=("data",), quantities=quantities, missing={}, lacking={})

    @cached_property
    def channel_states(self) -> dict[StateKind, tuple[tuple[Quantity, ...], tuple[str, ...]]]:
        """The quantities that are states of channels, by kind, and their channels."""
        alike: dict[StateKind, list[tuple[Quantity, str]]] = {}
        for quantity in self.quantities:
            if quantity.channel is not None:
                alike.setdefault(quantity.kind, []).append((quantity, quantity.channel))
        return {
            kind: (tuple(quantity for quantity, _ in found), tuple(channel for _, channel in found))
            for kind, found in alike.items()
        }

    @cached_property
    def sequence_data(self) -> tuple[Quantity, ...]:
        """The quantities that are computed from data about the sequences."""
        return tuple(quantity for quantity in self.quantities if quantity.channel is None)

    @cached_property
    def repeats(self) -> bool:
        """Whether the repetition at the end of sequences is measured."""
        return any(quantity.state == "tokens/repetition" for quantity in self.quantities)

    def table(self, arrays: tuple[str, ...]) -> SequenceTable:
        """Return the table that a device fills; ``arrays`` are those of the sequences that are on it."""
        return _table(self.channels, arrays, self.repeats, "data" in self.parts)


# Options such as a coefficient may change with every step: they have no part in it.
@lru_cache(maxsize=256)
def _table(names: frozenset[str], arrays: tuple[str, ...], repeats: bool, lengths: bool) -> SequenceTable:
    channels = tuple(channel for channel in STORED if channel.name in names)
    kinds = {channel.name: KINDS[channel.quantiles] for channel in channels if channel.quantiles}
    if lengths:
        kinds["response"] = POSITIVE_QUANTILES
    return SequenceTable(channels, arrays, repeats, {name: _bins(kind) for name, kind in kinds.items()})


def _bins(kind: StateKind) -> Bins:
    assert isinstance(kind, Quantiles)
    return Bins(*kind.scale_and_offset, kind.SIDE, kind.signed)


@lru_cache(maxsize=256)  # a training has a few: its steps measure the same arrays
def plan_of(arrays: frozenset[str], parts: tuple[Part, ...], options: Options) -> MeasurementPlan:
    """Return the plan for batches with some arrays given."""
    has = given(arrays, options)
    quantities: list[Quantity] = []
    missing: dict[str, str] = {}
    lacking: dict[str, str] = {}
    for quantity in QUANTITIES:
        if quantity.part not in parts:
            continue
        unmet = next((need for need in quantity.needs if not need.is_met(has)), None)
        if unmet is None:
            quantities.append(quantity)
        else:
            reasons = dict.fromkeys(quantity.metrics, _reason(unmet))
            # The quantity of the option's level has a better reason, if it has the same metrics.
            missing = {**reasons, **missing} if unmet.level else {**missing, **reasons}
            lacking[quantity.state] = unmet.name
    return MeasurementPlan(arrays, parts, options, tuple(quantities), missing, lacking)


def _reason(unmet: Need) -> str:
    """Return the reason for a missing metric: the input that is not given."""
    name = unmet.name
    if name in Options.__dataclass_fields__:
        return f"{name} is not {unmet.level!r}" if unmet.level else f"{name} is not set"
    computed = f", and no {COMPUTED_FROM[name]} to compute it from" if name in COMPUTED_FROM else ""
    return f"the batch has no {name}{computed}{f', which {unmet.when} needs' if unmet.when else ''}"
