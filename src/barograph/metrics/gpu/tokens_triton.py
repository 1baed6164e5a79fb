"""The Triton kernel that chooses sequences of a batch by their statistics, and copies the tokens of those.

It reads the columns that ``barograph.metrics.gpu.rows_triton`` has written for the batch. Every program makes the
same choice, which takes little time, and copies some tokens of one of the sequences. So one launch is enough, and
none where the next pass has such programs among its own. Later passes write their own tokens over those that were
copied. The pass over the batch writes the addresses of its arrays into the device's memory. A pass that chooses
from it reads them there: its launch has no further arguments, so that all passes of an update use the same kernel.
The arrays of a batch as both kernels see them are here too: which there are, where a sequence begins, and its
masks.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator"
# mypy: disable-error-code="assignment, misc"
# ruff: noqa: N803, N806, RUF005 - Triton cannot compile starred items of a tuple

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl

from barograph.base.device_copy.triton_kernels import KINDS as DTYPES
from barograph.base.device_copy.triton_kernels import Launcher, named_tuple
from barograph.metrics.formulas.table import FILLED, STORED, UNKNOWN, SequenceTable


def field(name: str) -> str:
    """Return the name of a tuple's field; ``values`` is an attribute of all tuples in Triton."""
    return "values_" if name == "values" else name


ARRAYS = tuple(dict.fromkeys(
    need.name for channel in STORED for need in channel.needs if need.name not in ("actions", "eos_ids")
))  # fmt: skip
"""The arrays of numbers that channels need; token ids are compared and not computed with."""

Arrays = named_tuple("Arrays", [field(name) for name in ARRAYS])


@triton.jit
def stretch(bounds, row, width, PACKED: tl.constexpr):
    """Return the first token of a sequence, in 64 bits, and its length, in 32 bits."""
    base, length = row * width, width
    if PACKED:
        base = tl.load(bounds + row).to(tl.int64)
        length = (tl.load(bounds + row + 1) - tl.load(bounds + row)).to(tl.int32)
    return base, length


@triton.jit
def keep_of(keep, base, row, KEEP: tl.constexpr):
    """Return where a sequence's ``keep`` of tokens begins, and whether the sequence itself is kept."""
    kept = row >= 0  # always
    if KEEP == 1:
        kept = tl.load(keep + row) != 0
    if KEEP == 2:
        keep += base
    return keep, kept


@triton.jit
def masks(mask, keep, kept, places, inside, KEEP: tl.constexpr):
    """Return which of some tokens belong to the response, and which of those ``keep`` includes."""
    response = (tl.load(mask + places, mask=inside, other=0) != 0) & inside
    valid = response
    if KEEP == 1:
        valid = response & kept
    if KEEP == 2:
        valid = response & (tl.load(keep + places, mask=inside, other=0) != 0)
    return response, valid


SEQUENCES_AT_ONCE = (64, 256, 1024)

# The fastest on an H200: many programs share their processors with the others of a pass, and delay those.
TOKENS_AT_ONCE = 512

COMPLETED_AT_ONCE = 2048  # by one program for each sequence

ALIGNED = tl.constexpr(16)

KINDS = {"random": 0, "mean": 1, "total": 2, "largest": 3, "peak": 4}

FILLED_PLACES = tl.constexpr(tuple(ARRAYS.index(name) for name in FILLED))

FILLED_COUNT = tl.constexpr(len(FILLED))

UNKNOWN_BITS = tl.constexpr(UNKNOWN)

ARRAY_COUNT = tl.constexpr(len(ARRAYS))

FURTHER = ("actions", "mask", "keep", "bounds", "cells", "width", "columns", "sequences")
"""What follows the addresses of the arrays in the description of a batch: further addresses, and numbers."""

ACTIONS, MASK, KEEP, BOUNDS, CELLS, WIDTH, COLUMNS, SEQUENCES = (
    tl.constexpr(len(ARRAYS) + place) for place in range(len(FURTHER))
)

