"""Tokens of chosen sequences on an accelerator: chosen and copied there, and fetched when the step ends."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windsock.device_copy.copies import DeviceCopy
from windsock.measurement.plan import Plan
from windsock.measurement.token_choice import asked_of
from windsock.measurement.token_rows import KEPT, MAX_TOKENS, Row, RowSet, sources
from windsock.stats.rows import FILLED, Table

ALIGNED = 16  # words of 32 bits


class HeldCopy:
    """A copy of tokens, whose memory is in use until this object is dropped."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor  # until the copy is complete: the device may use its memory again after that
        self._copy = DeviceCopy(tensor, reused=True)

    def wait(self) -> NDArray[np.int32]:
        """Return the copy, waiting for the device if necessary."""
        array: NDArray[np.int32] = self._copy.wait().numpy()
        self._tensor = None
        return array

    def __del__(self) -> None:
        with suppress(Exception):  # an error of the device, after which the memory is kept
            self._copy.wait()  # else it could be written over the next one
            self._copy.release()


class DeviceRows(RowSet):
    """The rows of the sequences that a device chooses from one batch, in memory of their own.

    The end of the step queues their copy to the host after that of the results, and waits for the latter alone.
    """

    __slots__ = ("_copy", "address", "layout", "passes", "waiting", "words")

    def __init__(self, ids: Sequence[Any], sequences: int, layout: RowLayout, device: Any) -> None:
        import torch

        super().__init__(ids, sequences, layout.criteria)
        self.layout = layout
        self.words = torch.empty(layout.words, dtype=torch.int32, device=device)
        self.address = int(self.words.data_ptr())
        self.waiting: WaitingChoice | None = None
        self.passes: dict[Any, Any] = {}
        """How passes complete these rows, by their outlines."""
        self._copy: HeldCopy | None = None

    @property
    def addresses(self) -> tuple[int, int]:
        """Where the choice and the tokens are."""
        return self.address, self.address + 4 * self.layout.rows

    def tensors(self) -> tuple[Any, Any, Any]:
        """Return the choice, the scores and the rows as tensors of their dtypes."""
        import torch

        words, layout = self.words, self.layout
        scores = words[layout.scores : layout.rows].view(torch.float32)
        return words[: layout.scores], scores, words[layout.rows : layout.words].view(torch.float32)

    def drop_if_overwritten(self) -> bool:
        """Give up a choice that waits if its tensors were written to or moved since their pass; return whether so."""
        if self.waiting is None or addresses_and_versions(self.waiting.held) == self.waiting.when_queued:
            return False
        self.waiting, self.is_overwritten = None, True
        return True

    def fetch(self) -> None:
        """Queue the copy to the host, when all passes are queued."""
        self._copy, self.words = HeldCopy(self.words), None
        self.passes.clear()

    def made(self) -> list[Row]:
        """Return the rows, after their copy was queued; wait for it if necessary."""
        if self._copy is None:
            return []
        layout, copy, words = self.layout, self._copy, self._copy.wait()
        chosen = words[: layout.count].tolist()
        scores = words[layout.scores : layout.rows].view(np.float32)[: layout.count * len(layout.criteria)]
        by_row = scores.reshape(layout.count, len(layout.criteria)).tolist()
        rows = words[layout.rows :].reshape(layout.count, layout.columns, layout.room)
        return [self._row(place, by_row[slot], rows[slot], copy) for slot, place in enumerate(chosen) if place >= 0]

    def _row(self, place: int, scores: list[float], words: NDArray[np.int32], memory: HeldCopy) -> Row:
        names, flags = self.layout.names, words[-1]
        values = words[: len(names)].view(np.float32)
        return Row(
            id=str(self.ids[place]),
            place=place,
            scores=scores,
            arrays=Columns(names, values),
            actions=words[len(names)] if self.layout.has_actions else None,
            flags=flags,
            memory=memory,
        )


class WaitingChoice(NamedTuple):
    """A choice that is still to be made, by a later pass or by a kernel of its own."""

    choice: Any  # tokens_triton.Choice
    key: Any  # what stands for the kinds of its arguments
    arguments: tuple[Any, Any, Any]  # addresses of the batch and its arrays, and the numbers
    tensors: Callable[[], tuple[Any, Any]]  # the same as tensors
    held: Sequence[Any]  # the tensors of the batch
    when_queued: list[tuple[int, int]]  # their addresses and versions then


def addresses_and_versions(tensors: Sequence[Any]) -> list[tuple[int, int]]:
    """Return what changes when torch gives tensors other memory, or writes to them."""
    try:
        return [(tensor.data_ptr(), tensor._version) for tensor in tensors]
    except RuntimeError:  # a tensor of the inference mode has no version
        return [(tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version) for tensor in tensors]


class Columns(Mapping[str, NDArray[np.float32]]):
    """The arrays of one row by name; they are cut when they are used, after the commit."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: tuple[str, ...], values: NDArray[np.float32]) -> None:
        self._names = names
        self._values = values

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """Return an array."""
        try:
            array: NDArray[np.float32] = self._values[self._names.index(name)]
        except ValueError:
            raise KeyError(name) from None
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class RowLayout:
    """What rows have: the criteria of the choice, the names of the arrays, actions; how many, and their tokens."""

    def __init__(
        self, criteria: tuple[str, ...], names: tuple[str, ...], has_actions: bool, count: int, room: int
    ) -> None:
        self.criteria = criteria
        self.names = names
        self.has_actions = has_actions
        self.count = count
        self.room = room
        self.columns = len(names) + has_actions + 1
        """The number of words of a token: the last one has its flags."""
        self.scores = aligned(count)
        """Where the scores begin."""
        self.rows = self.scores + aligned(count * len(criteria))
        """Where the rows begin."""
        self.words = self.rows + count * self.columns * room
        """The number of all words."""


@lru_cache(maxsize=64)
def layout_of(plan: Plan, count: int, tokens: int) -> RowLayout:
    """Return the layout of some rows of a plan's batch with so many tokens, at most those of all sequences."""
    known = sources(plan)
    names = (*FILLED, *(name for name in KEPT if name not in FILLED and name in known))
    criteria = tuple(asked.name for asked in asked_of(plan))
    return RowLayout(criteria, names, plan.repeats, count, aligned(min(tokens, MAX_TOKENS)))


@lru_cache(maxsize=64)
def kernel_of(
    plan: Plan, table: Table, layout: RowLayout, keep: int, packed: bool, aligned: bool, sequences: int
) -> Any:
    """Return the kernel that chooses rows from up to so many sequences."""
    kernels = _kernels()
    criteria = [kernels.Criterion.of(table, asked.channels, asked.statistic, asked.sign) for asked in asked_of(plan)]
    kept = [sources(plan).get(name) for name in layout.names]
    return kernels.Choice(table, criteria, kept, layout.has_actions, layout.count, keep, packed, aligned, sequences)


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
