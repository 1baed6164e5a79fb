"""The Triton kernel that chooses sequences of a batch by their statistics, and copies the tokens of those.

It reads the columns that ``windsock.stats.rows_triton`` has written for the batch. Every program makes the same choice,
which takes little time, and copies some tokens of one of the sequences. So one launch is enough, and none where the
next pass has such programs among its own. Later passes write their own tokens over those that were copied.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator"
# mypy: disable-error-code="assignment, misc"
# ruff: noqa: N803, N806, RUF005 - Triton cannot compile starred items of a tuple
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl

from windsock.device_copy.triton_launcher import Launcher, named_tuple
from windsock.stats.arrays_triton import ARRAYS, Arrays, keep_of, masks, stretch
from windsock.stats.rows import FILLED, Table

SEQUENCES_AT_ONCE = (64, 256, 1024)
TOKENS_AT_ONCE = 256  # of 128 to 1,024 the fastest on an H200: programs of little code
ALIGNED = tl.constexpr(16)
KINDS = {"random": 0, "mean": 1, "total": 2, "largest": 3, "peak": 4}
FILLED_PLACES = tl.constexpr(tuple(ARRAYS.index(name) for name in FILLED))
FILLED_COUNT = tl.constexpr(len(FILLED))


class Fill(NamedTuple):
    """Where chosen sequences are: which ones, the rows of their tokens, and which ones a completing batch has."""

    chosen: Any
    rows: Any
    places: Any


class Whole(NamedTuple):
    """The batch that sequences are chosen from: its statistics, where the scores are written, and its arrays."""

    cells: Any
    scores: Any
    actions: Any
    mask: Any
    keep: Any
    bounds: Any


class Constants(NamedTuple):
    """What a choice is compiled for: the numbers of criteria and of sequences to choose, and how the batch is read."""

    criteria: int
    chosen: int
    valid: int  # the row of the table with the numbers of valid tokens
    kept: tuple[int, ...]  # the arrays that are copied; -1 for one that the batch does not have
    kept_count: int
    actions: int
    keep: int
    packed: bool
    aligned: bool  # the first column and the number of columns are multiples of ALIGNED, as that of a row always is
    few: bool  # the sequences are read at once
    sequences: int  # that are read at once


class Criterion(NamedTuple):
    """The rows of a table from which a criterion is computed; -1 for none.

    ``nan`` has the sum of a condition's inputs. The sum of a spread is that of distances to some number: it only tells
    whether all values are finite.
    """

    kind: int
    sign: float
    sum: int = -1
    more: int = -1
    min: int = -1
    max: int = -1
    nan: int = -1

    @classmethod
    def of(cls, table: Table, channels: Sequence[str], statistic: str, sign: float) -> Criterion:
        """Return the rows of a statistic of some channels; without channels it is random."""
        if not channels:
            return cls(KINDS["random"], sign)
        first = table.channels[table.places[channels[0]]]
        rows = {"sum": table.row(first.name), "more": table.row(channels[1]) if len(channels) > 1 else -1}
        assert (first.statistics == "spread") == (statistic in ("largest", "peak"))
        if first.statistics == "spread":
            rows |= {slot: table.row(first.name, slot) for slot in ("min", "max")}
        if first.nan_of in table.places:
            rows["nan"] = table.row(first.nan_of)
        return cls(KINDS[statistic], sign, **rows)


# Triton 3.6 forgets the names of a tuple inside of another one.
Criteria = named_tuple("Criteria", Criterion._fields)
"""Criteria field by field: the kinds of all of them, the signs of all of them, …."""


@triton.jit
def _cell(cells, row, columns, places, inside):
    return tl.load(cells + row * columns + places, mask=inside, other=0.0)


@triton.jit
def _random(places, seed):
    """Return a pseudo-random number of 24 bits for each place, as the host computes it."""
    x = (places + seed).to(tl.uint32)
    x = (x ^ (x >> 16)) * tl.full([1], 0x7FEB352D, tl.uint32)
    x = (x ^ (x >> 15)) * tl.full([1], 0x846CA68B, tl.uint32)
    return ((x ^ (x >> 16)) >> 8).to(tl.float32)


@triton.jit
def _score(cells, columns, places, sequences, seed, VALID: tl.constexpr, CRITERIA: tl.constexpr, WHICH: tl.constexpr):
    """Return a criterion's value for some sequences: -inf for one without valid tokens, inf for one with NaN or inf."""
    inside = (places >= 0) & (places < sequences)
    valid = _cell(cells, VALID, columns, places, inside)
    if CRITERIA.kind[WHICH] == 0:
        found = _random(places, seed)
    else:
        total = _cell(cells, CRITERIA.sum[WHICH], columns, places, inside)
        if CRITERIA.more[WHICH] >= 0:
            total += _cell(cells, CRITERIA.more[WHICH], columns, places, inside)
        if CRITERIA.kind[WHICH] >= 3:
            found = _cell(cells, CRITERIA.max[WHICH], columns, places, inside)
            if CRITERIA.kind[WHICH] == 4:
                low = _cell(cells, CRITERIA.min[WHICH], columns, places, inside)
                found = tl.maximum(tl.abs(low), tl.abs(found))
        elif CRITERIA.kind[WHICH] == 1:
            found = CRITERIA.sign[WHICH] * (total / tl.maximum(valid, 1.0))  # so that two criteria share the mean
        else:
            found = CRITERIA.sign[WHICH] * total
        odd = (tl.abs(total) < float("inf")) == 0
        if CRITERIA.nan[WHICH] >= 0:
            inputs = _cell(cells, CRITERIA.nan[WHICH], columns, places, inside)
            odd = odd | (inputs != inputs)
        found = tl.where(odd, float("inf"), found)
    return tl.where(valid > 0, found, -float("inf"))  # outside, valid is 0 too