DESCRIPTION_WORDS = -(-2 * (len(ARRAYS) + len(FURTHER)) // ALIGNED.value) * ALIGNED.value
"""The words of 32 bits of a description. In the memory of a choice, what is chosen follows it, and then the scores."""

DESCRIBED = tl.constexpr(DESCRIPTION_WORDS)


class Fill(NamedTuple):
    """Where rows of tokens are: the choice, the rows, and which sequences a completing batch has.

    A pass that only describes its batch has the choice alone.
    """

    choice: Any
    rows: Any
    places: Any


class Constants(NamedTuple):
    """What a choice is compiled for: the numbers of criteria and of sequences to choose, and how the batch is read."""

    criteria: int
    chosen: int
    valid: int  # the row of the table with the numbers of valid tokens
    kept: tuple[int, ...]  # the arrays that are copied; -1 for one that the batch does not have
    kept_count: int
    kinds: tuple[Any, ...]  # of these, the actions, the mask, keep, and the bounds
    actions: int
    keep: int
    packed: bool
    aligned: bool  # the first column and the number of columns are multiples of ALIGNED, as that of a row always is
    few: bool  # the sequences are read at once
    sequences: int  # that are read at once


class CriterionRows(NamedTuple):
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
    def of(cls, table: SequenceTable, channels: Sequence[str], statistic: str, sign: float) -> CriterionRows:
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
Criteria = named_tuple("Criteria", CriterionRows._fields)
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
def describe(choice, arrays, actions, mask, keep, bounds, cells, width, columns, sequences):
    """Write where a batch is, for the programs that choose from it."""
    words = choice.to(tl.pointer_type(tl.int64), bitcast=True)
    for n in tl.static_range(ARRAY_COUNT):
        if arrays[n] is not None:
            tl.store(words + n, arrays[n].to(tl.int64))
    tl.store(words + ACTIONS, actions.to(tl.int64))
    tl.store(words + MASK, mask.to(tl.int64))
    tl.store(words + KEEP, keep.to(tl.int64))
    tl.store(words + BOUNDS, bounds.to(tl.int64))
    tl.store(words + CELLS, cells.to(tl.int64))
    tl.store(words + WIDTH, tl.zeros([], tl.int64) + width)  # Triton takes a width of 1 for a constant
    tl.store(words + COLUMNS, columns.to(tl.int64))
    tl.store(words + SEQUENCES, sequences.to(tl.int64))


@triton.jit
def _address(words, place, KIND: tl.constexpr, MULTIPLE: tl.constexpr = 1):
    """Return an address of a description, which is a multiple of so many bytes."""
    # Here, and not by the caller: the hint is lost with the call.
    return tl.multiple_of(tl.load(words + place).to(tl.pointer_type(KIND), bitcast=True), MULTIPLE)


@triton.jit
def _number(words, place):
    """Return a number of a description."""
    return tl.load(words + place).to(tl.int32)


@triton.jit
def chosen_before(fill, slot):
    """Return the sequence that was chosen for a slot by an earlier pass; -2 for none."""
    return tl.load(fill.choice + DESCRIBED + slot)


@triton.jit
def choose_tokens(
    fill, slot, block, room, seed, CHOICE: tl.constexpr, CRITERIA: tl.constexpr, TOKENS: tl.constexpr
):  # fmt: skip
    """Choose the sequence of a slot, and copy a block of its tokens: arrays, the actions, and flags. Return its place.

    The flags are 1 for the response and 2 for valid tokens. An array that the batch does not have is UNKNOWN. In
    place of the first block, which is none of tokens, the choice itself is written.
    """
    COUNT: tl.constexpr = CHOICE.criteria
    words = fill.choice.to(tl.pointer_type(tl.int64), bitcast=True)
    cells = _address(words, CELLS, tl.float32, 4 * ALIGNED if CHOICE.aligned else 4)
    columns, sequences = _number(words, COLUMNS), _number(words, SEQUENCES)
    # So that statistics are read four at a time.
    columns = columns // ALIGNED * ALIGNED
    if CHOICE.aligned:
        sequences = sequences // ALIGNED * ALIGNED
    room = room // ALIGNED * ALIGNED
    place = _place_of(cells, slot, columns, sequences, seed, CHOICE, CRITERIA)
    if block == 0:  # a program of its own: others have no time for it
        values = ()  # all are read before the first is written, so that the program waits once
        for n in tl.static_range(COUNT):
            value = _score(cells, columns, tl.zeros([16], tl.int32) + place, sequences, seed, CHOICE.valid, CRITERIA, n)
            values = values + (tl.max(value, 0),)
        chosen = fill.choice + DESCRIBED
        tl.store(chosen + slot, place)
        scores = (chosen + tl.cdiv(CHOICE.chosen, ALIGNED) * ALIGNED).to(tl.pointer_type(tl.float32), bitcast=True)
        for n in tl.static_range(COUNT):
            tl.store(scores + slot * COUNT + n, values[n])
    else:
        _copy_tokens(fill, words, tl.maximum(place, 0), slot, block, room, CHOICE, TOKENS)
    return place


@triton.jit
def _copy_tokens(fill, words, place, slot, block, room, CHOICE: tl.constexpr, TOKENS: tl.constexpr):
    """Copy a block of the tokens of a sequence to a row."""
    KEPT_COUNT: tl.constexpr = CHOICE.kept_count
    row = place.to(tl.int64)
    bounds = _address(words, BOUNDS, CHOICE.kinds[KEPT_COUNT + 3])
    base, length = stretch(bounds, row, _number(words, WIDTH), CHOICE.packed)
    keep, kept = keep_of(_address(words, KEEP, CHOICE.kinds[KEPT_COUNT + 2]), base, row, CHOICE.keep)
    places = (block - 1) * TOKENS + tl.arange(0, TOKENS)
    inside, within = places < length, places < room
    mask = _address(words, MASK, CHOICE.kinds[KEPT_COUNT + 1])
    response, valid = masks(mask + base, keep, kept, places, inside, CHOICE.keep)
    read = ()  # as the scores
    for n in tl.static_range(KEPT_COUNT):
        if CHOICE.kept[n] >= 0:
            array = _address(words, CHOICE.kept[n], CHOICE.kinds[n])
            read = read + (tl.load(array + base + places, mask=inside, other=0.0).to(tl.float32),)
        else:
            read = read + (tl.full([TOKENS], UNKNOWN_BITS, tl.int32).to(tl.float32, bitcast=True),)
    token = places
    if CHOICE.actions:
        actions = _address(words, ACTIONS, CHOICE.kinds[KEPT_COUNT])
        token = tl.load(actions + base + places, mask=inside, other=-1).to(tl.int32)
    out = fill.rows + slot * (KEPT_COUNT + 1 + CHOICE.actions) * room + places
    for n in tl.static_range(KEPT_COUNT):
        tl.store(out + n * room, read[n], mask=within)
    words_out = out.to(tl.pointer_type(tl.int32), bitcast=True)
    if CHOICE.actions:
        tl.store(words_out + KEPT_COUNT * room, token, mask=within)
    flags = response.to(tl.int32) + 2 * valid.to(tl.int32)
    tl.store(words_out + (KEPT_COUNT + CHOICE.actions) * room, flags, mask=within)


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
    fill, arrays, bounds, width, place, slot, start, end, programs, first, room, COLUMNS: tl.constexpr,
    PACKED: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Write tokens over those of a chosen sequence, if the completing batch has it."""
    row = _row_of(fill, place, first, programs, TOKENS)
    if row >= 0:
        base, length = stretch(bounds, row.to(tl.int64), width, PACKED)
        room = room // ALIGNED * ALIGNED
        out = fill.rows + slot * COLUMNS * room
        for at in range(start, end, TOKENS):
            places = tl.multiple_of(at, TOKENS) + tl.arange(0, TOKENS)
            inside = (places >= 0) & (places < length) & (places < room)
            read = ()
            for n in tl.static_range(FILLED_COUNT):
                if arrays[FILLED_PLACES[n]] is not None:
                    read = read + (tl.load(arrays[FILLED_PLACES[n]] + base + places, mask=inside).to(tl.float32),)
                else:
                    read = read + (0.0,)
            for n in tl.static_range(FILLED_COUNT):
                if arrays[FILLED_PLACES[n]] is not None:
                    tl.store(out + n * room + places, read[n], mask=inside)


@triton.jit(do_not_specialize=["room", "seed"])
def _choose(fill, room, seed, CHOICE: tl.constexpr, CRITERIA: tl.constexpr, TOKENS: tl.constexpr):
    """Choose sequences, and copy some tokens of one of them."""
    slot, block = tl.program_id(0), tl.program_id(1)
    choose_tokens(fill, slot, block, room, seed, CHOICE, CRITERIA, TOKENS)


class SequenceChoice:
    """The choice from batches of one table, of up to so many sequences: a kernel, or programs of a later pass.

    ``kept`` are the arrays that are copied, after FILLED those of the batch. ``dtypes`` are those of the ARRAYS, the
    actions, the mask, keep, and the bounds. A row has room for so many tokens.
    """

    def __init__(
        self, table: SequenceTable, criteria: Sequence[CriterionRows], kept: Sequence[str | None], actions: bool,
        count: int, keep: int, packed: bool, aligned: bool, sequences: int, dtypes: tuple[Any, ...], room: int,
    ) -> None:  # fmt: skip
        assert len(kept) >= len(FILLED)
        places = [-1 if name is None else ARRAYS.index(name) for name in kept]
        of_arrays, *of_others = dtypes
        self._constants = Constants(
            criteria=len(criteria),
            chosen=count,
            valid=table.blocks["valid"].start,
            kept=tuple(places),
            kept_count=len(kept),
            kinds=tuple(map(_kind, (*(of_arrays[place] if place >= 0 else None for place in places), *of_others))),
            actions=int(actions),
            keep=keep,
            packed=packed,
            aligned=aligned,
            few=sequences <= SEQUENCES_AT_ONCE[-1],
            sequences=next((size for size in SEQUENCES_AT_ONCE if size >= sequences), SEQUENCES_AT_ONCE[1]),
        )
        self.constants = {"CHOICE": self._constants, "CRITERIA": Criteria._make(zip(*criteria, strict=True))}
        self.count, self.columns = count, len(kept) + 1 + int(actions)
        self.room, self.blocks = room, -(-room // TOKENS_AT_ONCE)
        self._launch = Launcher(_choose, {**self.constants, "TOKENS": TOKENS_AT_ONCE}, {"num_warps": 4})

    def launch(self, key: Any, stream: int | None, fill: Fill, tensors: Callable[[], Fill], seed: int) -> None:
        """Queue the kernel on the current stream."""
        grid, room = (self.count, 1 + self.blocks, 1), self.room
        self._launch(key, grid, stream, (fill, room, seed), lambda: (tensors(), room, seed))


def _kind(dtype: Any) -> Any:
    """Return a dtype of Triton; any, where there is no array."""
    if dtype is not None and dtype not in DTYPES:
        raise TypeError(f"tokens of measured sequences: expected arrays of numbers, got {dtype}")
    return tl.float32 if dtype is None else DTYPES[dtype]
