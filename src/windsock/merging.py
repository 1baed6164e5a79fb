"""Merging over ranks: the values of a step that several ranks of a role contribute to.

There are three kinds of contributions. Measured states and rollout states are merged before anything is divided. Times
and memory are rows of each rank, which are reduced. Views and the relay both merge here, so that a tracker shows what
a view shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from windsock.journal import decoding
from windsock.journal.frames import OPEN_STEP, Kind
from windsock.journal.reader import Record
from windsock.journal.unpacking import Budget
from windsock.model import Writer
from windsock.probe.ranks import is_reduced, names_over_ranks, reduced_series, reduced_values, reduction

if TYPE_CHECKING:
    from windsock.measurement.merged import DescribedLayout, RankState
    from windsock.rollouts.merged import RolloutState

__all__ = ["RoleMerger", "names_over_ranks", "reduced_series", "reduction"]

MAX_REASONS = 1000
MAX_NAME_SETS = 4096  # remembered; a program that makes names up has no end of them


@dataclass(slots=True)
class _Contributions:
    """The contributions to one step, each with its writer, whose attempt may be superseded later."""

    states: list[tuple[Writer, RankState]] = field(default_factory=list)
    rollouts: list[tuple[Writer, RolloutState]] = field(default_factory=list)
    times: dict[Writer, float] = field(default_factory=dict)  # of each writer's last contribution
    rows: dict[tuple[Writer, tuple[str, ...]], tuple[float, ...]] = field(default_factory=dict)  # the last one last
    merged: dict[str, float] | None = None  # None after a change


class RoleMerger:
    """The contributions to one role's steps, and the values that they are merged into.

    Contributions may be added in any order. A step is merged again only after it has changed.
    """

    def __init__(self, vocabulary: str) -> None:
        self._vocabulary = vocabulary
        self._layouts: dict[int, DescribedLayout] = {}
        self._steps: dict[int, _Contributions] = {}
        self._oldest = OPEN_STEP  # contributions to earlier steps are ignored
        self._limits: dict[Writer, int] = {}  # the step from which on a writer is superseded
        self._ranks: set[int] = set()
        self._ranks_of_name: dict[str, set[int]] = {}
        self._name_sets: set[tuple[int, tuple[str, ...]]] = set()  # that ranks were seen to write
        self._reduced_names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._unpacking = Budget()
        self.unread: Counter[str] = Counter()  # reasons why contributions could not be merged

    def __contains__(self, step: int) -> bool:
        return step in self._steps

    def steps(self) -> list[int]:
        """Return the steps that have contributions."""
        return sorted(self._steps)

    def time(self, step: int) -> float:
        """Return the time of the last contribution to a step that counts."""
        counted = (time for writer, time in self._steps[step].times.items() if self.counts(writer, step))
        return max(counted, default=0.0)

    def add_rank(self, rank: int) -> None:
        """Note that the role has this rank, which need not have written anything."""
        # Values are reduced only where a role has several ranks, so a second one changes earlier steps too.
        if rank not in self._ranks:
            self._ranks.add(rank)
            self._merge_again(self._steps)

    def add_record(self, writer: Writer, record: Record) -> int | None:
        """Add a layout or a rollout state; return the step that it contributes to. Skip one that cannot be read."""
        try:
            if record.kind == Kind.LAYOUT:
                from windsock.measurement.merged import DescribedLayout  # imports the catalogue

                id, described = DescribedLayout.parse(decoding.decode(record.kind, record.payload))
                if self._layouts.get(id) != described:
                    self._layouts[id] = described
                    self._merge_again(self._steps)
            elif record.kind == Kind.GATHERED:
                from windsock.rollouts.merged import RolloutState

                state = RolloutState.parse(writer.rank, *decoding.decode(record.kind, record.payload))
                if state.step >= self._oldest:
                    self._contributions(writer, state.step, state.time).rollouts.append((writer, state))
                    return state.step
        # Of a newer windsock, damaged or hostile.
        except ValueError as error:
            self._skip(str(error))
        return None

    def add_state(self, writer: Writer, step: int, time: float, layout: int, vector: NDArray[np.float64]) -> bool:
        """Add a measured state; return False if its step is too old."""
        from windsock.measurement.merged import RankState

        if step < self._oldest:
            return False
        self._contributions(writer, step, time).states.append((writer, RankState(writer.rank, layout, vector)))
        return True

    def add_values(self, writer: Writer, step: int, time: float, values: Mapping[str, float]) -> bool:
        """Add those values of a row that are reduced over ranks; return False if there are none or it is too old."""
        names = self._reduced(tuple(values))
        if not names or step < self._oldest:
            return False
        rows = self._contributions(writer, step, time).rows
        rows.pop((writer, names), None)  # inserted again at the end: the last row counts
        rows[writer, names] = tuple(map(values.__getitem__, names))
        if (writer.rank, names) not in self._name_sets:
            self._name_sets.add((writer.rank, names))
            for name in names:
                self._ranks_of_name.setdefault(name, set()).add(writer.rank)
        return True

    def supersede(self, limits: Mapping[Writer, int | None]) -> dict[int, dict[str, float]]:
        """Set the steps from which on writers are superseded by newer attempts.

        Return the steps that this changes, with their values before.
        """
        new = {writer: limit for writer, limit in limits.items() if limit is not None}
        changed = [writer for writer in {*new, *self._limits} if new.get(writer) != self._limits.get(writer)]
        lowest = {w: min(limits[w] for limits in (new, self._limits) if w in limits) for w in changed}
        before = {
            step: self.values(step)
            for step, found in (self._steps.items() if changed else ())
            if any(lowest.get(writer, step + 1) <= step for writer in found.times)
        }
        self._limits = new
        self._merge_again(before)
        return before

    def states(self, step: int) -> dict[str, float]:
        """Return the values of a step of which several ranks have states."""
        found = self._steps[step]
        values: dict[str, float] = {}
        if found.states:
            from windsock.measurement.merged import merge_states

            states = (state for writer, state in found.states if self.counts(writer, step))
            values |= merge_states(states, self._layouts, self._vocabulary)
        if found.rollouts:
            from windsock.rollouts.merged import merge_rollouts

            rollouts = (state for writer, state in found.rollouts if self.counts(writer, step))
            values |= merge_rollouts(rollouts, self._vocabulary, self._unpacking, self._skip)
        return values

    def values(self, step: int) -> dict[str, float]:
        """Return the values of a step that several ranks contribute to: of their states, and of their rows."""
        found = self._steps.get(step)
        if found is None:
            return {}
        if found.merged is None:
            found.merged = self.states(step) | self._reduced_rows(step, found)
        return found.merged

    def forget_before(self, step: int) -> None:
        """Forget the contributions to earlier steps, and ignore further ones."""
        self._oldest = step
        for old in [known for known in self._steps if known < step]:
            del self._steps[old]

    def _reduced_rows(self, step: int, found: _Contributions) -> dict[str, float]:
        if len(self._ranks) < 2 or not found.rows:
            return {}
        by_rank: dict[int, dict[str, float]] = {}
        rows = sorted(found.rows.items(), key=lambda row: row[0][0])  # newer attempts' values replace those of older
        for (writer, names), values in rows:
            if self.counts(writer, step):
                by_rank.setdefault(writer.rank, {}).update(zip(names, values, strict=True))
        of_several = {name for name, ranks in self._ranks_of_name.items() if len(ranks) > 1}
        return reduced_values(by_rank, of_several, self._vocabulary)

    def counts(self, writer: Writer, step: int) -> bool:
        """Return whether a writer's contributions to a step count, or are superseded by a newer attempt's."""
        limit = self._limits.get(writer)
        return limit is None or step < limit

    def _contributions(self, writer: Writer, step: int, time: float) -> _Contributions:
        self.add_rank(writer.rank)
        found = self._steps.setdefault(step, _Contributions())
        found.times[writer] = max(time, found.times.get(writer, time))
        found.merged = None
        return found

    def _skip(self, reason: str) -> None:
        if reason in self.unread or len(self.unread) < MAX_REASONS:
            self.unread[reason] += 1

    def _merge_again(self, steps: Iterable[int]) -> None:
        for step in steps:
            self._steps[step].merged = None

    def _reduced(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names among those of a row that are reduced; rows have the same few sets of names."""
        found = self._reduced_names.get(names)
        if found is None:
            if len(self._reduced_names) >= MAX_NAME_SETS:
                self._reduced_names.clear()
                self._name_sets.clear()
            found = self._reduced_names[names] = tuple(name for name in names if is_reduced(name, self._vocabulary))
        return found
