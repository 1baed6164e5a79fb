"""Measured states of several ranks, merged before anything is divided: no collective was needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.options import Options
from windsock.measurement.quantities import BY_STATE
from windsock.measurement.step import Measurement
from windsock.states import Layout

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankState:
    """The state of one rank in one step."""

    rank: int
    layout: int
    vector: Floats


@dataclass(frozen=True, slots=True)
class DescribedLayout:
    """A layout from the journal, with the options that its states were measured with."""

    layout: Layout
    options: Options

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> tuple[int, DescribedLayout]:
        """Read a layout record; raise ValueError for states of a kind or name that this version does not know."""
        layout = Layout(tuple((name, kind) for name, kind in record["entries"]))
        unknown = [name for name, kind in layout.entries if name not in BY_STATE or BY_STATE[name].kind.name != kind]
        if unknown:
            raise ValueError(f"states that this version does not know: {', '.join(unknown)}")
        if len(layout.places) != len(layout.entries):
            raise ValueError("a state occurs twice")
        return int(record["layout"]), cls(layout, Options.from_record(record["options"]))


def merge_states(
    states: Iterable[RankState], layouts: Mapping[int, DescribedLayout], vocabulary: str
) -> dict[str, float]:
    """Return the values of the states of one step; none if there is a single one, whose rank's rows have its values.

    A rank has several states of a step if it has forked processes.
    """
    known = [s for s in states if s.layout in layouts and len(s.vector) == layouts[s.layout].layout.width]
    if len(known) < 2:
        return {}
    return dict(merged_measurement(known, layouts).finish(vocabulary))


def merged_measurement(states: Iterable[RankState], layouts: Mapping[int, DescribedLayout]) -> Measurement:
    """Return the measurement that the states of one step are parts of."""
    merged = Measurement()
    for state in states:
        described = layouts[state.layout]
        merged.merge(Measurement(state.rank, described.layout.unpack(state.vector), options=described.options))
    return merged
