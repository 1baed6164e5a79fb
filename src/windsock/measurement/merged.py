"""What the ranks of a role hold of a step, merged before anything is divided: no collective was needed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.options import Options
from windsock.measurement.quantities import BY_STATE
from windsock.measurement.step import Measurement
from windsock.measurement.values import Measured
from windsock.states import Layout

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Held:
    """What one rank holds of one step."""

    step: int
    rank: int
    layout: int
    vector: Floats


@dataclass(frozen=True, slots=True)
class Described:
    """A layout as the journal describes it, with the options under which its states are finished."""

    layout: Layout
    options: Options

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> tuple[int, Described]:
        """Read a layout record; states of a kind or name that is not known here are refused with ValueError."""
        layout = Layout.parse(json.dumps(record["entries"]))
        unknown = [name for name, kind in layout.entries if name not in BY_STATE or BY_STATE[name].kind.name != kind]
        if unknown:
            raise ValueError(f"states that this version does not know: {', '.join(unknown)}")
        given = {**record["options"], "clip": tuple(record["options"]["clip"])}
        return int(record["layout"]), cls(layout, Options(**given))


def merged_values(held: Iterable[Held], layouts: Mapping[int, Described], vocabulary: str) -> dict[int, Measured]:
    """Return the values of every step of which several ranks hold a part."""
    by_step: dict[int, list[Held]] = {}
    for one in held:
        if one.layout in layouts:
            by_step.setdefault(one.step, []).append(one)
    return {
        step: _merged(parts, layouts).finish(vocabulary)
        for step, parts in sorted(by_step.items())
        if len({part.rank for part in parts}) > 1
    }


def _merged(parts: Iterable[Held], layouts: Mapping[int, Described]) -> Measurement:
    whole = Measurement()
    for part in parts:
        described = layouts[part.layout]
        whole.merge(Measurement(part.rank, described.layout.unpack(part.vector), options=described.options))
    return whole
