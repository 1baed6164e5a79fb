"""The Triton kernel that chooses sequences of a batch by their statistics, and copies the tokens of those.

It reads the columns that ``windsock.stats.rows_triton`` has written for the batch. Every program makes the same choice,
which takes little time, and copies some tokens of one of the sequences. So one launch is enough.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, no-untyped-call, untyped-decorator"
# mypy: disable-error-code="assignment, misc"
# ruff: noqa: N803, RUF005 - Triton cannot compile starred items of a tuple
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl

from windsock.stats.rows import Table
from windsock.stats.rows_triton import ARRAYS, FILLED, Arrays, _keep_of, _Launcher, _masks, _stretch, named_tuple

SEQUENCES_AT_ONCE = (64, 512, 1024, 2048)
TOKENS_AT_ONCE = 1024
KINDS = {"random": 0, "mean": 1, "total": 2, "peak": 3}


class Criterion(NamedTuple):
    """The rows of a table from which a criterion is computed; -1 for none.

    ``nan`` has the sum of a condition's inputs.
    """

    kind: int
    sign: float
    sum: int = -1
    more: int = -1
    shift: int = -1
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
        if first.statistics == "spread":
            rows |= {slot: table.row(first.name, slot) for slot in ("shift", "min", "max")}
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
        if CRITERIA.shift[WHICH] >= 0:
            total += _cell(cells, CRITERIA.shift[WHICH], columns, places, inside) * valid
        if CRITERIA.kind[WHICH] == 3:
            low = _cell(cells, CRITERIA.min[WHICH], columns, places, inside)
            found = tl.maximum(tl.abs(low), tl.abs(_cell(cells, CRITERIA.max[WHICH], columns, places, inside)))
        elif CRITERIA.kind[WHICH] == 1:
            found = CRITERIA.sign[WHICH] * total / tl.maximum(valid, 1.0)
        else:
            found = CRITERIA.sign[WHICH] * total
        odd = (tl.abs(total) < float("inf")) == 0
        if CRITERIA.nan[WHICH] >= 0:
            inputs = _cell(cells, CRITERIA.nan[WHICH], columns, places, inside)
            odd = odd | (inputs != inputs)
        found = tl.where(odd, float("inf"), found)
    return tl.where(inside & (valid > 0), found, -float("inf"))


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


@triton.jit(do_not_specialize=["columns", "column", "sequences", "room", "seed"])
def _choose(
    cells, chosen, scores, rows, arrays, actions, mask, keep, bounds, width, columns, column, sequences, room, seed,
    CRITERIA: tl.constexpr, COUNT: tl.constexpr, VALID: tl.constexpr, KEPT: tl.constexpr, ACTIONS: tl.constexpr,
    CHOSEN: tl.constexpr, KEPT_COUNT: tl.constexpr, KEEP: tl.constexpr, PACKED: tl.constexpr, FEW: tl.constexpr,
    SEQUENCES: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Choose CHOSEN sequences by COUNT criteria, and copy some tokens of one of them: arrays, the actions, and flags.

    The flags are 1 for the response and 2 for valid tokens. An array that the batch does not have is NaN.
    """
    cells += column
    slot, block = tl.program_id(0), tl.program_id(1)
    place = tl.full([], -2, tl.int32)
    if FEW:  # their scores are read at once, and are not waited for one after the other
        some = tl.arange(0, SEQUENCES)
        read = ()
        for n in tl.static_range(COUNT):
            read = read + (_score(cells, columns, some, sequences, seed, VALID, CRITERIA, n),)
        left = some >= 0
        for n in tl.static_range(CHOSEN):
            score = tl.where(left, read[min(n, COUNT - 1)], -float("inf"))
            pick = _first(score, some, tl.max(score, 0))
            place = tl.where(slot == n, pick, place)
            left = left & (some != pick)
    else:
        picks = (place,)
        for n in tl.static_range(CHOSEN):
            pick = _best(cells, columns, sequences, seed, picks, VALID, CRITERIA, min(n, COUNT - 1), n + 1, SEQUENCES)
            place = tl.where(slot == n, pick, place)
            picks = picks + (pick,)
    if block == 0:
        tl.store(chosen + slot, place)
        for n in tl.static_range(COUNT):
            value = _score(cells, columns, tl.zeros([16], tl.int32) + place, sequences, seed, VALID, CRITERIA, n)
            tl.store(scores + slot * COUNT + n, tl.max(value, 0))
    row = tl.maximum(place, 0).to(tl.int64)
    base, length = _stretch(bounds, row, width, PACKED)
    keep, kept = _keep_of(keep, base, row, KEEP)
    places = block * TOKENS + tl.arange(0, TOKENS)
    inside = places < tl.where(place >= 0, length, 0)
    within = places < room
    response, valid = _masks(mask + base, keep, kept, places, inside, KEEP)
    out = rows + slot * (KEPT_COUNT + 1 + ACTIONS) * room + places
    for n in tl.static_range(KEPT_COUNT):
        values = tl.zeros([TOKENS], tl.float32) + float("nan")
        if KEPT[n] >= 0:
            values = tl.load(arrays[KEPT[n]] + base + places, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + n * room, values, mask=within)
    words = out.to(tl.pointer_type(tl.int32), bitcast=True)
    if ACTIONS:
        token = tl.load(actions + base + places, mask=inside, other=-1).to(tl.int32)
        tl.store(words + KEPT_COUNT * room, token, mask=within)
    flags = response.to(tl.int32) + 2 * valid.to(tl.int32)
    tl.store(words + (KEPT_COUNT + ACTIONS) * room, flags, mask=within)


