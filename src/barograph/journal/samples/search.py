"""Searching the blocks of the index of samples, one after another, and counting samples by step: how many, their mean
reward, and the share that is solved.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Floats, Ints
from barograph.base.model import Sample, Writer
from barograph.journal.format.folder import SegmentFile
from barograph.journal.samples.blocks import (
    SampleBlock,
    StoredBlock,
    damage,
    read_block,
    read_rest,
    read_texts,
    sample_of,
    stored_blocks,
)
from barograph.journal.samples.query import (
    Census,
    ColumnSummary,
    FoundSamples,
    Kind,
    Query,
    SampleStepCounts,
    TextFilter,
)


class StepCounter:
    """Counts samples, block by block."""

    def __init__(self) -> None:
        self._found: list[tuple[NDArray[np.int64], Floats, Floats]] = []

    def add(self, block: SampleBlock, rows: NDArray[np.int64]) -> None:
        """Add some samples of a block."""
        self._found.append((block.rows["step"][rows], block.numbers("reward")[0][rows], solved(block)[rows]))

    def result(self) -> SampleStepCounts:
        """Return the counts."""
        if not self._found:
            return SampleStepCounts()
        steps, rewards, is_solved = (np.concatenate(one) for one in zip(*self._found, strict=True))
        different, places = np.unique(steps, return_inverse=True)
        counts = np.bincount(places, minlength=len(different))
        reward, share = (_means(values, places, len(different)) for values in (rewards, is_solved))
        [of_all] = _means(is_solved, np.zeros_like(places), 1)
        return SampleStepCounts(different.tolist(), counts.tolist(), reward, share, of_all)


def solved(block: SampleBlock) -> Floats:
    """Return 1 for samples that are right, 0 for others, and NaN where that is not known.

    The column ``correct`` says so, else the answer is compared with the reference, else the reward is above 0. Answers
    that are too long for a column count by the reward.
    """
    correct, is_stated = block.numbers("correct")
    answers, references = block.name_numbers("answer"), block.name_numbers("reference")
    is_answered = (answers > 0) & (references > 0)
    reward, is_rewarded = block.numbers("reward")
    with np.errstate(invalid="ignore"):
        found = np.where(is_stated, correct > 0, np.where(is_answered, answers == references, reward > 0))
    return np.where(is_stated | is_answered | is_rewarded, found, np.nan)


def _means(values: NDArray[Any], places: NDArray[np.int64], count: int) -> list[float | None]:
    """Return the mean of the known values of each place; None without any."""
    known = ~np.isnan(values)
    sums = np.bincount(places[known], values[known], count)
    counts = np.bincount(places[known], minlength=count)
    return [total / number if number else None for total, number in zip(sums.tolist(), counts.tolist(), strict=True)]


Flags = NDArray[np.bool_]

Place = tuple[SegmentFile, int, int, int]  # segment, block, number of its first sample in the segment, row

Limits = Mapping[Writer, int | None]  # writer to the first step that a newer attempt supersedes


class _Matches:
    """Places of the samples that match, with what they are sorted by."""

    def __init__(self, sort: str) -> None:
        self._field, self._down = sort.removeprefix("-"), sort.startswith("-")
        self._keys: list[tuple[Any, ...]] = []
        self._names: list[bytes] = []  # of samples that have a name and no number to sort by
        self._blocks: list[tuple[SegmentFile, int, int]] = []

    def add(self, stored: StoredBlock, rows: Ints) -> None:
        """Add some samples of a block."""
        if not len(rows):
            return
        numbers, has = stored.block.numbers(self._field)
        values, known = numbers[rows], has[rows]
        # Inverted and not negated: the lowest integer has no negative.
        down = ~values if values.dtype.kind == "i" else -values
        number = np.full(len(rows), len(self._blocks))
        self._blocks.append((stored.segment, stored.number, stored.first))
        steps = stored.block.rows["step"][rows]
        names = self._named(stored, np.where(known, 0, stored.block.name_numbers(self._field)[rows]))
        missing = np.where(known, 0, np.where(names > 0, 1, 2))
        self._keys.append((missing, np.where(known, down if self._down else values, 0), names, steps, number, rows))

    def first(self, limit: int | None, spread: bool = False) -> tuple[int, list[Place]]:
        """Return the number of matches, and the places of the first ones; with ``spread``, of some among all."""
        if not self._keys:
            return 0, []
        missing, values, names, steps, numbers, rows = (np.concatenate(one) for one in zip(*self._keys, strict=True))
        # lexsort is stable: samples with the same keys stay in the order of the journal.
        order = np.lexsort((steps, self._ranks()[names], values, missing))
        order = order[even_places(len(order), limit)] if spread else order[:limit]
        places = zip(numbers[order].tolist(), rows[order].tolist(), strict=True)
        return len(rows), [(*self._blocks[number], row) for number, row in places]

    def _named(self, stored: StoredBlock, numbers: Ints) -> Ints:
        """Return places in the list of names, from 1, for numbers of a block's names; 0 for none."""
        places = np.zeros(len(stored.block.names) + 1, np.int64)
        for number in np.unique(numbers[numbers > 0]).tolist():
            self._names.append(stored.block.names[number - 1])
            places[number] = len(self._names)
        found: Ints = places[numbers]
        return found

    def _ranks(self) -> Ints:
        """Return the rank of each name, by its place in the list; 0 for none."""
        ranks = {name: rank for rank, name in enumerate(sorted(set(self._names)), 1)}
        sign = -1 if self._down else 1
        return np.array([0, *(sign * ranks[name] for name in self._names)], np.int64)


