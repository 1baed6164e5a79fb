"""Memory of a device for the results of a step's passes, and for the tokens of the sequences that it chooses.

The passes with the same table write into one matrix, the columns of one batch after those of the other; all results
are copied to the host together, the tokens after the commit.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from barograph.base.device_copy import copied_on_side_stream, current_device, current_stream
from barograph.metrics.batch.arrays import LABELS, copied, to_numpy
from barograph.metrics.batch.plan import Fetched, MeasurementPlan
from barograph.metrics.batch.token_rows import KEPT, MAX_TOKENS, Pick, RowSet, TokenRow, asked_of, known_ids, sources
from barograph.metrics.formulas.sequences import numbered
from barograph.metrics.formulas.table import FILLED, REDUCED_SLOTS, UNKNOWN, SequenceTable
from barograph.metrics.gpu.outline import Chooser, Outline, RowLayout, aligned

MAX_SPARE = 2

IDS_LOOKED_AT = 4
"""Of a list of ids, to see whether it is changed before the step ends."""

_spare_tokens: dict[int | None, list[TokenMemory]] = {}
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
            found = _spare_tokens[device.index].pop()  # atomic: no other thread gets the same
            if found.size >= size:
                return found
        except (KeyError, IndexError):
            pass
        import torch

        tensor = torch.empty(size, dtype=torch.int32, device=device)
        return cls(tensor, int(tensor.data_ptr()), size, device.index)

    def release(self) -> None:
        """Let later steps use the memory."""
        spare = _spare_tokens.setdefault(self.device, [])
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

    def made(self) -> list[TokenRow]:
        """Copy the tokens to the host, and return the rows; other steps may use their memory then."""
        slots, layout, used = self._slots(), self.layout, self._memory
        if not slots or used is None:
            return []
        copy = copied_on_side_stream(used.tensor[: layout.token_words])
        self._memory = None
        used.release()
        words = copy.numpy().reshape(layout.count, layout.columns, layout.room)
        return [self._row(pick, words[slot]) for slot, pick in slots]

    def _row(self, pick: Pick, words: NDArray[np.int32]) -> TokenRow:
        names = self.layout.names
        # Of a sequence that no update has, those are left out that only updates have.
        arrays = {name: row.view(np.float32) for name, row in zip(names, words, strict=False) if (row != UNKNOWN).any()}
        actions = words[len(names)] if self.layout.has_actions else None
        return TokenRow(pick, arrays, actions, flags=words[-1])


@lru_cache(maxsize=64)
def layout_of(plan: MeasurementPlan, count: int, tokens: int) -> RowLayout:
    """Return the layout of some rows of a plan's batch with so many tokens, at most those of all sequences."""
    known = sources(plan)
    names = (*FILLED, *(name for name in KEPT if name not in FILLED and name in known))
    criteria = tuple(criterion.name for criterion, _ in asked_of(plan))
    room, description = aligned(min(tokens, MAX_TOKENS)), _token_kernels().DESCRIPTION_WORDS
    return RowLayout(criteria, names, plan.repeats, count, room, description)


@lru_cache(maxsize=64)
def kernel_of(
    plan: MeasurementPlan,
    table: SequenceTable,
    layout: RowLayout,
    keep: int,
    packed: bool,
    aligned: bool,
    sequences: int,
    dtypes: tuple[Any, ...],
) -> Any:
    """Return the kernel that chooses rows from up to so many sequences, whose arrays have some dtypes."""
    kernels = _token_kernels()
    criteria = [kernels.CriterionRows.of(table, names, one.statistic, one.sign) for one, names in asked_of(plan)]
    kept = [sources(plan).get(name) for name in layout.names]
    return kernels.SequenceChoice(
        table, criteria, kept, layout.has_actions, layout.count, keep, packed, aligned, sequences, dtypes, layout.room
    )


@lru_cache(maxsize=64)
def at_once(sequences: int) -> int:
    """Return the number of sequences that the kernel for so many reads at once; 2**31 where these are more."""
    return next((size for size in _token_kernels().SEQUENCES_AT_ONCE if sequences <= size), 1 << 31)


@cache
def _token_kernels() -> ModuleType:
    return importlib.import_module("barograph.metrics.gpu.tokens_triton")


LEAST_SEQUENCES = 64

REMEMBERED_STEPS = 8  # whose memory a step expects: not every step has an evaluation