@triton.jit
def _first(score, places, top):
    """Return the first place with the largest score; -2 if that is of no sequence."""
    first = tl.min(tl.where(score == top, places, 2147483647), 0)
    return tl.where(top > -float("inf"), first, -2)


@triton.jit
def _best(
    cells, columns, sequences, seed, picks, VALID: tl.constexpr, CRITERIA: tl.constexpr, WHICH: tl.constexpr,
    N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the first sequence with the largest value that is not among the first N picks; -2 if there is none."""
    best = tl.full([], -float("inf"), tl.float32)
    place = tl.full([], -2, tl.int32)
    for at in range(0, sequences, BLOCK):
        places = at + tl.arange(0, BLOCK)
        score = _score(cells, columns, places, sequences, seed, VALID, CRITERIA, WHICH)
        for n in tl.static_range(N):
            score = tl.where(places == picks[n], -float("inf"), score)
        top = tl.max(score, 0)
        place = tl.where(top > best, _first(score, places, top), place)
        best = tl.maximum(top, best)
    return place


@triton.jit
def _place_of(cells, slot, columns, sequences, seed, CHOICE: tl.constexpr, CRITERIA: tl.constexpr):
    """Return which sequence is chosen for a slot; -2 for none."""
    COUNT: tl.constexpr = CHOICE.criteria  # a field alone is no constant for Triton
    CHOSEN: tl.constexpr = CHOICE.chosen
    AT_ONCE: tl.constexpr = CHOICE.sequences
    place = tl.full([], -2, tl.int32)
    if CHOICE.few:  # their scores are read at once, and are not waited for one after the other
        some = tl.arange(0, AT_ONCE)
        read = ()
        for n in tl.static_range(min(COUNT, CHOSEN)):
            read = read + (_score(cells, columns, some, sequences, seed, CHOICE.valid, CRITERIA, n),)
        left = some >= 0
        for n in tl.static_range(CHOSEN):
            score = tl.where(left, read[min(n, COUNT - 1)], -float("inf"))
            pick = _first(score, some, tl.max(score, 0))
            place = tl.where(slot == n, pick, place)
            left = left & (some != pick)
    else:
        picks = (place,)
        for n in tl.static_range(CHOSEN):
            pick = _best(
                cells, columns, sequences, seed, picks, CHOICE.valid, CRITERIA, min(n, COUNT - 1), n + 1, AT_ONCE
            )
            place = tl.where(slot == n, pick, place)
            picks = picks + (pick,)
    return place


@triton.jit
def choose_tokens(
    fill, whole, arrays, slot, block, width, columns, column, sequences, room, seed,
    CHOICE: tl.constexpr, CRITERIA: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Choose the sequence of a slot, and copy a block of its tokens: arrays, the actions, and flags. Return its place.

    The flags are 1 for the response and 2 for valid tokens. An array that the batch does not have is NaN. In place of
    the first block, which is none of tokens, the choice itself is written.
    """
    COUNT: tl.constexpr = CHOICE.criteria
    # So that statistics are read four at a time: Triton ignores ``multiple_of`` of an argument.
    columns = columns // ALIGNED * ALIGNED
    if CHOICE.aligned:
        column, sequences = column // ALIGNED * ALIGNED, sequences // ALIGNED * ALIGNED
    room = room // ALIGNED * ALIGNED
    cells = whole.cells + column
    place = _place_of(cells, slot, columns, sequences, seed, CHOICE, CRITERIA)
    if block == 0:  # a program of its own: others have no time for it
        scores = ()  # all are read before the first is written, so that the program waits once
        for n in tl.static_range(COUNT):
            value = _score(cells, columns, tl.zeros([16], tl.int32) + place, sequences, seed, CHOICE.valid, CRITERIA, n)
            scores = scores + (tl.max(value, 0),)
        tl.store(fill.chosen + slot, place)
        for n in tl.static_range(COUNT):
            tl.store(whole.scores + slot * COUNT + n, scores[n])
    else:
        _copy_tokens(fill, whole, arrays, tl.maximum(place, 0), slot, block, width, room, CHOICE, TOKENS)
    return place


@triton.jit
def _copy_tokens(
    fill, whole, arrays, place, slot, block, width, room, CHOICE: tl.constexpr, TOKENS: tl.constexpr
):  # fmt: skip
    """Copy a block of the tokens of a sequence to a row."""
    KEPT_COUNT: tl.constexpr = CHOICE.kept_count
    row = place.to(tl.int64)
    base, length = stretch(whole.bounds, row, width, CHOICE.packed)
    keep, kept = keep_of(whole.keep, base, row, CHOICE.keep)
    places = (block - 1) * TOKENS + tl.arange(0, TOKENS)
    inside, within = places < length, places < room
    response, valid = masks(whole.mask + base, keep, kept, places, inside, CHOICE.keep)
    read = ()  # as the scores
    for n in tl.static_range(KEPT_COUNT):
        if CHOICE.kept[n] >= 0:
            read = read + (tl.load(arrays[CHOICE.kept[n]] + base + places, mask=inside, other=0.0).to(tl.float32),)
        else:
            read = read + (tl.zeros([TOKENS], tl.float32) + float("nan"),)
    token = places
    if CHOICE.actions:
        token = tl.load(whole.actions + base + places, mask=inside, other=-1).to(tl.int32)
    out = fill.rows + slot * (KEPT_COUNT + 1 + CHOICE.actions) * room + places
    for n in tl.static_range(KEPT_COUNT):
        tl.store(out + n * room, read[n], mask=within)
    words = out.to(tl.pointer_type(tl.int32), bitcast=True)
    if CHOICE.actions:
        tl.store(words + KEPT_COUNT * room, token, mask=within)
    flags = response.to(tl.int32) + 2 * valid.to(tl.int32)
    tl.store(words + (KEPT_COUNT + CHOICE.actions) * room, flags, mask=within)


@triton.jit
def _row_of(fill, place, first, programs, TOKENS: tl.constexpr):
    """Return which sequence of a completing batch a chosen one is; -1 for none."""
    row = place - first
    if fill.places is not None:
        lane = tl.arange(0, TOKENS)
        row = tl.full([], -1, tl.int32)
        for at in range(0, programs, TOKENS):
            some = tl.load(fill.places + at + lane, mask=at + lane < programs, other=-1)
            row = tl.maximum(row, tl.max(tl.where(some == place, at + lane, -1), 0))
    return tl.where((place >= 0) & (row < programs), row, -1)


@triton.jit
def complete_row(
    fill, arrays, bounds, width, place, slot, block, programs, first, room, COLUMNS: tl.constexpr,
    PACKED: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Write a block of tokens over those of a chosen sequence, if the completing batch has it."""
    row = _row_of(fill, place, first, programs, TOKENS)
    if row >= 0:
        base, length = stretch(bounds, row.to(tl.int64), width, PACKED)
        places = (block - 1) * TOKENS + tl.arange(0, TOKENS)
        room = room // ALIGNED * ALIGNED
        inside = (places >= 0) & (places < length) & (places < room)
        read = ()
        for n in tl.static_range(FILLED_COUNT):
            if arrays[FILLED_PLACES[n]] is not None:
                read = read + (tl.load(arrays[FILLED_PLACES[n]] + base + places, mask=inside).to(tl.float32),)
            else:
                read = read + (0.0,)
        out = fill.rows + slot * COLUMNS * room + places
        for n in tl.static_range(FILLED_COUNT):
            if arrays[FILLED_PLACES[n]] is not None:
                tl.store(out + n * room, read[n], mask=inside)


@triton.jit(do_not_specialize=["columns", "column", "sequences", "room", "seed"])
def _choose(
    fill, whole, arrays, width, columns, column, sequences, seed, room,
    CHOICE: tl.constexpr, CRITERIA: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Choose sequences, and copy some tokens of one of them."""
    slot, block = tl.program_id(0), tl.program_id(1)
    choose_tokens(
        fill, whole, arrays, slot, block, width, columns, column, sequences, room, seed, CHOICE, CRITERIA, TOKENS
    )


Numbers = tuple[int | None, int | None, int | None, int | None, int | None]
"""The width of a batch to choose from, the columns of its table, the first one of it, its sequences, and the seed."""


def blocks_of(room: int) -> int:
    """Return the number of blocks of a row of tokens."""
    return -(-room // TOKENS_AT_ONCE)


class Choice:
    """The choice from batches of one table, of up to so many sequences: a kernel, or programs of a later pass.

    ``kept`` are the arrays that are copied, after FILLED those of the batch.
    """

    def __init__(
        self, table: Table, criteria: Sequence[Criterion], kept: Sequence[str | None], actions: bool, count: int,
        keep: int, packed: bool, aligned: bool, sequences: int,
    ) -> None:  # fmt: skip
        assert len(kept) >= len(FILLED)
        self._constants = Constants(
            criteria=len(criteria),
            chosen=count,
            valid=table.blocks["valid"].start,
            kept=tuple(-1 if name is None else ARRAYS.index(name) for name in kept),
            kept_count=len(kept),
            actions=int(actions),
            keep=keep,
            packed=packed,
            aligned=aligned,
            few=sequences <= SEQUENCES_AT_ONCE[-1],
            sequences=next((size for size in SEQUENCES_AT_ONCE if size >= sequences), 256),
        )
        self.constants = {"CHOICE": self._constants, "CRITERIA": Criteria._make(zip(*criteria, strict=True))}
        self._launch = Launcher(_choose, {**self.constants, "TOKENS": TOKENS_AT_ONCE}, {"num_warps": 4})

    def launch(
        self,
        key: Any,
        stream: int | None,
        addresses: tuple[Fill, Whole, Any],
        tensors: Callable[[], tuple[Fill, Whole, Any]],
        numbers: Numbers,
        room: int,
    ) -> None:
        """Queue the kernel on the current stream.

        The addresses and the tensors are those of the rows, of the batch, and of its arrays of tokens.
        """
        grid = (self._constants.chosen, 1 + blocks_of(room), 1)

        def named() -> tuple[Any, ...]:
            fill, whole, arrays = tensors()
            return fill, whole, Arrays._make(arrays), *numbers, room

        self._launch(key, grid, stream, (*addresses, *numbers, room), named)
