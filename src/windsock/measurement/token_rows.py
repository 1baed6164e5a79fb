"""The tokens of the sequences that were chosen in a step.

A batch whose data part is measured, and which has ids, gives the rows of some sequences (``RowSet``); the
micro-batches of an update complete those with the log-probs and entropies of the policy that is trained. A micro-batch
finds its sequences by their places, if it is a part of the measured batch, or by ids. It has the tokens of a sequence
at the same places as the batch had them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.batch import Batch, Ints, to_numpy
from windsock.measurement.options import Options
from windsock.measurement.plan import Plan
from windsock.measurement.selection import HostSelection
from windsock.measurement.token_choice import MAX_SEED, asked_of, chosen_of_all, greedy, reason, scores_of
from windsock.model import MeasuredTokens
from windsock.stats.rows import FILLED

KEPT = (*FILLED, "ref_log_probs", "rollout_log_probs")
MAX_TOKENS = 1 << 15
"""The tokens of a sequence that are kept; of a longer one, the first."""
MAX_SETS = 8
"""The batches of a step from which sequences are chosen; of more, the first."""

Request = tuple[int, int]
"""How many sequences to choose from a batch with ids, and the seed of the random one."""
Places = int | Ints
"""Which sequences of a measured batch the sequences of another one are: the first of a stretch, or all; -1 for none."""


class Pick(NamedTuple):
    """A chosen sequence."""

    id: str
    place: int
    scores: Sequence[float]  # by the criteria of its set


@dataclass(slots=True, eq=False)
class Row:
    """The tokens of a chosen sequence."""

    pick: Pick
    arrays: Mapping[str, NDArray[np.float32]]
    actions: NDArray[np.integer[Any]] | None
    flags: NDArray[np.integer[Any]]

    def measured(self, reason: str, clip: tuple[float, float] | None) -> MeasuredTokens:
        """Return the record for the samples."""
        return MeasuredTokens(self.pick.id, reason, self.arrays, self.actions, self.flags, clip)


class RowSet:
    """The sequences that were chosen from one batch. Those of a device are known when the step ends."""

    ids: Any
    sequences: int
    count: int  # of the sequences to choose
    criteria: tuple[str, ...]
    clip: tuple[float, float] | None = None
    numbers: dict[str, int] | None = None
    is_overwritten = False  # its arrays changed before they were copied: it has no rows

    def picks(self) -> list[Pick]:
        """Return the chosen sequences in the order of the choice, when the step has ended."""
        raise NotImplementedError

    def made(self) -> list[Row]:
        """Return their rows, once."""
        raise NotImplementedError

    def reason(self, number: int, pick: Pick) -> str:
        """Return why the sequence with this number was chosen from this batch."""
        criterion = min(number, len(self.criteria) - 1)
        return reason(self.criteria[criterion], pick.scores[criterion])

    def places_of(self, ids: Any) -> Ints:
        """Return the places of sequences by their ids."""
        if self.numbers is None:
            self.numbers = {str(id): place for place, id in enumerate(known_ids(self.ids))}
        return np.array([self.numbers.get(str(id), -1) for id in known_ids(ids)], np.int64)


class HostRows(RowSet):
    """Sequences that were chosen on the host."""

    def __init__(self, ids: Sequence[Any], sequences: int, count: int, criteria: tuple[str, ...]) -> None:
        self.ids, self.sequences, self.count, self.criteria = ids, sequences, count, criteria
        self.rows: list[Row] = []

    def picks(self) -> list[Pick]:
        """Return the chosen sequences."""
        return [row.pick for row in self.rows]

    def made(self) -> list[Row]:
        """Return the rows."""
        return self.rows

    def fill(self, batch: Batch, places: Places, names: Iterable[str]) -> None:
        """Take the values of a micro-batch on the host for the sequences that it has."""
        for row in self.rows:
            place = row.pick.place
            found = [place - places] if isinstance(places, int) else np.flatnonzero(places == place).tolist()
            if found and 0 <= found[0] < batch.sequences:
                for name in names:
                    _write(row, name, _row(batch, name, found[0]))


class TokenRows:
    """The rows of one step, of all its batches."""

    def __init__(self) -> None:
        self.sets: list[RowSet] = []

    def next_request(self, request: Request) -> Request | None:
        """Return the request for a further batch, whose random choice is another one; None for no choice from it."""
        if len(self.sets) >= MAX_SETS:
            return None
        number, seed = request
        return number, (seed + sum(one.sequences for one in self.sets)) & MAX_SEED

    def add(self, batch: Batch, rows: RowSet) -> None:
        """Keep the rows of a batch."""
        self.sets.append(rows)
        batch.prepared[TokenRows] = rows
        while batch.rows is None and batch.whole is not None:
            batch = batch.whole
            batch.prepared[TokenRows] = rows

    def located(self, batch: Batch) -> tuple[RowSet, Places] | None:
        """Return the rows that a micro-batch of an update may complete, and which sequences it has."""
        if not self.sets:
            return None
        found = self._by_part(batch)
        if found is None and "ids" in batch.given:
            for rows in self.sets:
                places = rows.places_of(batch.ids)
                if (places >= 0).any():
                    return rows, places
        return found

    def _by_part(self, batch: Batch) -> tuple[RowSet, Places] | None:
        places: Places = 0
        part, count = batch, batch.sequences
        while True:
            rows = part.prepared.get(TokenRows)
            if rows is not None and rows in self.sets:
                return rows, places
            if part.whole is None:
                return None
            if part.rows is not None:
                places = _of_whole(part.rows, part.whole.sequences, places, count)
            part = part.whole

    def merge(self, other: TokenRows) -> None:
        """Take the rows of another measurement of the same step."""
        self.sets += other.sets


class Chosen(NamedTuple):
    """A sequence that was chosen in a step: whose row it has, which of them, its id, and the reason."""

    rows: RowSet
    number: int
    id: str
    reason: str


class TakenTokens:
    """The chosen sequences of a step. Their tokens are fetched when they are asked for, after the commit."""

    def __init__(self, sets: Sequence[RowSet]) -> None:
        self._sets = sets

    def ids(self) -> list[str]:
        """Return the ids of the sequences."""
        return [one.id for one in self._chosen()]

    def fetch(self) -> list[MeasuredTokens]:
        """Return the records of the sequences in the order of the ids, once."""
        chosen = self._chosen()
        made = {rows: rows.made() for rows in dict.fromkeys(one.rows for one in chosen)}
        return [made[one.rows][one.number].measured(one.reason, one.rows.clip) for one in chosen]

    def _chosen(self) -> list[Chosen]:
        if len(self._sets) == 1:  # in the order of the choice
            [rows] = self._sets
            return [Chosen(rows, n, pick.id, rows.reason(n, pick)) for n, pick in enumerate(rows.picks())]
        every = [(rows, n, pick) for rows in self._sets for n, pick in enumerate(rows.picks())]
        scores = [dict(zip(rows.criteria, pick.scores, strict=True)) for rows, _, pick in every]
        count = max((rows.count for rows in self._sets), default=0)
        found = [(*every[place], why) for place, why in chosen_of_all(scores, count)]
        return [Chosen(rows, n, pick.id, why) for rows, n, pick, why in found]


def host_rows(batch: Batch, selection: HostSelection, plan: Plan, request: Request) -> HostRows:
    """Choose sequences of a batch on the host, and copy their tokens."""
    asked, (number, seed) = asked_of(plan), request
    scores = scores_of(selection, asked, seed)
    criteria = tuple(criterion.name for criterion in asked)
    rows = HostRows([*known_ids(batch.ids)], batch.sequences, number, criteria)
    rows.clip = clip_of(plan.options) if "policy" in plan.parts else None
    for place, _ in greedy(scores, number):
        rows.rows.append(
            Row(
                Pick(str(rows.ids[place]), place, scores[:, place].tolist()),
                arrays={name: _row(batch, source, place) for name, source in sources(plan).items()},
                actions=_cut(batch, batch.actions, place).astype(np.int64) if plan.repeats else None,
                flags=_cut(batch, selection.response, place) + 2 * _cut(batch, selection.valid, place),
            )
        )
    return rows


@lru_cache(maxsize=256)
def sources(plan: Plan) -> dict[str, str]:
    """Return the arrays of a batch that are kept, by the names under which they are kept."""
    found = {name: name for name in KEPT if name in plan.arrays}
    if "entropy" not in found and "old_entropy" in plan.arrays:
        found["entropy"] = "old_entropy"
    return found


def filled(plan: Plan) -> tuple[str, ...]:
    """Return the arrays of an update's batch that are taken."""
    return tuple(name for name in FILLED if name in plan.arrays)


