"""The measured states of one role, by step: a run of hundreds of ranks has some for each rank in each step.

A state is kept as its place: the table of a segment, and the row in it. What is wanted of the states is merged for many
steps at once, so that a metric costs a few NumPy calls for each rank, and not some for each state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats, Ints
from barograph.base.model import Writer
from barograph.journal.format.fields import MAX_STEP
from barograph.journal.format.frames import ROW_HEAD
from barograph.journal.segments.contents import Rows, RowTable, joined_payloads, split_payloads
from barograph.metrics.states.kinds import KINDS
from barograph.metrics.states.layout import Layout, intact_sparse

if TYPE_CHECKING:
    from barograph.journal.merge.measurements import DescribedLayout, RankState


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


Place = tuple[int, int]
"""The number of a source, and a row of it."""

MAX_AT_ONCE = 32 << 20  # bytes of states that are merged together
ENCODED_BYTES = 1 << 10  # that one sparse state may take
ENCODED = -1  # in the place of a width: the states are sparse
BETWEEN = (-1, 0)  # in the shape of a step, before the layouts of sparse states


class ReadStates(dict[int, Any]):
    """States that were read one by one, by the number of their row: vectors, or payloads of sparse states."""

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows in some columns."""
        return np.array([self[row][columns] for row in rows.tolist()])

    def joined_payloads(self, rows: Ints) -> tuple[bytes, Ints]:
        """Return the payloads of those states that were not forgotten, one behind the other, and their lengths."""
        return joined_payloads([self[row] for row in rows.tolist() if row in self])


class StateOrigin(NamedTuple):
    """Where states of one layout and width come from. They are merged in this order, however they were read."""

    writer: Writer
    segment: int
    layout: int
    width: int


@dataclass(slots=True)
class _Source:
    """The states of one origin."""

    origin: StateOrigin
    states: RowTable | ReadStates = field(default_factory=ReadStates)
    count: int = 0
    checked: int = 0  # sparse states
    damaged: set[int] = field(default_factory=set)  # sparse states

    def bodies(self, rows: Ints) -> list[bytes]:
        """Return encoded states."""
        return [payload[ROW_HEAD.size :] for payload in split_payloads(*self.states.joined_payloads(rows))]

    def vectors(self, rows: Ints) -> Iterable[Floats | bytes]:
        """Return states, encoded or not."""
        width = self.origin.width
        return self.bodies(rows) if width == ENCODED else self.states.pick(rows, np.arange(width))

    def is_readable(self, width: int) -> bool:
        """Return whether all states have this width and are intact."""
        if self.origin.width != ENCODED:
            return self.origin.width == width
        first, self.checked = self.checked, self.count
        if first < self.count:
            new = np.arange(first, self.count)
            if isinstance(self.states, ReadStates):
                new = np.array([row for row in new.tolist() if row in self.states], np.int64)
            intact = intact_sparse(*self.states.joined_payloads(new), width, ROW_HEAD.size)
            self.damaged.update(new[~intact].tolist())
        return not self.damaged


class Arranged(NamedTuple):
    """The states of one step that count, by layout: the numbers of their sources and their rows, in order."""

    dense: dict[int, Ints]
    encoded: dict[int, Ints]

    def shape(self, layouts: Set[int]) -> tuple[tuple[int, int], ...]:
        """Return what is equal for steps whose states of some layouts can be merged at once."""
        found = [(id, len(places)) for id, places in self.dense.items() if id in layouts]
        return (*found, BETWEEN, *((id, len(places)) for id, places in self.encoded.items() if id in layouts))


class _Columns(NamedTuple):
    """What is known about each source, by its number."""

    order: Ints  # in which the sources are merged
    last: Ints  # the last step before it is superseded
    layouts: Ints  # numbers of ``ids``
    ids: list[int]

    @classmethod
    def of(cls, origins: list[StateOrigin], limits: Mapping[Writer, int]) -> _Columns:
        order = np.empty(len(origins), np.int64)
        order[sorted(range(len(origins)), key=origins.__getitem__)] = np.arange(len(origins))
        ids = list(dict.fromkeys(origin.layout for origin in origins))
        numbers = {id: number for number, id in enumerate(ids)}
        return cls(
            order,
            np.array([limits.get(origin.writer, MAX_STEP + 1) - 1 for origin in origins], np.int64),
            np.array([numbers[origin.layout] for origin in origins], np.int64),
            ids,
        )