class Choice:
    """The kernel for batches of one table, of up to so many sequences.

    ``kept`` are the arrays that are copied, after FILLED those of the batch.
    """

    def __init__(
        self, table: Table, criteria: Sequence[Criterion], kept: Sequence[str | None], actions: bool, count: int,
        keep: int, packed: bool, sequences: int,
    ) -> None:  # fmt: skip
        assert len(kept) >= len(FILLED)
        constants = {
            "CRITERIA": Criteria._make(zip(*criteria, strict=True)),
            "COUNT": len(criteria),
            "VALID": table.blocks["valid"].start,
            "KEPT": tuple(-1 if name is None else ARRAYS.index(name) for name in kept),
            "ACTIONS": int(actions),
            "CHOSEN": count,
            "KEPT_COUNT": len(kept),
            "KEEP": keep,
            "PACKED": packed,
            "FEW": sequences <= SEQUENCES_AT_ONCE[-1],
            "SEQUENCES": next((size for size in SEQUENCES_AT_ONCE if size >= sequences), 512),
            "TOKENS": TOKENS_AT_ONCE,
        }
        self._count = count
        self._launch = _Launcher(_choose, constants, {"num_warps": 4 if sequences <= 1024 else 8})

    def launch(
        self,
        key: Any,
        stream: int | None,
        addresses: Sequence[Any],
        tensors: Callable[[], Sequence[Any]],
        numbers: tuple[int, int, int, int, int, int],
    ) -> None:
        """Queue the kernel on the current stream.

        The addresses and the tensors are those of the cells, of the choice, the scores and the rows that are written,
        and of the batch: its arrays together, its actions, mask, keep and bounds. The numbers are the width, the
        columns of the cells, the first of this batch, its sequences, the tokens of a row, and the seed.
        """
        grid = (self._count, -(-numbers[4] // TOKENS_AT_ONCE), 1)
        self._launch(key, grid, stream, (*addresses, *numbers), lambda: (*_named(tensors()), *numbers))


def _named(given: Sequence[Any]) -> tuple[Any, ...]:
    return *given[:4], Arrays._make(given[4]), *given[5:]
