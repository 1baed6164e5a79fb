"""The measured states of one role, by step.

A state is kept as its place: the table of a segment, and the row in it. What is wanted of the states is merged for many
steps at once, so that a metric costs a few NumPy calls for each rank, and not some for each state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from windsock.journal.frames import ROW_HEAD
from windsock.model import Writer
from windsock.states import KINDS, Layout, sparse

if TYPE_CHECKING:
    from windsock.measurement.merged import DescribedLayout, RankState

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Place = tuple[int, int]
"""The number of a source, and a row of it."""

MAX_AT_ONCE = 32 << 20  # bytes of states that are merged together
ENCODED_BYTES = 1 << 10  # that one sparse state may take
ENCODED = -1  # in the place of a width: the states are sparse
BETWEEN = (-1, 0)  # in the shape of a step, before the layouts of sparse states


class StateRows(Protocol):
    """Vectors of one layout, by the number of their row."""

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows, in ascending order, in some columns."""
        ...


class Vectors(dict[int, Floats]):
    """Vectors that were read one by one."""

    def pick(self, rows: Ints, columns: Ints) -> Floats:
        """Return the values of some rows in some columns."""
        return np.array([self[row][columns] for row in rows.tolist()])


class EncodedRows(Protocol):
    """Sparse states of one layout, by the number of their row."""

    def payloads(self, rows: Ints) -> list[bytes]:
        """Return the payloads of some states, in ascending order."""
        ...


class Payloads(dict[int, bytes]):
    """Sparse states that were read one by one."""

    def payloads(self, rows: Ints) -> list[bytes]:
        """Return the payloads of those states that were not forgotten."""
        return [self[row] for row in rows.tolist() if row in self]


class _Origin(NamedTuple):
    """Where states of one layout and width come from. They are merged in this order, however they were read."""

    writer: Writer
    segment: int
    layout: int
    width: int


@dataclass(slots=True)
class _Source:
    """The states of one origin."""

    origin: _Origin
    rows: StateRows = field(default_factory=Vectors)
    encoded: EncodedRows = field(default_factory=Payloads)
    count: int = 0  # of the states that were added one by one
    checked: int = 0  # sparse states
    damaged: set[int] = field(default_factory=set)  # sparse states

    def bodies(self, rows: Ints) -> list[bytes]:
        """Return encoded states."""
        return [payload[ROW_HEAD.size :] for payload in self.encoded.payloads(rows)]

    def vectors(self, rows: Ints) -> Iterable[Floats | bytes]:
        """Return states, encoded or not."""
        return self.bodies(rows) if self.origin.width == ENCODED else self.rows.pick(rows, np.arange(self.origin.width))

    def is_readable(self, width: int) -> bool:
        """Return whether all states have this width and are intact."""
        if self.origin.width != ENCODED:
            return self.origin.width == width
        first, self.checked = self.checked, self.count
        if first < self.count:
            new = list(range(first, self.count))
            if isinstance(self.encoded, Payloads):
                new = [row for row in new if row in self.encoded]
            intact = sparse.intact(self.encoded.payloads(np.array(new, np.int64)), width, ROW_HEAD.size)
            self.damaged.update(row for row, is_intact in zip(new, intact.tolist(), strict=True) if not is_intact)
        return not self.damaged


class Arranged(NamedTuple):
    """The states of one step that count, by layout: the numbers of their sources and their rows, in order."""

    dense: dict[int, Ints]
    encoded: dict[int, Ints]

    def shape(self, layouts: Set[int]) -> tuple[tuple[int, int], ...]:
        """Return what is equal for steps whose states of some layouts can be merged at once."""
        found = [(id, len(places)) for id, places in self.dense.items() if id in layouts]
        return (*found, BETWEEN, *((id, len(places)) for id, places in self.encoded.items() if id in layouts))


@dataclass(slots=True)
class _Step:
    """The states of one step."""

    dense: list[tuple[int, int, float]] = field(default_factory=list)  # source, row and time
    encoded: list[tuple[int, int]] = field(default_factory=list)