class MeasuredStates:
    """The measured states of one role. They may be added in any order."""

    def __init__(self) -> None:
        self.layouts: dict[int, DescribedLayout] = {}
        self._sources: list[_Source] = []
        self._numbers: dict[StateOrigin, int] = {}
        self._limits: dict[Writer, int] = {}  # the step from which on a writer is superseded
        self._known: _Columns | None = None  # of the sources; None after a change
        self._unchecked: set[int] = set()  # sources that have got further states
        self._unreadable: set[int] = set()  # sources with states that cannot be read
        self._dense = PlacesByStep()
        self._encoded = PlacesByStep()

    def __contains__(self, step: int) -> bool:
        return step in self._dense or step in self._encoded

    @property
    def version(self) -> tuple[int, int]:
        """A pair that changes with the layouts of the states."""
        return len(self.layouts), len(self._sources)

    def names(self) -> list[str]:
        """Return the names of all states, in an order that does not depend on how they were read."""
        encoded = {origin.layout for origin in self._numbers if origin.width == ENCODED}
        found = [
            (id in encoded, tuple(described.coefficients) + tuple(described.layout.places))
            for id, described in self.layouts.items()
        ]
        return [name for _, names in sorted(found) for name in names]

    def alike(self) -> list[frozenset[str]]:
        """Return the sets of states that are encoded together, so that decoding one decodes all of its set."""
        encoded = {origin.layout for origin in self._numbers if origin.width == ENCODED} & self.layouts.keys()
        return [frozenset(self.layouts[id].layout.places) for id in sorted(encoded)]

    def add_rows(self, origin: StateOrigin, table: RowTable, first: int, rows: Rows) -> None:
        """Add rows of a table; ``first`` is the number of the first one."""
        number = self._number(origin)
        self._sources[number].states = table
        # The state of the same step that follows a sparse one tells that the rank has contributed, and when.
        times = np.zeros(len(rows)) if origin.width == ENCODED else rows.times
        self._add_places(number, first, rows.steps, times)

    def add_state(self, origin: StateOrigin, step: int, time: float, state: Floats | bytes) -> None:
        """Add one state: a vector, or the payload of a sparse one."""
        number = self._number(origin)
        source = self._sources[number]
        assert isinstance(source.states, ReadStates)
        source.states[source.count] = state
        self._add_places(number, source.count, np.array([step], np.int64), np.array([time]))

    def _add_places(self, number: int, first: int, steps: Ints, times: Floats) -> None:
        source = self._sources[number]
        source.count = first + len(steps)
        (self._encoded if source.origin.width == ENCODED else self._dense).add(number, first, steps, times)

    def set_limits(self, limits: Mapping[Writer, int]) -> None:
        """Set the steps from which on writers are superseded."""
        if limits != self._limits:
            self._limits, self._known = dict(limits), None

    def forget(self, step: int) -> None:
        """Forget the states of a step."""
        for places in (self._dense.take(step), self._encoded.take(step)):
            for number, row in zip(places.numbers.tolist(), places.rows.tolist(), strict=True):
                states = self._sources[number].states
                if isinstance(states, ReadStates):
                    del states[row]

    def writers(self, step: int) -> set[Writer]:
        """Return the writers that have contributed to a step."""
        return {origin.writer for origin in self._origins(self._dense.of(step))}

    def ranks(self, step: int) -> set[int]:
        """Return the ranks whose contributions to a step count."""
        return {origin.writer.rank for origin in self._origins(self._counted(self._dense, step))}

    def _origins(self, places: Places) -> list[StateOrigin]:
        return [self._sources[number].origin for number in np.unique(places.numbers).tolist()]

    def some_sources(self, step: int) -> set[tuple[int, int]]:
        """Return rank and segment of up to two processes whose states of a step count."""
        found: set[tuple[int, int]] = set()
        for places in (self._counted(self._dense, step), self._counted(self._encoded, step)):
            for number in places.numbers.tolist():
                origin = self._sources[number].origin
                found.add((origin.writer.rank, origin.segment))
                if len(found) > 1:
                    return found
        return found

    def time(self, step: int) -> float:
        """Return the time of the last state of a step that counts; 0 if none does."""
        return float(self._counted(self._dense, step).times.max(initial=0.0))

    def arranged(self, step: int) -> Arranged | None:
        """Return the states of a step by layout; None if one cannot be read."""
        dense, encoded = self._counted(self._dense, step), self._counted(self._encoded, step)
        if self._is_readable(dense) and self._is_readable(encoded):
            return Arranged(self._by_layout(self._in_order(dense)), self._by_layout(self._in_order(encoded)))
        return None

    def _columns(self) -> _Columns:
        if self._known is None:
            self._known = _Columns.of([source.origin for source in self._sources], self._limits)
        return self._known

    def _counted(self, states: PlacesByStep, step: int) -> Places:
        """Return the states of a step that count."""
        places = states.of(step)
        return places.where(step <= self._columns().last[places.numbers]) if self._limits else places

    def _in_order(self, places: Places) -> Places:
        """Return places in the order in which their states are merged."""
        return places.where(np.lexsort((places.rows, self._columns().order[places.numbers])))

    def _by_layout(self, places: Places) -> dict[int, Ints]:
        """Return the places of each layout, in the order in which the layouts come first."""
        known = self._columns()
        layouts, pairs = known.layouts[places.numbers], np.stack((places.numbers, places.rows), axis=1)
        if (layouts == layouts[:1]).all():
            return {known.ids[int(layouts[0])]: pairs} if len(layouts) else {}
        _, firsts = np.unique(layouts, return_index=True)
        return {known.ids[one]: pairs[layouts == one] for one in layouts[np.sort(firsts)].tolist()}

    def _is_readable(self, places: Places) -> bool:
        """Return whether the layouts of some states are known, and the states intact."""
        self._check_sources()
        if not self._unreadable:
            return True
        return not any(
            number in self._unreadable and (row in damaged if (damaged := self._sources[number].damaged) else True)
            for number, row in zip(places.numbers.tolist(), places.rows.tolist(), strict=True)
        )

    def _check_sources(self) -> None:
        """Look at the sources that have got further states, and at those that could not be read."""
        for number in self._unchecked | self._unreadable if self._unchecked or self._unreadable else ():
            source = self._sources[number]
            described = self.layouts.get(source.origin.layout)
            is_readable = described is not None and source.is_readable(described.layout.width)
            (self._unreadable.discard if is_readable else self._unreadable.add)(number)
        self._unchecked.clear()

    def rank_states(self, step: int) -> list[RankState]:
        """Return the states of a step that count, one by one."""
        from barograph.journal.merge.measurements import RankState

        found = self._in_order(united([self._counted(self._encoded, step), self._counted(self._dense, step)]))
        places = list(zip(found.numbers.tolist(), found.rows.tolist(), strict=True))
        vectors: dict[Place, Floats | bytes] = {}
        for number, rows in _rows_by_source(places).items():
            vectors |= zip([(number, row) for row in rows], self._sources[number].vectors(np.array(rows)), strict=True)
        origins = {number: self._sources[number].origin for number, _ in places}
        return [RankState(origins[one[0]].writer.rank, origins[one[0]].layout, vectors[one]) for one in places]

    def merged(
        self, steps: Sequence[Arranged], wanted: frozenset[str] | None = None
    ) -> Iterator[tuple[list[int], dict[str, Floats]]]:
        """Yield the merged states of some steps, those that are alike together: their numbers, and a row for each.

        ``wanted`` limits the states.
        """
        parts = {id: _part(described.layout, wanted) for id, described in self.layouts.items()}
        used = {id: part for id, part in parts.items() if part[0].entries or self._coefficients(id, wanted)}
        alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
        for number, arranged in enumerate(steps):
            alike.setdefault(arranged.shape(used.keys()), []).append(number)
        for shape, numbers in alike.items():
            between = shape.index(BETWEEN)
            size = sum(8 * count * used[id][0].width for id, count in shape[:between])
            size += sum(ENCODED_BYTES * count for _, count in shape[between + 1 :])
            at_once = max(1, MAX_AT_ONCE // (size + 1))
            for begin in range(0, len(numbers), at_once):
                some = numbers[begin : begin + at_once]
                yield some, self._merge_alike([steps[number] for number in some], used, wanted)

    def _merge_alike(
        self, steps: list[Arranged], parts: dict[int, tuple[Layout, Ints]], wanted: frozenset[str] | None
    ) -> dict[str, Floats]:
        merged: dict[str, Floats] = {}
        for id in (id for id in steps[0].dense if id in parts):
            layout, slots = parts[id]
            self._add_layout(merged, id, layout, self._merge_dense(layout, slots, [s.dense[id] for s in steps]), wanted)
        for id in (id for id in steps[0].encoded if id in parts):
            layout, slots = parts[id]
            whole = self.layouts[id].layout
            bodies = self._bodies([s.encoded[id] for s in steps]) if len(slots) else []
            vectors = [whole.merge_encoded(of_step)[slots] for of_step in bodies]
            self._add_layout(merged, id, layout, np.array(vectors).reshape(len(steps), -1), wanted)
        return merged

    def _merge_dense(self, layout: Layout, slots: Ints, steps: list[Ints]) -> Floats:
        """Return the merged vectors of some steps, which have equally many states of the layout."""
        places = np.array(steps)  # step × state × (source, row)
        numbers, rows = places[..., 0].T, places[..., 1].T
        vectors = np.empty((*numbers.shape, len(slots)))
        # By source and row, so that what is read of one table is read at once and in order.
        order = np.lexsort((rows.ravel(), numbers.ravel()))
        sources = numbers.ravel()[order]
        for some in np.split(order, np.flatnonzero(sources[1:] != sources[:-1]) + 1):
            at = np.unravel_index(some, numbers.shape)
            vectors[at] = self._sources[int(numbers[at][0])].states.pick(rows[at], slots)
        return layout.merge(vectors)

    def _add_layout(
        self, merged: dict[str, Floats], id: int, layout: Layout, vectors: Floats, wanted: frozenset[str] | None
    ) -> None:
        """Merge the states of one layout with those of the layouts before it."""
        states = {name: np.tile(state, (len(vectors), 1)) for name, state in self._coefficients(id, wanted).items()} | {
            name: vectors[:, place] for name, place in layout.places.items()
        }
        kinds = dict(layout.entries)
        for name, state in states.items():
            known = merged.get(name)
            kind = KINDS[kinds[name]] if name in kinds else KINDS["last"]
            merged[name] = state if known is None else kind.merge(known, state)

    def _coefficients(self, id: int, wanted: frozenset[str] | None) -> dict[str, Floats]:
        given = self.layouts[id].coefficients
        return {name: state for name, state in given.items() if wanted is None or name in wanted}

    def _bodies(self, steps: list[Ints]) -> list[list[bytes]]:
        """Return the encoded states of some steps, those of each source read at once."""
        found: dict[Place, bytes] = {}
        for number, rows in _rows_by_source(map(tuple, np.concatenate(steps).tolist())).items():
            found |= zip([(number, row) for row in rows], self._sources[number].bodies(np.array(rows)), strict=True)
        return [[found[number, row] for number, row in places.tolist()] for places in steps]

    def _number(self, origin: StateOrigin) -> int:
        number = self._numbers.get(origin)
        if number is None:
            number = self._numbers[origin] = len(self._sources)
            self._sources.append(_Source(origin))
            self._known = None
        self._unchecked.add(number)
        return number


def _rows_by_source(places: Iterable[Place]) -> dict[int, list[int]]:
    """Return the rows of each source, in ascending order."""
    found: dict[int, list[int]] = {}
    for number, row in places:
        found.setdefault(number, []).append(row)
    return {number: sorted(rows) for number, rows in found.items()}


@lru_cache(maxsize=1 << 10)
def _part(layout: Layout, wanted: frozenset[str] | None) -> tuple[Layout, Ints]:
    """Return the layout of those states that are wanted, and their slots."""
    entries = tuple(entry for entry in layout.entries if wanted is None or entry[0] in wanted)
    slots = [np.arange(layout.places[name].start, layout.places[name].stop) for name, _ in entries]
    return Layout(entries), np.concatenate([np.empty(0, np.int64), *slots])
