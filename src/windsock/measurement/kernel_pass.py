"""The pass over a batch's tensors by the Triton kernel, with as little work on the host as possible.

What the kernel has to know about tensors of some dtypes is an ``Outline``, prepared once. A launch then needs the
tensors' addresses only: those of a part follow from the whole batch's, so that no view is made. The passes of a step
with the same table write into one matrix, the columns of one batch after those of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import cache, lru_cache, partial, reduce
from operator import itemgetter, or_
from types import ModuleType
from typing import Any, NamedTuple, TypeGuard
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from windsock.device_copy import current_stream
from windsock.measurement.batch import AXES, LABELS, Batch, shape_of, to_numpy
from windsock.measurement.device_rows import DeviceRows, at_once, kernel_of, layout_of
from windsock.measurement.device_selection import Fetched, copied
from windsock.measurement.plan import Plan
from windsock.measurement.token_rows import Places, Request, RowSet, clip_of, listed
from windsock.stats.groups import numbered
from windsock.stats.rows import REDUCED_SLOTS, Table, moved_to

LEAST_SEQUENCES = 64
LEAST_ALIGNED = 16  # words of 32 bits


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
        self.counts = self.cells + _aligned(reduced_words(outline.table))  # where they begin
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
        with _current(device):
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


class ResultMemory:
    """Memory of one device for the results of a step's passes."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._chunks: list[Any] = []
        self._free = 0  # words of the last chunk
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
        table, capacity = outline.table, _aligned(max(sequences, expected))
        words = table.height * capacity + _aligned(reduced_words(table)) + _aligned(table.histogram_size)
        histograms = self._cleared(outline)
        self._open[outline.plan] = found = ResultMatrix(outline, capacity, histograms, *self.take(words))
        return found

    def _cleared(self, outline: Outline) -> Any:
        """Return memory for histograms that is 0: that of an earlier step, which was cleared on the current stream."""
        import torch

        stream, found = outline.reduction.spare.pop(self._device, (None, None))
        if stream is None or stream != current_stream(self._device):
            found = torch.zeros(max(outline.table.histogram_size, 1), dtype=torch.int32, device=self._device)
        return found

    def chunk(self, held: ResultMatrix | DeviceRows) -> Any:
        """Return the tensor that a matrix or rows are in."""
        return self._chunks[held.chunk]

    def take(self, words: int) -> tuple[int, int, int]:
        """Return the chunk of some new words, and their offset and address."""
        import torch

        if words > self._free:
            # As many as in the last step: then all results are copied together.
            size = max(words, 0 if self._chunks else _last_words.get(self._device, 0))
            self._chunks.append(torch.empty(size, dtype=torch.int32, device=self._device))
            self._free = size
        chunk = self._chunks[-1]
        offset = len(chunk) - self._free
        self._free -= words
        return len(self._chunks) - 1, offset, chunk.data_ptr() + 4 * offset

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
        _last_words[self._device] = sum(map(len, self._chunks)) - self._free
        if not self._free:
            return self._chunks
        return [*self._chunks[:-1], self._chunks[-1][: -self._free]]

    def fetched(self, chunks: Sequence[NDArray[Any]]) -> Iterator[Fetched]:
        """Yield the results from the copies of the tensors."""
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