class MeasuredStates:
    """The measured states of one role. They may be added in any order."""

    def __init__(self) -> None:
        self.layouts: dict[int, DescribedLayout] = {}
        self._sources: list[_Source] = []
        self._numbers: dict[_Origin, int] = {}
        self._limits: dict[Writer, int] = {}  # the step from which on a writer is superseded
        self._in_order = True  # whether the sources were added in their order
        self._unchecked: set[int] = set()  # sources that have got further states
        self._unreadable: set[int] = set()  # sources with states that cannot be read
        self._steps: dict[int, _Step] = {}

    def __contains__(self, step: int) -> bool:
        return step in self._steps

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

    def add_rows(
        self,
        writer: Writer,
        segment: int,
        layout: int,
        table: tuple[StateRows, int],
        first: int,
        heads: Iterable[tuple[int, float]],
    ) -> None:
        """Add rows of a table, which is given with its width: the number of the first one, and steps and times."""
        rows, width = table
        number = self._number(_Origin(writer, segment, layout, width))
        self._sources[number].rows = rows
        steps = self._steps
        for row, (step, time) in enumerate(heads, first):
            found = steps.get(step)
            if found is None:
                found = steps[step] = _Step()
            found.dense.append((number, row, time))

    def add_vector(self, writer: Writer, segment: int, layout: int, step: int, time: float, vector: Floats) -> None:
        """Add one state."""
        source = self._sources[self._number(_Origin(writer, segment, layout, len(vector)))]
        assert isinstance(source.rows, Vectors)
        source.rows[source.count] = vector
        self.add_rows(writer, segment, layout, (source.rows, len(vector)), source.count, [(step, time)])
        source.count += 1

    def add_encoded(
        self, writer: Writer, segment: int, layout: int, table: EncodedRows, first: int, of_steps: Iterable[int]
    ) -> None:
        """Add sparse states of a table: the number of the first one, and their steps.

        The state of the same step that follows each tells that the rank has contributed, and when.
        """
        number = self._number(_Origin(writer, segment, layout, ENCODED))
        source, steps = self._sources[number], self._steps
        source.encoded = table
        for row, step in enumerate(of_steps, first):
            found = steps.get(step)
            if found is None:
                found = steps[step] = _Step()
            found.encoded.append((number, row))
            source.count = row + 1

    def add_payload(self, writer: Writer, segment: int, layout: int, step: int, payload: bytes) -> None:
        """Add one sparse state."""
        source = self._sources[self._number(_Origin(writer, segment, layout, ENCODED))]
        assert isinstance(source.encoded, Payloads)
        source.encoded[source.count] = payload
        self.add_encoded(writer, segment, layout, source.encoded, source.count, [step])

    def set_limits(self, limits: Mapping[Writer, int]) -> None:
        """Set the steps from which on writers are superseded."""
        self._limits = dict(limits)

    def forget(self, step: int) -> None:
        """Forget the states of a step."""
        found = self._steps.pop(step)
        for number, row, _ in found.dense:
            rows = self._sources[number].rows
            if isinstance(rows, Vectors):
                del rows[row]
        for number, row in found.encoded:
            encoded = self._sources[number].encoded
            if isinstance(encoded, Payloads):
                del encoded[row]

    def writers(self, step: int) -> set[Writer]:
        """Return the writers that have contributed to a step."""
        return {self._sources[number].origin.writer for number, _, _ in self._steps[step].dense}

    def ranks(self, step: int) -> set[int]:
        """Return the ranks whose contributions to a step count."""
        return {writer.rank for writer in self.writers(step) if self._counts(writer, step)}

    def some_sources(self, step: int) -> set[tuple[int, int]]:
        """Return rank and segment of up to two processes whose states of a step count."""
        found: set[tuple[int, int]] = set()
        states = self._steps[step]
        for number in chain((number for number, _, _ in states.dense), (number for number, _ in states.encoded)):
            origin = self._sources[number].origin
            if self._counts(origin.writer, step):
                found.add((origin.writer.rank, origin.segment))
                if len(found) > 1:
                    break
        return found

    def time(self, step: int) -> float:
        """Return the time of the last state of a step that counts; 0 if none does."""
        dense = self._steps[step].dense
        if self._limits:
            dense = [one for one in dense if self._counts(self._sources[one[0]].origin.writer, step)]
        return max((time for _, _, time in dense), default=0.0)

    def arranged(self, step: int) -> Arranged | None:
        """Return the states of a step by layout; None if one cannot be read."""
        found = self._steps[step]
        dense = self._counted([(number, row) for number, row, _ in found.dense], step)
        encoded = self._counted(found.encoded, step)
        if all(map(self._is_readable, (dense, encoded))):
            return Arranged(self._by_layout(dense), self._by_layout(encoded))
        return None

    def _by_layout(self, places: list[Place]) -> dict[int, Ints]:
        found: dict[int, list[Place]] = {}
        for place in places:
            found.setdefault(self._sources[place[0]].origin.layout, []).append(place)
        return {id: np.array(alike, np.int64) for id, alike in found.items()}

    def _counted(self, places: list[Place], step: int) -> list[Place]:
        """Return the states that count, in the order in which they are merged."""
        sources = self._sources
        if self._limits:
            places = [place for place in places if self._counts(sources[place[0]].origin.writer, step)]
        return sorted(places) if self._in_order else sorted(places, key=lambda one: (sources[one[0]].origin, one[1]))

    def _counts(self, writer: Writer, step: int) -> bool:
        limit = self._limits.get(writer)
        return limit is None or step < limit

    def _is_readable(self, places: list[Place]) -> bool:
        """Return whether the layouts of some states are known, and the states intact."""
        self._check_sources()
        if not self._unreadable:
            return True
        return not any(
            number in self._unreadable and (row in damaged if (damaged := self._sources[number].damaged) else True)
            for number, row in places
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
        from windsock.measurement.merged import RankState

        found = self._steps[step]
        places = self._counted([*found.encoded, *((number, row) for number, row, _ in found.dense)], step)
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
            vectors[at] = self._sources[int(numbers[at][0])].rows.pick(rows[at], slots)
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

    def _number(self, origin: _Origin) -> int:
        number = self._numbers.get(origin)
        if number is None:
            number = self._numbers[origin] = len(self._sources)
            self._in_order = self._in_order and (not self._sources or origin > self._sources[-1].origin)
            self._sources.append(_Source(origin))
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