def even_places(count: int, limit: int | None) -> list[int]:
    """Return at most ``limit`` of so many places at even distances, with the last."""
    if limit is None or count <= limit:
        return list(range(count))
    return [count - 1 - round(place * (count - 1) / max(1, limit - 1)) for place in range(limit)][::-1]


def _current(stored: StoredBlock, steps: Ints, limits: Limits) -> Flags:
    """Return which steps no newer attempt supersedes."""
    # Filtered and not deleted: a new attempt changes the limits, but not the frames that the index has.
    limit = limits.get(stored.segment.writer)
    return np.ones(len(steps), bool) if limit is None else steps < limit


def find(db: sqlite3.Connection, query: Query, limits: Limits, limit: int | None) -> FoundSamples:
    """Return the first ``limit`` samples that match, the number of matches, and a census."""
    contains, matches, counted = query.text_filter(), _Matches(query.sort), _CensusCount()
    by_step = StepCounter() if query.by_step else None
    try:
        for stored in stored_blocks(db):
            current = _current(stored, stored.block.rows["step"], limits)
            counted.add(stored, current, limits)
            rows = _at_place(stored, np.flatnonzero(current & query.mask(stored.block)), query.place)
            if contains is not None and len(rows):
                rows = _containing(db, stored, rows, contains)
            matches.add(stored, rows)
            if by_step is not None:
                by_step.add(stored.block, rows)
    finally:
        if contains is not None:
            contains.close()
    count, found = matches.first(limit, bool(query.spread))
    counts = counted.result(damage(db))
    places = [f"{segment.path.name}:{first + row}" for segment, _, first, row in found]
    unknown = tuple(sorted(query.columns() - counts.columns.keys()))
    by_steps = None if by_step is None else by_step.result()
    return FoundSamples(_samples(db, found), count, counts, places, unknown, by_steps)


def _at_place(stored: StoredBlock, rows: Ints, place: str | None) -> Ints:
    """Return the one of some samples that is at a place; without a place, all."""
    if place is None:
        return rows
    name, _, number = place.rpartition(":")
    same = name == stored.segment.path.name and number.isdecimal()
    return rows[rows == int(number) - stored.first] if same else rows[:0]


def _containing(db: sqlite3.Connection, stored: StoredBlock, rows: Ints, contains: TextFilter) -> Ints:
    """Return those of some samples whose texts match."""
    joined = read_texts(db, stored)
    if not contains.may_match(joined):
        return rows[:0]
    texts = list(stored.block.pieces(joined, "texts"))
    return rows[contains.matching([texts[row] for row in rows.tolist()])]


def _samples(db: sqlite3.Connection, places: list[Place]) -> list[Sample]:
    """Read samples at some places; a block is read once."""
    by_block: dict[tuple[Path, int], list[int]] = {}
    for place, (segment, number, _, _) in enumerate(places):
        by_block.setdefault((segment.path, number), []).append(place)
    found: list[Sample] = [Sample()] * len(places)
    for wanted in by_block.values():
        segment, number, _, _ = places[wanted[0]]
        stored = read_block(db, segment, number)
        texts = list(stored.block.pieces(read_texts(db, stored), "texts"))
        rest = list(stored.block.pieces(read_rest(db, stored), "rest"))
        for place in wanted:
            row = places[place][3]
            found[place] = sample_of(stored.block.rows[row], texts[row], rest[row])
    return found


class _CensusCount:
    """Counts samples, block by block."""

    def __init__(self) -> None:
        self._kept = self._seen = 0
        self._steps: list[int] = []
        self._rewards: list[float] = []
        self._columns: dict[str, ColumnSummary] = {}

    def add(self, stored: StoredBlock, current: Flags, limits: Limits) -> None:
        """Add the samples of a block that are ``current``."""
        frames = stored.block.frames[_current(stored, stored.block.frames["step"], limits)]
        self._kept += sum(frames["kept"].tolist())
        self._seen += sum(frames["seen"].tolist())
        steps, rewards = (stored.block.rows[name][current] for name in ("step", "reward"))
        self._steps = _extent([*self._steps, *_extent(steps.tolist())])
        self._rewards = _extent([*self._rewards, *_extent(rewards[~np.isnan(rewards)].tolist())])
        for (name, kind), column in stored.block.columns.items():
            if len(values := column[current]):
                self._add_column(stored, name, kind, values)

    def _add_column(self, stored: StoredBlock, name: str, kind: Kind, values: NDArray[Any]) -> None:
        summary = self._columns.get(name) or ColumnSummary(kind)
        if kind == "name":
            found = [stored.block.names[number - 1] for number in np.unique(values[values > 0]).tolist()]
            self._columns[name] = summary.with_names(found)
        else:
            self._columns[name] = summary.with_numbers(values)

    def result(self, damage: tuple[str, ...]) -> Census:
        """Return the counts."""
        if not self._kept:
            return Census(0, self._seen, damage=damage)
        first, last = self._steps
        rewards = (self._rewards[0], self._rewards[1]) if self._rewards else None
        return Census(self._kept, max(self._seen, self._kept), (first, last), rewards, damage, self._columns)


def _extent(values: list[Any]) -> list[Any]:
    """Return the lowest and the highest value; nothing of nothing."""
    return [min(values), max(values)] if values else []


def census(db: sqlite3.Connection, limits: Limits) -> Census:
    """Return the number of samples and the ranges of their steps and rewards."""
    counted = _CensusCount()
    for stored in stored_blocks(db):
        counted.add(stored, _current(stored, stored.block.rows["step"], limits), limits)
    return counted.result(damage(db))
