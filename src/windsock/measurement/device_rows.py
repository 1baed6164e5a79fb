"""Tokens of chosen sequences on an accelerator: chosen and copied there, and fetched after the step."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windsock.device_copy.copies import copied_on_side_stream
from windsock.measurement.device_selection import copied
from windsock.measurement.plan import Plan
from windsock.measurement.token_choice import asked_of
from windsock.measurement.token_rows import KEPT, MAX_TOKENS, Pick, Row, RowSet, known_ids, sources
from windsock.stats.rows import FILLED, UNKNOWN, Table

ALIGNED = 16  # words of 32 bits
MAX_SPARE = 2
IDS_LOOKED_AT = 4
"""Of a list of ids, to see whether it is changed before the step ends."""

_spare: dict[int | None, list[TokenMemory]] = {}
"""Memory of up to MAX_SPARE steps that waits for its next use, by the index of its device."""


class TokenMemory(NamedTuple):
    """Memory of a device for the tokens of a step."""

    tensor: Any
    address: int
    size: int  # in words of 32 bits
    device: int | None  # its index

    @classmethod
    def on(cls, device: Any, size: int) -> TokenMemory:
        """Return memory for so many words: that of an earlier step, if it is large enough."""
        try:
            found = _spare[device.index].pop()  # atomic: no other thread gets the same
            if found.size >= size:
                return found
        except (KeyError, IndexError):
            pass
        import torch

        tensor = torch.empty(size, dtype=torch.int32, device=device)
        return cls(tensor, int(tensor.data_ptr()), size, device.index)

    def release(self) -> None:
        """Let later steps use the memory."""
        spare = _spare.setdefault(self.device, [])
        if len(spare) < MAX_SPARE:
            spare.append(self)


class DeviceRows(RowSet):
    """The rows of the sequences that a device chooses from one batch.

    Which ones were chosen is among the results of the step, and is copied to the host with them. The tokens have memory
    of their own, from which the thread that asks for them copies them after the commit. Later steps use it again.
    """

    waiting: Any = None
    """The tensors of the batch, while the choice is to be made."""
    state: Any  # of these tensors, when they were measured
    is_urgent = False  # the choice cannot wait
    _some_ids: Sequence[Any] | None = None  # of a list
    _choice: NDArray[np.int32] | None = None
    _chosen: Sequence[tuple[int, int, str]] = ()  # slot, place and id

    def __init__(
        self,
        ids: Any,
        sequences: int,
        chooser: Chooser,
        seed: int,
        memory: TokenMemory,
        place: tuple[int, int, int],
    ) -> None:
        # To copy a thousand names takes longer than all else here: they are read when the step ends.
        if isinstance(ids, list):
            self._some_ids = ids[:: sequences // IDS_LOOKED_AT or 1]
        elif not isinstance(ids, tuple):
            ids = copied(ids)
        self.ids, self.sequences, self.seed = ids, sequences, seed
        self.layout, self.kernel, _ = chooser
        self.chunk, self.offset, start = place  # of the choice, in the memory of results, and its address
        self.addresses = start, memory.address
        """Where the choice and the tokens are."""
        self.passes: dict[Any, Any] = {}
        """How passes complete these rows, by their outlines."""
        self._memory: TokenMemory | None = memory

    @property
    def criteria(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of the criteria."""
        return self.layout.criteria

    @property
    def count(self) -> int:  # type: ignore[override]
        """The number of sequences to choose."""
        return self.layout.count

    def tensors(self, chunk: Any) -> tuple[Any, Any]:
        """Return the choice and the tokens as tensors of their dtypes."""
        import torch

        assert self._memory is not None
        layout, start = self.layout, self.offset
        choice = chunk[start : start + layout.choice_words]
        return choice, self._memory.tensor[: layout.token_words].view(torch.float32)

    def take_choice(self, chunks: Sequence[NDArray[np.int32]]) -> None:
        """Take the choice from the copies of a step's results. Then the device has written the tokens too."""
        self.passes.clear()
        if self._some_ids is not None and self.ids[:: self.sequences // IDS_LOOKED_AT or 1] != self._some_ids:
            self.is_overwritten = True
            return
        layout = self.layout
        self._choice = chunks[self.chunk][self.offset : self.offset + layout.choice_words].copy()
        ids = self.ids if isinstance(self.ids, (list, tuple)) else known_ids(self.ids)
        places = self._choice[layout.chosen : layout.chosen + layout.count].tolist()
        self._chosen = [(slot, place, str(ids[place])) for slot, place in enumerate(places) if 0 <= place < len(ids)]

    def picks(self) -> list[Pick]:
        """Return the chosen sequences: none if the choice failed."""
        return [pick for _, pick in self._slots()]

    def _slots(self) -> list[tuple[int, Pick]]:
        """Return the slots that have a sequence, and the sequence."""
        if self._choice is None:
            return []
        layout = self.layout
        scores = self._choice[layout.scores :].view(np.float32)[: layout.count * len(layout.criteria)]
        by_slot = scores.reshape(layout.count, len(layout.criteria)).tolist()
        return [(slot, Pick(id, place, by_slot[slot])) for slot, place, id in self._chosen]

    def made(self) -> list[Row]:
        """Copy the tokens to the host, and return the rows; other steps may use their memory then."""
        slots, layout, used = self._slots(), self.layout, self._memory
        if not slots or used is None:
            return []
        copy = copied_on_side_stream(used.tensor[: layout.token_words])
        self._memory = None
        used.release()
        words = copy.numpy().reshape(layout.count, layout.columns, layout.room)
        return [self._row(pick, words[slot]) for slot, pick in slots]

    def _row(self, pick: Pick, words: NDArray[np.int32]) -> Row:
        names = self.layout.names
        # Of a sequence that no update has, those are left out that only updates have.
        arrays = {name: row.view(np.float32) for name, row in zip(names, words, strict=False) if (row != UNKNOWN).any()}
        actions = words[len(names)] if self.layout.has_actions else None
        return Row(pick, arrays, actions, flags=words[-1])


class Chooser(NamedTuple):
    """How sequences are chosen from batches of one kind."""

    layout: RowLayout
    kernel: Any  # tokens_triton.Choice
    describing: Any  # the kernel (rows_triton.Pass) that describes a batch for it


class RowLayout:
    """What rows have: the criteria of the choice, the names of the arrays, actions; how many, and their tokens."""

    def __init__(
        self,
        criteria: tuple[str, ...],
        names: tuple[str, ...],
        has_actions: bool,
        count: int,
        room: int,
        description: int,
    ) -> None:
        self.criteria = criteria
        self.names = names
        self.has_actions = has_actions
        self.count = count
        self.room = room
        self.columns = len(names) + has_actions + 1
        """The number of words of a token: the last one has its flags."""
        self.chosen = description
        """Where the chosen sequences begin, after the description of the batch."""
        self.scores = self.chosen + aligned(count)
        """Where the scores begin, after those."""
        self.choice_words = self.scores + aligned(count * len(criteria))
        """The number of words of all three."""
        self.token_words = count * self.columns * room
        """The number of words of all rows."""


@lru_cache(maxsize=64)
def layout_of(plan: Plan, count: int, tokens: int) -> RowLayout:
    """Return the layout of some rows of a plan's batch with so many tokens, at most those of all sequences."""
    known = sources(plan)
    names = (*FILLED, *(name for name in KEPT if name not in FILLED and name in known))
    criteria = tuple(asked.name for asked in asked_of(plan))
    room, description = aligned(min(tokens, MAX_TOKENS)), _kernels().DESCRIPTION_WORDS
    return RowLayout(criteria, names, plan.repeats, count, room, description)


@lru_cache(maxsize=64)
def kernel_of(
    plan: Plan,
    table: Table,
    layout: RowLayout,
    keep: int,
    packed: bool,
    aligned: bool,
    sequences: int,
    dtypes: tuple[Any, ...],
) -> Any:
    """Return the kernel that chooses rows from up to so many sequences, whose arrays have some dtypes."""
    kernels = _kernels()
    criteria = [kernels.Criterion.of(table, asked.channels, asked.statistic, asked.sign) for asked in asked_of(plan)]
    kept = [sources(plan).get(name) for name in layout.names]
    return kernels.Choice(
        table, criteria, kept, layout.has_actions, layout.count, keep, packed, aligned, sequences, dtypes, layout.room
    )


@lru_cache(maxsize=64)
def at_once(sequences: int) -> int:
    """Return the number of sequences that the kernel for so many reads at once; 2**31 where these are more."""
    return next((size for size in _kernels().SEQUENCES_AT_ONCE if sequences <= size), 1 << 31)


@cache
def _kernels() -> ModuleType:
    return importlib.import_module("windsock.stats.tokens_triton")


def aligned(words: int) -> int:
    """Return a number of words, rounded up so that what follows them is aligned."""
    return -(-words // ALIGNED) * ALIGNED
