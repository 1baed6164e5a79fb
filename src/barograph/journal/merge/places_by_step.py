"""The places of many states by step, in columns: a run of hundreds of ranks has some for each rank in each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats, Ints


class Places(NamedTuple):
    """Places of states: the numbers of their sources, the rows of those, and times."""

    numbers: Ints
    rows: Ints
    times: Floats

    def __len__(self) -> int:
        return len(self.numbers)

    def where(self, some: NDArray[np.bool_] | Ints | slice) -> Places:
        """Return some of the places."""
        return Places(self.numbers[some], self.rows[some], self.times[some])


def united(places: Sequence[Places]) -> Places:
    """Return some places together."""
    return Places(
        np.concatenate([one.numbers for one in places]),
        np.concatenate([one.rows for one in places]),
        np.concatenate([one.times for one in places]),
    )


NO_PLACES = Places(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


class PlacesByStep:
    """Places of states. They are added by source, and put together by step when a step is asked for."""

    def __init__(self) -> None:
        self._steps: dict[int, list[Places]] = {}
        self._added: list[tuple[int, int, Ints, Floats]] = []  # source, first row, steps and times

    def __contains__(self, step: int) -> bool:
        self._group()
        return step in self._steps

    def add(self, number: int, first: int, steps: Ints, times: Floats) -> None:
        """Add rows of a source, which follow each other."""
        if len(steps):
            self._added.append((number, first, steps, times))

    def of(self, step: int) -> Places:
        """Return the places of the states of a step, in the order in which they were added."""
        self._group()
        found = self._steps.get(step)
        if found is None:
            return NO_PLACES
        if len(found) > 1:
            found[:] = [united(found)]
        return found[0]

    def take(self, step: int) -> Places:
        """Return the places of the states of a step, and forget them."""
        found = self.of(step)
        self._steps.pop(step, None)
        return found

    def _group(self) -> None:
        """Put what was added to its steps."""
        if not self._added:
            return
        added, self._added = self._added, []
        steps = np.concatenate([steps for _, _, steps, _ in added])
        order = np.argsort(steps, kind="stable")
        places = Places(
            np.repeat([number for number, _, _, _ in added], [len(of_source) for _, _, of_source, _ in added])[order],
            np.concatenate([np.arange(first, first + len(of_source)) for _, first, of_source, _ in added])[order],
            np.concatenate([times for _, _, _, times in added])[order],
        )
        steps = steps[order]
        bounds = [0, *(np.flatnonzero(steps[1:] != steps[:-1]) + 1).tolist(), len(steps)]
        for step, start, stop in zip(steps[bounds[:-1]].tolist(), bounds, bounds[1:], strict=False):
            self._steps.setdefault(step, []).append(places.where(slice(start, stop)))
