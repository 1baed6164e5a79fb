"""The sequences of a step whose tokens are kept, and those tokens.

One sequence is chosen for each criterion, and none twice: the first is that of the first criterion whose inputs are
given, the second that of the next one among the others, and so on; further ones are chosen at random. Of equal
sequences the first is chosen. A sequence with a value that is not finite is the most extreme of all, and one
without a valid token is never chosen. Where no sequence has what a criterion looks for, any one is taken. A choice
from several batches is the choice from what was chosen from each. A batch whose data part is measured, and which
has ids, gives the rows of some sequences; the micro-batches of an update complete those with the log-probs and
entropies of the policy that is trained. A micro-batch finds its sequences by their places, if it is a part of the
measured batch, or by ids. It has the tokens of a sequence at the same places as the batch had them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats, Ints
from barograph.base.model import MeasuredTokens
from barograph.metrics.batch.arrays import Batch, to_numpy
from barograph.metrics.batch.host import HostSelection
from barograph.metrics.batch.inputs import clip_of
from barograph.metrics.batch.plan import MeasurementPlan
from barograph.metrics.formulas.table import FILLED

MOST_SEQUENCES = 32
"""How many sequences of a step may be asked for."""

MAX_SEED = (1 << 30) - 1  # the kernel's integers have 32 bits and a sign

NEVER = -np.inf


class Criterion(NamedTuple):
    """A number of each sequence whose largest value is looked for; that of ``random`` has no channels.

    It is a statistic of the first alternative whose channels are all measured: their ``mean`` over the tokens, the
    ``total`` of their sums, the ``largest`` value of a token, or the ``peak``, the largest absolute value.
    """

    name: str
    alternatives: tuple[tuple[str, ...], ...]
    statistic: Literal["mean", "total", "largest", "peak"]
    sign: float = 1.0
    least: float = NEVER  # less is no reason to choose a sequence


ANY = "any"
"""The reason where no sequence has what the criterion looks for."""

ROUNDING = 2.0**-12  # a smaller difference of log-probs is not stored either

RANDOM = Criterion("random", (), "total")

CRITERIA = (
    Criterion("mismatch", (("log_prob_difference",),), "largest", least=ROUNDING),
    Criterion("clipped", (("high", "low"), ("truncates",), ("rejects",)), "total", least=1.0),
    Criterion("kl", (("old_ref_k3",), ("ref_k3",), ("kl_k3",)), "total", least=ROUNDING**2 / 2),
    Criterion("highest entropy", (("old_entropy",), ("entropy",)), "mean"),
    Criterion("lowest entropy", (("old_entropy",), ("entropy",)), "mean", -1.0),
    Criterion("advantage", (("advantages",),), "peak", least=ROUNDING),
    RANDOM,
)

LEAST = {criterion.name: criterion.least for criterion in CRITERIA}


Asked = tuple[Criterion, tuple[str, ...]]
"""A criterion and the channels that it is computed from."""


@lru_cache(maxsize=256)
def asked_of(plan: MeasurementPlan) -> tuple[Asked, ...]:
    """Return the criteria that can be computed with a plan; the last is the random one."""
    found = []
    for criterion in CRITERIA:
        known = (names for names in criterion.alternatives if plan.channels.issuperset(names))
        channels = () if criterion is RANDOM else next(known, None)
        if channels is not None:
            found.append((criterion, channels))
    return tuple(found)


def scores_of(selection: HostSelection, asked: Sequence[Asked], seed: int) -> Floats:
    """Return the value of each criterion for each sequence."""
    scores = np.full((len(asked), len(selection.counts)), NEVER)
    some = selection.counts > 0
    for place, (criterion, channels) in enumerate(asked):
        found = _score(selection, criterion, channels) if channels else _random(len(some), seed)
        scores[place, some] = found[some]
    return scores


@np.errstate(all="ignore")  # infinities and NaN are results
def _score(selection: HostSelection, criterion: Criterion, channels: tuple[str, ...]) -> Floats:
    totals = sum((selection.totals(channel) for channel in channels), np.zeros(len(selection.counts)))
    if criterion.statistic in ("largest", "peak"):
        found = _largest(selection, channels[0], np.abs if criterion.statistic == "peak" else np.asarray)
    else:
        found = criterion.sign * (totals / selection.counts if criterion.statistic == "mean" else totals)
    return np.where(np.isfinite(totals), found, np.inf)


def _largest(selection: HostSelection, channel: str, function: Callable[[Any], Any]) -> Floats:
    """Return the largest value of a function of a channel in each sequence, 0 in one without tokens."""
    found = np.zeros(len(selection.counts))
    some = np.flatnonzero(selection.counts)
    if len(some):
        counts = selection.counts[some]
        found[some] = np.maximum.reduceat(function(selection.channel(channel)), np.cumsum(counts) - counts)
    return found


def _random(count: int, seed: int) -> Floats:
    """Return a pseudo-random number of 24 bits for each place; the kernel computes the same."""
    x = np.arange(count, dtype=np.uint32) + np.uint32(seed)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return ((x ^ (x >> np.uint32(16))) >> np.uint32(8)).astype(np.float64)


def greedy(scores: Floats, count: int) -> Iterator[tuple[int, int]]:
    """Yield up to ``count`` sequences, each with the number of the criterion that it was chosen by."""
    left = scores.copy()
    for slot in range(count):
        criterion = min(slot, len(left) - 1)
        place = int(left[criterion].argmax()) if left.shape[1] else 0
        if left.shape[1] and left[criterion, place] > NEVER:
            yield place, criterion
            left[:, place] = NEVER


def reason(criterion: str, score: float) -> str:
    """Return why a sequence was chosen."""
    return criterion if score >= LEAST[criterion] else ANY


def chosen_of_all(candidates: Sequence[Mapping[str, float]], count: int) -> Iterator[tuple[int, str]]:
    """Yield the places of those chosen among candidates with their scores by name, and why they were chosen."""
    if not candidates:
        return
    names = [criterion.name for criterion in CRITERIA if any(criterion.name in scores for scores in candidates)]
    table = np.array([[scores.get(name, NEVER) for scores in candidates] for name in names])
    for place, criterion in greedy(table, count):
        yield place, reason(names[criterion], table[criterion, place])


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
class TokenRow:
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

    def made(self) -> list[TokenRow]:
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
        self.rows: list[TokenRow] = []

    def picks(self) -> list[Pick]:
        """Return the chosen sequences."""
        return [row.pick for row in self.rows]

    def made(self) -> list[TokenRow]:
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


def host_rows(batch: Batch, selection: HostSelection, plan: MeasurementPlan, request: Request) -> HostRows:
    """Choose sequences of a batch on the host, and copy their tokens."""
    asked, (number, seed) = asked_of(plan), request
    scores = scores_of(selection, asked, seed)
    criteria = tuple(criterion.name for criterion, _ in asked)
    rows = HostRows([*known_ids(batch.ids)], batch.sequences, number, criteria)
    rows.clip = clip_of(plan.options) if "policy" in plan.parts else None
    for place, _ in greedy(scores, number):
        rows.rows.append(
            TokenRow(
                Pick(str(rows.ids[place]), place, scores[:, place].tolist()),
                arrays={name: _row(batch, source, place) for name, source in sources(plan).items()},
                actions=_cut(batch, batch.actions, place).astype(np.int64) if plan.repeats else None,
                flags=_cut(batch, selection.response, place) + 2 * _cut(batch, selection.valid, place),
            )
        )
    return rows


@lru_cache(maxsize=256)
def sources(plan: MeasurementPlan) -> dict[str, str]:
    """Return the arrays of a batch that are kept, by the names under which they are kept."""
    found = {name: name for name in KEPT if name in plan.arrays}
    if "entropy" not in found and "old_entropy" in plan.arrays:
        found["entropy"] = "old_entropy"
    return found


def filled(plan: MeasurementPlan) -> tuple[str, ...]:
    """Return the arrays of an update's batch that are taken."""
    return tuple(name for name in FILLED if name in plan.arrays)


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


def _write(row: TokenRow, name: str, values: NDArray[np.float32]) -> None:
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