def clip_of(options: Options) -> tuple[float, float] | None:
    """Return the band outside of which tokens are clipped one by one."""
    return options.clip if options.level == "token" else None


def known_ids(ids: Any) -> Sequence[Any]:
    """Return ids as names and numbers of Python; those of a device are copied."""
    found: Sequence[Any] = ids.tolist() if hasattr(ids, "tolist") else ids
    return found


def _row(batch: Batch, name: str, place: int) -> NDArray[np.float32]:
    """Return a copy of the values of one sequence."""
    return np.array(_cut(batch, getattr(batch, name), place), np.float32)


def _cut(batch: Batch, array: Any, place: int) -> NDArray[Any]:
    """Return the tokens of one sequence; they are converted alone, and not the whole array."""
    if batch.cu_seqlens is None:
        return to_numpy(array[place])[:MAX_TOKENS]
    start, stop = to_numpy(batch.cu_seqlens)[place : place + 2].tolist()
    return to_numpy(array[start : min(stop, start + MAX_TOKENS)])


def _write(row: Row, name: str, values: NDArray[np.float32]) -> None:
    """Write values over those of a row; tokens that one of both does not have are left."""
    known = row.arrays.get(name)
    if known is None:
        known = np.full(len(row.flags), np.nan, np.float32)
        row.arrays = {**row.arrays, name: known}
    size = min(len(known), len(values))
    known[:size] = values[:size]


def _of_whole(rows: slice | Ints, sequences: int, places: Places, count: int) -> Places:
    """Return places among the sequences of a whole from those among a part of it."""
    if isinstance(rows, slice) and rows.step in (None, 1):
        return places + rows.indices(sequences)[0]
    all_places = np.arange(sequences)[rows]
    return all_places[places : places + count] if isinstance(places, int) else all_places[places]
