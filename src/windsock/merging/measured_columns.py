"""The merged values of measured states as columns, one metric over steps, for a reader that follows a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windsock.merging.role_merger import RoleMerger

if TYPE_CHECKING:
    from windsock.measurement.name_groups import NameGroup


class Column(NamedTuple):
    """The values of one metric: steps in ascending order, times, and whether the value is that of all ranks."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    times: NDArray[np.float64]
    whole: NDArray[np.bool_]

    @classmethod
    def of(cls, points: Iterable[tuple[int, float, float, bool]]) -> Column:
        """Return a column of points, which are in the order of their steps."""
        columns = zip(*points, strict=True)
        types = np.int64, np.float64, np.float64, np.bool_
        return cls._make(np.array(column, type) for column, type in zip(columns, types, strict=True))

    def where(self, places: NDArray[Any]) -> Column:
        """Return some of the points."""
        return Column._make(column[places] for column in self)

    def updated(self, stale: NDArray[np.int64], new: Column | None) -> Column:
        """Return the column without some steps, and with new ones."""
        kept = self
        if len(stale) and stale[0] <= self.steps[-1]:
            kept = self.where(~np.isin(self.steps, stale))
        if new is None:
            return kept
        united = Column._make(np.concatenate(pair) for pair in zip(kept, new, strict=True))
        if len(kept.steps) and new.steps[0] <= kept.steps[-1]:
            united = united.where(np.argsort(united.steps))
        return united


@dataclass(slots=True)
class _Group:
    """Metrics that are computed together, and the steps that have to be computed again."""

    names: NameGroup
    stale: set[int]
    columns: dict[str, Column] = field(default_factory=dict)  # with at least one step


class MeasuredColumns:
    """The columns of a role's measured metrics. Those that were asked for are kept, and computed for new steps only."""

    def __init__(self, merger: RoleMerger, vocabulary: str) -> None:
        self._merger = merger
        self._vocabulary = vocabulary
        self._version: tuple[int, int] | None = None  # of the layouts
        self._ordered: list[str] = []  # all names that there may be
        self._groups: dict[frozenset[str], _Group] = {}
        self._by_name: dict[str, _Group] = {}
        self._steps: set[int] = set()  # that have states to merge
        self._unread: dict[int, frozenset[str]] = {}  # names that have no value, because a state cannot be read

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (self._steps or self._unread or self._groups)

    def change(self, steps: Iterable[int]) -> None:
        """Note that steps have changed."""
        changed = set(steps)
        for step in changed:
            share = self._merger.measured_share(step)
            (self._steps.discard if share.states is None else self._steps.add)(step)
            self._unread.pop(step, None)
            if share.withheld:
                self._unread[step] = share.withheld
        for group in self._groups.values():
            group.stale |= changed

    def names(self) -> list[str]:
        """Return the names that have a value in some step."""
        self._compute_all()
        found = {
            name for group in self._groups.values() for name, column in group.columns.items() if column.whole.any()
        }
        return [name for name in self._ordered if name in found]

    def withheld_names(self) -> set[str]:
        """Return the names that have no value in some step."""
        self._compute_all()
        found = {name for names in self._unread.values() for name in names}
        for group in self._groups.values():
            found |= {name for name, column in group.columns.items() if not column.whole.all()}
        return found

    def unread_steps(self, name: str) -> list[int]:
        """Return the steps without a value because a state cannot be read."""
        return [step for step, names in self._unread.items() if name in names]

    def column(self, name: str) -> Column | None:
        """Return the values of a metric; None if there are none."""
        self._update_groups()
        group = self._by_name.get(name)
        if group is None:
            return None
        if group.stale:
            self._compute([group])
        return group.columns.get(name)

    def _update_groups(self) -> None:
        """Group the states again if there are new layouts; groups that have not changed keep their values."""
        measured = self._merger.measured
        if measured.version == self._version or not self._steps:
            return
        self._version = measured.version
        from windsock.measurement.name_groups import name_groups, ordered_names

        states = measured.names()
        found = name_groups(states, self._vocabulary, measured.alike())
        self._groups = {one.states: self._groups.get(one.states) or _Group(one, set(self._steps)) for one in found}
        self._by_name = {name: group for group in self._groups.values() for name in group.names.names}
        self._ordered = ordered_names(states, self._vocabulary)

    def _compute_all(self) -> None:
        """Compute what is stale of all groups; those that lack the same steps together."""
        self._update_groups()
        alike: dict[frozenset[int], list[_Group]] = {}
        for group in self._groups.values():
            if group.stale:
                alike.setdefault(frozenset(group.stale), []).append(group)
        for groups in alike.values():
            self._compute(groups)

    def _compute(self, groups: list[_Group]) -> None:
        """Compute the stale steps of some groups, which have the same ones."""
        stale = np.array(sorted(groups[0].stale), np.int64)
        states = frozenset().union(*(group.names.states for group in groups))
        points = self._points(states, [step for step in stale.tolist() if step in self._steps])
        for group in groups:
            group.stale = set()
            for name in [name for name in group.names.names if name in points or name in group.columns]:
                known = group.columns.pop(name, None)
                new = Column.of(sorted(points[name])) if name in points else None
                column = new if known is None else known.updated(stale, new)
                if column is not None and len(column.steps):
                    group.columns[name] = column

    def _points(self, names: frozenset[str], steps: list[int]) -> dict[str, list[tuple[int, float, float, bool]]]:
        """Return the values that follow from some states in some steps: step, value, time, whether of all ranks."""
        from windsock.measurement.values import finished

        merger = self._merger
        shares = [merger.measured_share(step) for step in steps]
        states = [share.states for share in shares if share.states is not None]  # all have them
        found: dict[str, list[tuple[int, float, float, bool]]] = {}
        for numbers, merged in merger.measured.merged(states, names):
            for row, number in enumerate(numbers):
                step, is_whole = steps[number], shares[number].is_whole
                time = merger.time(step)
                values = finished({name: rows[row] for name, rows in merged.items()}, self._vocabulary)
                for name, value in values.items():
                    found.setdefault(name, []).append((step, value, time, is_whole))
        return found
