"""Memory of a device for the results of a step's passes, all of which are copied to the host together.

The passes with the same table write into one matrix, the columns of one batch after those of the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from windsock.device_copy.copies import current_device, current_stream
from windsock.measurement.batch import LABELS, to_numpy
from windsock.measurement.device_rows import DeviceRows, aligned
from windsock.measurement.device_selection import Fetched
from windsock.measurement.outline import Outline
from windsock.measurement.plan import Plan
from windsock.stats.groups import numbered
from windsock.stats.rows import REDUCED_SLOTS, Table

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
        self._open: dict[Plan, ResultMatrix] = {}

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
        stream, found = current_stream(self.device), _spare.pop(self.device, None)
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
                _spare[self.device] = chunk

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
        totals: dict[Table, int] = {}
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


def reduced_words(table: Table) -> int:
    """Return the words of memory that the reduction of a table needs."""
    return 2 * len(REDUCED_SLOTS) * len(table.reduced)


_last_sequences: WeakKeyDictionary[Table, int] = WeakKeyDictionary()
"""How many sequences the last step measured, by table."""
_last_words: dict[Any, deque[int]] = {}
"""How many words of memory the last steps used, by device."""
_spare: dict[Any, Chunk] = {}
"""The memory of the last step, for the next one, by device."""
