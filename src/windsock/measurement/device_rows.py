"""Tokens of chosen sequences on an accelerator: chosen and copied there, and fetched with the results of the step."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.device_copy import DeviceCopy
from windsock.measurement.plan import Plan
from windsock.measurement.token_choice import asked_of
from windsock.measurement.token_rows import FILLED, KEPT, MAX_TOKENS, Row, RowSet, sources
from windsock.stats.rows import Table

ALIGNED = 16  # words of 32 bits


class HeldCopies:
    """Copies of a device's results that are in use until this object is dropped."""

    def __init__(self, copies: Sequence[DeviceCopy]) -> None:
        self._copies = copies

    def __del__(self) -> None:
        for copy in self._copies:
            copy.release()


@dataclass(slots=True, eq=False)
class DeviceRows(RowSet):
    """The rows of the sequences that a device chooses from one batch, in some words of its results."""

    chunk: int = 0
    offset: int = 0
    address: int = 0
    passes: dict[Any, Any] = field(default_factory=dict)
    """The kernels of passes that complete these rows, by those that do not."""
    layout: RowLayout = field(default_factory=lambda: RowLayout((), (), False, 0, 0))

    def fetch(self, words: NDArray[np.int32], memory: HeldCopies) -> None:
        """Take the rows from the copy of the results, which ``memory`` keeps in use."""
        layout, words = self.layout, words[self.offset : self.offset + self.layout.words]
        chosen = words[: layout.count].tolist()
        scores = words[layout.scores : layout.rows].view(np.float32)[: layout.count * len(layout.criteria)]
        by_row = scores.reshape(layout.count, len(layout.criteria)).tolist()
        rows = words[layout.rows :].reshape(layout.count, layout.columns, layout.room)
        self.rows = [
            self._row(place, by_row[slot], rows[slot], memory) for slot, place in enumerate(chosen) if place >= 0
        ]

    def _row(self, place: int, scores: list[float], words: NDArray[np.int32], memory: HeldCopies) -> Row:
        names, flags = self.layout.names, words[-1]
        values = words[: len(names)].view(np.float32)
        return Row(
            id=str(self.ids[place]),
            place=place,
            scores=scores,
            arrays=dict(zip(names, values, strict=True)),
            actions=words[len(names)] if self.layout.has_actions else None,
            flags=flags,
            memory=memory,
        )


@dataclass(frozen=True, slots=True)
class RowLayout:
    """What rows have: the criteria of the choice, the names of the arrays, actions; how many, and their tokens."""

    criteria: tuple[str, ...]
    names: tuple[str, ...]
    has_actions: bool
    count: int
    room: int

    @property
    def columns(self) -> int:
        """The number of words of a token: the last one has its flags."""
        return len(self.names) + self.has_actions + 1

    @property
    def scores(self) -> int:
        """Where the scores begin."""
        return _aligned(self.count)

    @property
    def rows(self) -> int:
        """Where the rows begin."""
        return self.scores + _aligned(self.count * len(self.criteria))

    @property
    def words(self) -> int:
        """The number of all words."""
        return self.rows + self.count * self.columns * self.room


@lru_cache(maxsize=64)
def layout_of(plan: Plan, count: int, tokens: int) -> RowLayout:
    """Return the layout of some rows of a plan's batch with so many tokens, at most those of all sequences."""
    known = sources(plan)
    names = (*FILLED, *(name for name in KEPT if name not in FILLED and name in known))
    criteria = tuple(asked.name for asked in asked_of(plan))
    return RowLayout(criteria, names, plan.repeats, count, _aligned(min(tokens, MAX_TOKENS)))


@lru_cache(maxsize=64)
def kernel_of(plan: Plan, table: Table, layout: RowLayout, keep: int, packed: bool, sequences: int) -> Any:
    """Return the kernel that chooses rows from up to so many sequences."""
    kernels = _kernels()
    criteria = [kernels.Criterion.of(table, asked.channels, asked.statistic, asked.sign) for asked in asked_of(plan)]
    kept = [sources(plan).get(name) for name in layout.names]
    return kernels.Choice(table, criteria, kept, layout.has_actions, layout.count, keep, packed, sequences)


@lru_cache(maxsize=64)
def at_once(sequences: int) -> int:
    """Return the number of sequences that the kernel for so many reads at once; 2**31 where these are more."""
    return next((size for size in _kernels().SEQUENCES_AT_ONCE if sequences <= size), 1 << 31)


@cache
def _kernels() -> ModuleType:
    return importlib.import_module("windsock.stats.tokens_triton")


def _aligned(words: int) -> int:
    return -(-words // ALIGNED) * ALIGNED