class ResultMatrix:
    """The results of the passes with one table, in a chunk of words of 32 bits, and the memory of their histograms.

    In the chunk the cells are followed by the statistics that the reduction writes, then the counts of the histograms.
    """

    def __init__(self, outline: Outline, capacity: int, histograms: Any, chunk: int, offset: int, address: int) -> None:
        self.outline = outline
        self.capacity = capacity  # columns
        self.sequences = 0  # so far
        self.starts: list[int] = []  # the first sequence of each batch
        self.on_host: list[dict[str, Any]] = []  # arrays of the sequences
        self.chunk = chunk
        self.offset = offset
        self.cells = outline.table.height * capacity  # aligned, because the capacity is
        self.counts = self.cells + aligned(reduced_words(outline.table))  # where they begin
        self.address = address
        self.histograms = histograms
        self.histogram_address = int(histograms.data_ptr())
        self.is_reduced = False

    def add(self, sequences: int, on_host: dict[str, Any]) -> None:
        """Count the sequences of a further batch; ``on_host`` are the arrays of them that are not on the device."""
        self.starts.append(self.sequences)
        self.sequences += sequences
        self.on_host.append(on_host)

    def parts(self, chunk: Any) -> tuple[Any, Any]:
        """Return the cells and the histograms as tensors of their dtypes."""
        import torch

        return chunk[self.offset : self.offset + self.cells].view(torch.float32), self.histograms

    def reduce(self, chunk: Any) -> None:
        """Queue the reduction over all sequences."""
        outline, start = self.outline, self.address
        device, stream = outline.key[0], current_stream(self.histograms.device)
        addresses = start, self.histogram_address, start + 4 * self.cells, start + 4 * self.counts
        with current_device(device):
            outline.reduction.launch(
                device, stream, addresses, lambda: self._reduction(chunk), self.capacity, self.sequences
            )
        self.is_reduced = True
        outline.reduction.spare[self.histograms.device] = stream, self.histograms

    def _reduction(self, chunk: Any) -> tuple[Any, Any, Any, Any]:
        """Return the cells, the histograms, and the memory of the statistics and counts, as tensors of their dtypes."""
        import torch

        reduced = chunk[self.offset + self.cells : self.offset + self.counts].view(torch.float64)
        return *self.parts(chunk), reduced, chunk[self.offset + self.counts :]

    def copy_counts(self, chunk: Any) -> None:
        """Copy the counts of the histograms to the results without the reduction."""
        chunk[self.offset + self.counts :][: len(self.histograms)] = self.histograms

    def fetched(self, chunk: NDArray[np.int32]) -> Fetched:
        """Return the results from the copy of the chunk that has them."""
        table, start = self.outline.table, self.offset
        counts = start + self.counts
        matrix = chunk[start : start + self.cells].reshape(table.height, self.capacity)[:, : self.sequences]
        first = table.blocks["arrays"].start
        arrays = {name: [part[name] for part in self.on_host] for name in self.outline.host_names}
        for place, name in enumerate(table.arrays):
            values = np.empty(self.sequences, np.float64 if self.outline.floating[place] else np.int64)
            halves = values.view(np.int32)
            halves[::2], halves[1::2] = matrix[first + 2 * place], matrix[first + 2 * place + 1]
            # Labels are of one batch: with the same label in another one they are a different group.
            arrays[name] = np.split(values, self.starts[1:]) if name in LABELS else [values]
        # Without a sign there is room for twice as many tokens.
        histograms = chunk[counts : counts + table.histogram_size].view(np.uint32)
        statistics = chunk[start + self.cells : start + self.cells + reduced_words(table)].view(np.float64)
        reduced = statistics.reshape(-1, len(REDUCED_SLOTS)) if self.is_reduced else None
        return Fetched(self.outline.plan, table, matrix[:first].view(np.float32), arrays, histograms, reduced)


class Chunk(NamedTuple):
    """Memory of a device, in words of 32 bits, and the stream on which it was allocated."""

    tensor: Any
    address: int
    size: int
    stream: int | None


