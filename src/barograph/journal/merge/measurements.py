"""Measured states of several ranks, merged before anything is divided: no collective was needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barograph.base.arrays import Floats
from barograph.journal.format.fields import nullable, read_number
from barograph.metrics.batch.inputs import Options
from barograph.metrics.batch.quantities import BY_STATE, COEFFICIENTS
from barograph.metrics.batch.step_states import StepStates, coefficient_states
from barograph.metrics.batch.values import Measured
from barograph.metrics.states.layout import Layout

MAX_STATES = 10_000  # of a layout; each domain has one of its own


@dataclass(frozen=True, slots=True)
class RankState:
    """The state of one rank in one step."""

    rank: int
    layout: int
    vector: Floats | bytes
    """Bytes where it is encoded (``barograph.metrics.states.layout``)."""


@dataclass(frozen=True, slots=True)
class DescribedLayout:
    """A layout from the journal."""

    layout: Layout
    coefficients: Mapping[str, Floats] = field(default_factory=dict)
    """States of the options that version 0.1 wrote with the layout; later versions have them in the vector."""

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> tuple[int, DescribedLayout]:
        """Read a layout record; raise ValueError for states of a kind or name that this version does not know."""
        if len(record["entries"]) > MAX_STATES:
            raise ValueError(f"more than {MAX_STATES:,} states in a layout")
        layout = Layout(tuple((name, kind) for name, kind in record["entries"]))
        unknown = [name for name, kind in layout.entries if not _is_known(name, kind)]
        if unknown:
            raise ValueError(f"states that this version does not know: {', '.join(unknown)}")
        if len(layout.places) != len(layout.entries):
            raise ValueError("a state occurs twice")
        given = record.get("options") or {}
        options = Options(**{name: nullable(read_number)(given[name]) for name in COEFFICIENTS if name in given})
        return int(record["layout"]), cls(layout, coefficient_states(options))


def _is_known(state: str, kind: str) -> bool:
    try:
        return BY_STATE[state].kind.name == kind
    except KeyError:
        return False


def merge_states(states: Iterable[RankState], layouts: Mapping[int, DescribedLayout], vocabulary: str) -> Measured:
    """Return the values of the states of one step; raise ValueError if the layout of one is not known."""
    return merged_measurement(states, layouts).finish(vocabulary)


def merged_measurement(states: Iterable[RankState], layouts: Mapping[int, DescribedLayout]) -> StepStates:
    """Return the measurement that the states of one step are parts of; raise ValueError as ``merge_states`` does."""
    dense: dict[int, list[Floats]] = {}
    encoded: dict[int, list[bytes]] = {}
    for state in states:
        described, vector = layouts.get(state.layout), state.vector
        if described is None or (not isinstance(vector, bytes) and len(vector) != described.layout.width):
            raise ValueError(f"the layout of the state of rank {state.rank} is not known")
        if isinstance(vector, bytes):
            encoded.setdefault(state.layout, []).append(vector)
        else:
            dense.setdefault(state.layout, []).append(vector)
    # Vectors of one layout first: a few calls of NumPy for each layout, and not one for each state and rank.
    vectors = [(id, layouts[id].layout.merge(alike)) for id, alike in dense.items()]
    vectors += [(id, layouts[id].layout.merge_encoded(alike)) for id, alike in encoded.items()]
    merged = StepStates()
    for id, vector in vectors:
        described = layouts[id]
        merged.merge(StepStates({**described.coefficients, **described.layout.unpack(vector)}))
    return merged