def _aligned(words: int) -> int:
    return -(-words // LEAST_ALIGNED) * LEAST_ALIGNED


_last_sequences: WeakKeyDictionary[Table, int] = WeakKeyDictionary()
"""How many sequences the last step measured, by table."""
_last_words: dict[Any, int] = {}
"""How many words of memory the last step used, by device."""


class Outline(NamedTuple):
    """What the kernel has to know about the tensors of a batch, but for their addresses."""

    plan: Plan
    table: Table
    kernel: Any  # rows_triton.Pass
    completing: Any  # function of the rows' layout that returns one which completes rows of chosen tokens too
    reduction: Any  # rows_triton.Reduction
    arguments: Callable[[Sequence[Any]], tuple[Any, ...]]  # from one of each array
    strides: tuple[int, ...]  # bytes from one sequence to the next
    key: tuple[Any, ...]
    width: int
    limits: Any
    floating: tuple[bool, ...]  # whether the copied arrays of the sequences are floating-point numbers
    host_names: tuple[str, ...]  # of the arrays of the sequences that are not on the device


class Prepared(NamedTuple):
    """The tensors of a batch that the kernel uses, each once."""

    outline: Outline
    tensors: Sequence[Any]
    starts: Sequence[int]  # the sequence of each tensor with which the batch begins
    is_offset: bool  # whether any of them is not the first
    ids: int  # the number of tokens that end a sequence


class Launched(NamedTuple):
    """A pass that was queued: its tensors, the first sequence, the addresses, and where its results are."""

    prepared: Prepared
    start: int
    addresses: tuple[int, ...]
    aligned: tuple[bool, ...] | None
    matrix: ResultMatrix
    column: int


def launch(
    kernels: ModuleType,
    batch: Batch,
    plan: Plan,
    memory: ResultMemory,
    located: tuple[RowSet, Places] | None = None,
) -> Launched:
    """Queue the kernel, which completes chosen rows if they are ``located``. This never waits for the device."""
    whole, start = batch, 0
    if not batch.own and batch.whole is not None and _is_stretch(batch.rows):
        whole, start = batch.whole, batch.rows.indices(batch.whole.sequences)[0]
    prepared: Prepared | None = whole.prepared.get(plan)
    if prepared is None:
        prepared, are_own = _prepare(kernels, whole, plan)
        if are_own:
            whole.prepared[plan] = prepared
        elif whole is not batch:  # copies of the part's tensors are smaller
            start, (prepared, _) = 0, _prepare(kernels, batch, plan)
    outline, sequences = prepared.outline, batch.sequences
    matrix = memory.matrix(outline, sequences)
    launched = _launched(prepared, start, matrix)
    if sequences:
        _queue(launched, sequences, memory, _completion(batch, located, memory))
        if located is not None:
            located[0].clip = clip_of(plan.options)
    # Only now, so that a batch whose kernel failed is not counted.
    matrix.add(sequences, {name: copied(getattr(batch, name)) for name in outline.host_names})
    return launched


def _launched(prepared: Prepared, start: int, matrix: ResultMatrix) -> Launched:
    outline = prepared.outline
    if start or prepared.is_offset:
        addresses = [
            tensor.data_ptr() + (start + first) * stride
            for tensor, first, stride in zip(prepared.tensors, prepared.starts, outline.strides, strict=True)
        ]
    else:
        addresses = [tensor.data_ptr() for tensor in prepared.tensors]
    # Triton compiles other code for addresses that are no multiples of 16; those of the results always are.
    aligned = None if reduce(or_, addresses) & 15 == 0 else tuple(address & 15 == 0 for address in addresses)
    arguments = (matrix.address, matrix.histogram_address, *outline.arguments(addresses))
    return Launched(prepared, start, arguments, aligned, matrix, matrix.sequences)


def _queue(launched: Launched, sequences: int, memory: ResultMemory, completion: Completion | None) -> None:
    prepared, matrix = launched.prepared, launched.matrix
    outline, kernel = prepared.outline, prepared.outline.kernel
    more: tuple[Any, ...] = ()
    first = room = 0
    if completion is not None:
        layout = completion.rows.layout
        known, room = completion.rows.passes, layout.room
        if kernel not in known:
            known[kernel] = outline.completing(fill=(layout.count, layout.columns))
        kernel, first = known[kernel], completion.places if isinstance(completion.places, int) else 0
        more = completion.addresses(), lambda: completion.tensors(memory)
    with _current(outline.key[0]):
        kernel.launch(
            (outline.key, prepared.ids, launched.aligned, completion is not None and completion.on_device is not None),
            current_stream(matrix.histograms.device),
            launched.addresses,
            lambda: _tensors(launched, sequences, memory),
            (outline.width, matrix.capacity, launched.column, sequences, prepared.ids, first, room),
            outline.limits,
            *more,
        )


def _tensors(launched: Launched, sequences: int, memory: ResultMemory) -> list[Any]:
    prepared, matrix = launched.prepared, launched.matrix
    cut = _cut(prepared, launched.start, sequences)
    return [*matrix.parts(memory.chunk(matrix)), *prepared.outline.arguments(cut)]


class Completion(NamedTuple):
    """Rows of chosen tokens that a pass completes, and which sequences it has: the first place, or those of all."""

    rows: DeviceRows
    places: Places
    on_device: Any

    def addresses(self) -> tuple[int, int, int | None]:
        """Return where the choice, the rows and the places are."""
        places = None if self.on_device is None else self.on_device.data_ptr()
        return self.rows.address, self.rows.address + 4 * self.rows.layout.rows, places

    def tensors(self, memory: ResultMemory) -> Any:
        """Return the same as tensors, under the names that the kernel has for them."""
        from windsock.stats.rows_triton import Fill

        chosen, _, rows = row_tensors(self.rows, memory)
        return Fill(chosen, rows, self.on_device)


def _completion(batch: Batch, located: tuple[RowSet, Places] | None, memory: ResultMemory) -> Completion | None:
    """Return what a batch completes; None for rows that are elsewhere."""
    if located is None or located[0] not in memory.rows:
        return None
    rows, places = located
    assert isinstance(rows, DeviceRows)
    on_device = None if isinstance(places, int) else moved_to(batch.device, places.astype(np.int32))
    return Completion(rows, places, on_device)


def row_tensors(rows: DeviceRows, memory: ResultMemory) -> tuple[Any, Any, Any]:
    """Return the choice, the scores and the rows as tensors of their dtypes."""
    import torch

    words, layout = memory.chunk(rows)[rows.offset :], rows.layout
    scores = words[layout.scores : layout.rows].view(torch.float32)
    return words[: layout.scores], scores, words[layout.rows : layout.words].view(torch.float32)


def choose(batch: Batch, plan: Plan, launched: Launched, memory: ResultMemory, request: Request) -> DeviceRows:
    """Queue the choice of sequences from a batch whose pass was queued, and the copies of their tokens."""
    outline, matrix, sequences = launched.prepared.outline, launched.matrix, batch.sequences
    layout = layout_of(plan, request.number, outline.width)
    chunk, offset, address = memory.take(layout.words)
    rows = DeviceRows(listed(batch.ids), sequences, layout.criteria)
    rows.clip = clip_of(plan.options) if "policy" in plan.parts else None
    rows.chunk, rows.offset, rows.address, rows.layout = chunk, offset, address, layout
    is_packed = "cu_seqlens" in batch.given
    kernel = kernel_of(plan, outline.table, layout, outline.key[2], is_packed, at_once(sequences))
    tokens = outline.kernel.tokens

    def tensors() -> tuple[Any, ...]:
        given = _tensors(launched, sequences, memory)
        return given[0], *row_tensors(rows, memory), *tokens(given)

    if sequences:
        with _current(outline.key[0]):
            kernel.launch(
                (outline.key, launched.aligned),
                current_stream(matrix.histograms.device),
                (matrix.address, address, address + 4 * layout.scores, address + 4 * layout.rows,
                 *tokens(launched.addresses)),
                tensors,
                (outline.width, matrix.capacity, launched.column, sequences, layout.room, request.seed),
            )  # fmt: skip
        memory.rows.append(rows)
    return rows


def _cut(prepared: Prepared, start: int, sequences: int) -> list[Any]:
    """Return the tensors of a part of a batch."""
    return [
        (tensor[start + first : start + first + sequences] if stride else tensor).detach()
        for tensor, first, stride in zip(prepared.tensors, prepared.starts, prepared.outline.strides, strict=True)
    ]


def _prepare(kernels: ModuleType, batch: Batch, plan: Plan) -> tuple[Prepared, bool]:
    """Return the tensors that the kernel uses, and whether they are the batch's own and not copies.

    A copy does not see later changes of the batch's tensors, so it is for one launch only.
    """
    device = batch.device
    of_sequences = plan.sequence_arrays
    arrays, _ = _all_located(batch, of_sequences)
    on_device = tuple([name for name, array in zip(of_sequences, arrays, strict=True) if _is_on(array, device)])
    names = _names(kernels, plan, on_device)[0]
    tensors, starts = _all_located(batch, names)
    are_own, ids, keep = True, 0, 0
    if "eos_ids" in plan.arrays:
        place = names.index("eos_ids")
        given = tensors[place]
        tensors[place] = _ids_on(device, given)
        are_own, ids = isinstance(given, list | tuple) or tensors[place] is given, len(tensors[place])
    if "keep" in plan.given:
        place = names.index("keep")
        keep = 1 if shape_of(batch.keep) == (batch.sequences,) else 2
        if not _is_on(tensors[place], device):
            tensors[place], starts[place], are_own = moved_to(device, batch.keep), 0, False
    if not all([tensor.is_contiguous() for tensor in tensors]):  # noqa: C419 - a generator takes twice as long
        for place, tensor in enumerate(tensors):
            if not tensor.is_contiguous():  # the kernel computes addresses from the width alone
                tensors[place], starts[place], are_own = getattr(batch, names[place]).contiguous(), 0, False
    key = (device.index, batch.shape[-1], keep, *[tensor.dtype for tensor in tensors])
    outline = _outline(kernels, plan, on_device, key, "cu_seqlens" in batch.given)
    return Prepared(outline, tensors, starts, any(starts), ids), are_own


def _all_located(batch: Batch, names: Sequence[str]) -> tuple[list[Any], list[int]]:
    """Return arrays and the sequence of each with which the batch begins, without cutting them."""
    whole, own = batch.whole, batch.own
    if whole is None:
        return [getattr(batch, name) for name in names], [0] * len(names)
    if batch.rows is None and whole.whole is None:
        return [getattr(batch if name in own else whole, name) for name in names], [0] * len(names)
    located = [_located(batch, name) for name in names]
    return [array for array, _ in located], [start for _, start in located]


def _located(batch: Batch, name: str) -> tuple[Any, int]:
    """Return an array and the sequence of it with which the batch begins, without cutting it."""
    start = 0
    while batch.whole is not None and name not in batch.own:
        if batch.rows is not None:
            if not _is_stretch(batch.rows):
                break
            start += batch.rows.indices(batch.whole.sequences)[0]
        batch = batch.whole
    return getattr(batch, name), start


def _is_stretch(rows: Any) -> TypeGuard[slice]:
    return isinstance(rows, slice) and rows.step in (None, 1)


def _is_on(value: Any, device: Any) -> bool:
    return bool(getattr(value, "device", None) == device)


@lru_cache(maxsize=256)
def _names(
    kernels: ModuleType, plan: Plan, on_device: tuple[str, ...]
) -> tuple[tuple[str, ...], Callable[[Sequence[Any]], tuple[Any, ...]]]:
    """Return the names of the arrays that the kernel uses, and what puts one of each in the order of its arguments.

    The mask stands in for those that are not used.
    """
    arguments = (
        *on_device,
        *(name for name in kernels.ARRAYS if name in plan.arrays),
        "actions" if plan.repeats or "eos_ids" in plan.arrays else "response_mask",
        "response_mask",
        *(name if name in plan.given else "response_mask" for name in ("keep", "cu_seqlens")),
        "eos_ids" if "eos_ids" in plan.arrays else "response_mask",
    )
    names = tuple(dict.fromkeys(arguments))
    return names, itemgetter(*map(names.index, arguments))


@lru_cache(maxsize=1024)
def _outline(
    kernels: ModuleType, plan: Plan, on_device: tuple[str, ...], key: tuple[Any, ...], packed: bool
) -> Outline:
    _, width, keep, *dtypes = key
    names, arguments = _names(kernels, plan, on_device)
    table = plan.table(on_device)
    arrays = tuple(name for name in kernels.ARRAYS if name in plan.arrays)
    byte_mask = dtypes[names.index("response_mask")].itemsize == 1
    make = partial(_pass_of, kernels, table, arrays, keep, packed, byte_mask)
    return Outline(
        plan=plan,
        table=table,
        kernel=make(),
        completing=make,
        reduction=_reduction_of(kernels, table),
        arguments=arguments,
        strides=tuple(_stride(name, kind, width, keep, packed) for name, kind in zip(names, dtypes, strict=True)),
        key=key,
        width=width,
        limits=kernels.Limits.of(plan.options),
        floating=tuple(kind.is_floating_point for kind in dtypes[: len(on_device)]),
        host_names=tuple(name for name in plan.sequence_arrays if name not in on_device),
    )


@lru_cache(maxsize=256)
def _pass_of(
    kernels: ModuleType,
    table: Table,
    arrays: tuple[str, ...],
    keep: int,
    packed: bool,
    byte_mask: bool,
    fill: tuple[int, int] | None = None,
) -> Any:
    return kernels.Pass(table, arrays, keep, packed, byte_mask, fill)


@lru_cache(maxsize=256)
def _reduction_of(kernels: ModuleType, table: Table) -> Any:
    return kernels.Reduction(table)


def _stride(name: str, kind: Any, width: int, keep: int, packed: bool) -> int:
    if packed or name in ("eos_ids", "cu_seqlens"):
        return 0
    of_sequences = AXES[name] == "sequences" or (name == "keep" and keep == 1)
    return int(kind.itemsize) * (1 if of_sequences else width)


def _ids_on(device: Any, ids: Any) -> Any:
    """Return the ids of tokens that end a sequence on a device; those of a list are copied there once."""
    if isinstance(ids, list | tuple):
        return _listed_ids_on(device, tuple(ids))
    return moved_to(device, ids).reshape(-1)


@lru_cache(maxsize=16)
def _listed_ids_on(device: Any, ids: tuple[int, ...]) -> Any:
    return moved_to(device, ids).reshape(-1)


_HERE = nullcontext()


def _current(device: int | None) -> Any:
    """Return a context in which a CUDA device is the current one."""
    if device is None or _is_only_device():
        return _HERE
    import torch

    return _HERE if torch.cuda.current_device() == device else torch.cuda.device(device)


@cache
def _is_only_device() -> bool:
    import torch

    return bool(torch.cuda.device_count() == 1)