class ResultMemory:
    """Memory of one device for the results of a step's passes."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._chunks: list[Chunk] = []
        self._free = 0  # words that are left of the last one
        self._full: list[ResultMatrix] = []
        self.rows: list[DeviceRows] = []  # tokens of chosen sequences
        self._open: dict[MeasurementPlan, ResultMatrix] = {}

    def matrix(self, outline: Outline, sequences: int) -> ResultMatrix:
        """Return a matrix of the outline's table with room for some sequences."""
        found = self._open.get(outline.plan)
        if found is not None:
            if found.outline.table is outline.table and found.sequences + sequences <= found.capacity:
                return found
            self._full.append(found)
        # As many as in the last step, so that one matrix is enough for this one.
        expected = 2 * found.capacity if found is not None else _last_sequences.get(outline.table, LEAST_SEQUENCES)
        table, capacity = outline.table, aligned(max(sequences, expected))
        words = table.height * capacity + aligned(reduced_words(table)) + aligned(table.histogram_size)
        histograms = self._cleared(outline)
        self._open[outline.plan] = found = ResultMatrix(outline, capacity, histograms, *self.take(words))
        return found

    def _cleared(self, outline: Outline) -> Any:
        """Return memory for histograms that is 0: that of an earlier step, which was cleared on the current stream."""
        import torch

        stream, found = outline.reduction.spare.pop(self.device, (None, None))
        if stream is None or stream != current_stream(self.device):
            found = torch.zeros(max(outline.table.histogram_size, 1), dtype=torch.int32, device=self.device)
        return found

    def chunk(self, part: ResultMatrix | DeviceRows) -> Any:
        """Return the tensor that a matrix or a choice is in."""
        return self._chunks[part.chunk].tensor

    def take(self, words: int) -> tuple[int, int, int]:
        """Return the chunk of some new words, and their offset and address."""
        if words > self._free:
            # As many as in any of the last steps: then all results are copied together.
            size = max(words, 0 if self._chunks else max(_last_words.get(self.device, (0,))))
            self._chunks.append(self._new_chunk(size))
            self._free = self._chunks[-1].size
        chunk = self._chunks[-1]
        start = chunk.size - self._free
        self._free -= words
        return len(self._chunks) - 1, start, chunk.address + 4 * start

    def _new_chunk(self, size: int) -> Chunk:
        """Return a chunk of at least so many words: if possible that of an earlier step, as to allocate takes long.

        Memory belongs to the stream on which it was allocated: when it is freed, torch gives it to others of that one.
        """
        stream, found = current_stream(self.device), _spare_chunks.pop(self.device, None)
        if found is not None and found.size >= size and stream is not None and found.stream == stream:
            return found
        import torch

        tensor = torch.empty(size, dtype=torch.int32, device=self.device)
        return Chunk(tensor, int(tensor.data_ptr()), size, stream)

    def release(self) -> None:
        """Let a later step use the memory, after the results were copied to the host."""
        if len(self._chunks) == 1:
            [chunk] = self._chunks
            if chunk.size <= 2 * max(_last_words.get(self.device, (0,))):  # not that of an unusually large step
                _spare_chunks[self.device] = chunk

    def reduce(self) -> None:
        """Queue the reductions of all results over their sequences."""
        failed: list[Exception] = []
        for matrix in self._matrices():
            chunk = self.chunk(matrix)
            try:
                if matrix.sequences:
                    matrix.reduce(chunk)
            except Exception as error:  # noqa: BLE001 - it is raised
                failed.append(error)
            if not matrix.is_reduced:
                matrix.copy_counts(chunk)
        if failed:
            raise failed[0]

    def number_labels(self) -> None:
        """Number the labels of groups that are on the host. This needs no result of the device."""
        for matrix in self._matrices():
            if any(name in LABELS for name in matrix.outline.host_names):
                matrix.on_host = [numbered_labels(arrays) for arrays in matrix.on_host]

    def tensors(self) -> Sequence[Any]:
        """Return the tensors that have to be copied to the host."""
        if not self._chunks:
            return []
        used = sum([chunk.size for chunk in self._chunks]) - self._free
        _last_words.setdefault(self.device, deque(maxlen=REMEMBERED_STEPS)).append(used)
        *others, last = [chunk.tensor for chunk in self._chunks]
        return [*others, last[: -self._free] if self._free else last]

    def fetched(self, chunks: Sequence[NDArray[Any]]) -> Iterator[Fetched]:
        """Yield the results from the copies of the tensors; rows take their choice from them."""
        for rows in self.rows:
            rows.take_choice(chunks)
        totals: dict[SequenceTable, int] = {}
        for matrix in self._matrices():
            table = matrix.outline.table
            totals[table] = _last_sequences[table] = totals.get(table, 0) + matrix.sequences
            yield matrix.fetched(chunks[matrix.chunk])

    def _matrices(self) -> list[ResultMatrix]:
        """Return those that have results: the kernel of another one has failed."""
        return [matrix for matrix in (*self._full, *self._open.values()) if matrix.starts]


def numbered_labels(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return arrays of sequences with numbers in place of labels, where every sequence has one."""
    found = dict(arrays)
    for name in LABELS:
        if name in arrays:
            with suppress(Exception):  # labels without a hash, …: the metrics of groups will fail with it, and no other
                _, places = numbered(to_numpy(arrays[name]))
                if np.count_nonzero(places >= 0) == len(places):
                    found[name] = places
    return found


def reduced_words(table: SequenceTable) -> int:
    """Return the words of memory that the reduction of a table needs."""
    return 2 * len(REDUCED_SLOTS) * len(table.reduced)


_last_sequences: WeakKeyDictionary[SequenceTable, int] = WeakKeyDictionary()
"""How many sequences the last step measured, by table."""

_last_words: dict[Any, deque[int]] = {}
"""How many words of memory the last steps used, by device."""

_spare_chunks: dict[Any, Chunk] = {}
"""The memory of the last step, for the next one, by device."""
