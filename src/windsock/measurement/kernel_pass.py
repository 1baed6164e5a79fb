"""The pass over a batch's tensors by the Triton kernels, with as little work on the host as possible.

What a batch's tensors are is found out once for the batch and all its parts. A launch then needs their addresses only:
those of a part follow from the whole's, so that no view is made.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.batch import Batch
from windsock.measurement.device_selection import Fetched, copied, split_arrays
from windsock.measurement.plan import Plan
from windsock.stats.rows import WEIGHT, Table, moved_to

ALIGNED = 16
"""Results begin at multiples of this many words of 32 bits, so that a kernel is compiled once for all."""
LEAST_WORDS = 1 << 16


class Memory:
    """Memory of one device for the results of a step's passes, in words of 32 bits that begin as 0."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._chunks: list[Any] = []
        self._address = 0
        self._free = 0  # words of the last chunk
        self._histograms: dict[Table, tuple[int, int, int]] = {}

    def take(self, words: int) -> tuple[int, int, int]:
        """Return the chunk, the offset in it and the address of so many words."""
        import torch

        words = -(-words // ALIGNED) * ALIGNED
        if words > self._free or not self._chunks:
            # As much as the last step needed, so that one chunk is enough for this one.
            size = max(words, LEAST_WORDS, 0 if self._chunks else _last_size.get(self._device, 0))
            chunk = torch.zeros(size, dtype=torch.int32, device=self._device)
            self._chunks.append(chunk)
            self._address, self._free = chunk.data_ptr(), size
        offset = len(self._chunks[-1]) - self._free
        self._free -= words
        return len(self._chunks) - 1, offset, self._address + 4 * offset

    def histograms(self, table: Table) -> tuple[bool, tuple[int, int, int]]:
        """Return whether a table's histograms are new, and their place: all passes of a step add to the same."""
        found = self._histograms.get(table)
        if found is not None:
            return False, found
        self._histograms[table] = place = self.take(table.histogram_size)
        return True, place

    def view(self, chunk: int, offset: int, words: int) -> Any:
        """Return some words as a tensor."""
        return self._chunks[chunk][offset : offset + words]

    def used(self) -> list[Any]:
        """Return the chunks, without what was not used of them."""
        if not self._chunks:
            return []
        used = [*self._chunks[:-1], self._chunks[-1][: len(self._chunks[-1]) - self._free]]
        _last_size[self._device] = sum(len(chunk) for chunk in used)
        return used


_last_size: dict[Any, int] = {}
"""The words that the last step needed, by device."""


@dataclass(frozen=True, slots=True)
class KernelResults:
    """Where the results of one pass are."""

    prepared: Prepared
    sequences: int
    on_host: dict[str, Any]  # arrays of the sequences
    chunk: int
    offset: int
    histograms: tuple[int, int] | None  # chunk and offset, of the first pass that adds to them

    def fetched(self, chunks: list[NDArray[np.int32]]) -> Fetched:
        """Return the results from the copies of the chunks."""
        table = self.prepared.table
        words = chunks[self.chunk][self.offset : self.offset + table.height * self.sequences]
        words = words.reshape(table.height, self.sequences)
        arrays = dict(self.on_host)
        first = table.blocks["arrays"].start
        for place, name in enumerate(table.arrays):
            halves = np.stack([words[first + 2 * place], words[first + 2 * place + 1]], axis=-1)
            kind = np.float64 if self.prepared.floating[place] else np.int64
            arrays[name] = np.ascontiguousarray(halves).view(kind)[:, 0]
        histograms = None
        if self.histograms is not None:
            chunk, offset = self.histograms
            # Without a sign there is room for twice as many tokens.
            histograms = chunks[chunk][offset : offset + table.histogram_size].view(np.uint32) / WEIGHT
        return Fetched(self.prepared.plan, table, words[:first].view(np.float32), arrays, histograms)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The tensors of a batch in the order in which the kernels take them, and what the kernels have to know of them."""

    plan: Plan
    table: Table
    kernels: Any  # rows_triton.Pass
    tensors: tuple[Any, ...]
    strides: tuple[int, ...]  # bytes from one sequence to the next
    key: tuple[Any, ...]
    width: int
    ids: int  # the number of tokens that end a sequence
    limits: Any
    floating: tuple[bool, ...]
    host_names: tuple[str, ...]
    device: int
    lasting: bool
    """Whether the tensors are the batch's own: a copy would not see later changes of them."""


def launch(kernels: ModuleType, batch: Batch, plan: Plan, memory: Memory) -> KernelResults:
    """Queue the kernels. This never waits for the device."""
    whole, start = batch, 0
    if batch.whole is not None and batch.rows is not None and batch.rows.step in (None, 1):
        whole, start = batch.whole, batch.rows.indices(batch.whole.sequences)[0]
    prepared: Prepared | None = whole.prepared.get(plan)
    if prepared is None:
        prepared = _prepare(kernels, whole, plan)
        if prepared.lasting:
            whole.prepared[plan] = prepared
        elif whole is not batch:
            # A copy of the part's tensors is smaller than one of the whole's.
            whole, start, prepared = batch, 0, _prepare(kernels, batch, plan)
    table, sequences = prepared.table, batch.sequences
    on_host = {name: copied(getattr(batch, name)) for name in prepared.host_names}
    chunk, offset, address = memory.take(table.height * sequences)
    are_new, histograms = memory.histograms(table) if table.bins else (False, (chunk, offset, address))
    result = KernelResults(prepared, sequences, on_host, chunk, offset, histograms[:2] if are_new else None)
    if not sequences:
        return result
    addresses = [address, histograms[2]]
    addresses += [
        tensor.data_ptr() + start * stride for tensor, stride in zip(prepared.tensors, prepared.strides, strict=True)
    ]
    together = 0
    for one in addresses:
        together |= one
    # Triton compiles other code for addresses that are no multiples of 16.
    aligned = None if together & 15 == 0 else tuple(one & 15 == 0 for one in addresses)

    def tensors() -> list[Any]:
        import torch

        results = memory.view(chunk, offset, table.height * sequences).view(torch.float32)
        counts = memory.view(*histograms[:2], table.histogram_size) if table.bins else results
        cut = [
            tensor[start : start + sequences] if stride else tensor
            for tensor, stride in zip(prepared.tensors, prepared.strides, strict=True)
        ]
        return [results, counts, *cut]

    with _current(prepared.device):
        prepared.kernels.launch(
            (prepared.key, aligned), addresses, tensors, (prepared.width, sequences, prepared.ids), prepared.limits
        )
    return result


def _prepare(kernels: ModuleType, batch: Batch, plan: Plan) -> Prepared:
    """Find out what the kernels have to know about a batch's tensors."""
    given = batch.response_mask
    mask = given.contiguous()
    on_device, on_host = split_arrays(batch, plan)
    table = plan.table(tuple(on_device))
    names = [name for name in kernels.ARRAYS if name in plan.arrays]
    own = [getattr(batch, name) for name in names]
    uses_actions = plan.repeats or "eos_ids" in plan.arrays
    keep = batch.keep
    keep_kind = 0 if keep is None else 1 if keep.shape == (batch.sequences,) else 2
    eos = _ids_on(given.device, batch.eos_ids) if "eos_ids" in plan.arrays else None
    # The kernels compute addresses from the width alone. The mask stands in for tensors that are not used.
    used = [
        *on_device.values(),
        *own,
        batch.actions if uses_actions else given,
        given,
        given if keep is None else moved_to(given.device, keep),
        given if batch.cu_seqlens is None else batch.cu_seqlens,
        given if eos is None else eos,
    ]
    tensors = tuple(mask if tensor is given else tensor.detach().contiguous() for tensor in used)
    lasting = all(new.data_ptr() == old.data_ptr() for new, old in zip(tensors, used, strict=True)) and (
        keep is None or used[-3] is keep
    )
    packed = batch.cu_seqlens is not None
    strides = [
        0 if packed or not batch.sequences else tensor.element_size() * (tensor.numel() // batch.sequences)
        for tensor in tensors
    ]
    if eos is not None:
        strides[-1] = 0
    width = mask.shape[-1]
    return Prepared(
        plan=plan,
        table=table,
        kernels=_pass_of(kernels, table, tuple(names), width >= kernels.LONG_WIDTH, keep_kind, packed),
        tensors=tensors,
        strides=tuple(strides),
        key=(tuple(tensor.dtype for tensor in tensors), width, 0 if eos is None else len(eos), mask.device.index),
        width=width,
        ids=0 if eos is None else len(eos),
        limits=kernels.limits_of(plan.options),
        floating=tuple(tensor.is_floating_point() for tensor in on_device.values()),
        host_names=tuple(on_host),
        device=mask.device.index if mask.device.type == "cuda" else -1,
        lasting=lasting,
    )


@lru_cache(maxsize=256)
def _pass_of(kernels: ModuleType, table: Table, names: tuple[str, ...], is_long: bool, keep: int, packed: bool) -> Any:
    return kernels.Pass(table, names, is_long, keep, packed)


def _ids_on(device: Any, ids: Any) -> Any:
    """Return the ids of tokens that end a sequence on a device; those of a list are copied there once."""
    if isinstance(ids, list | tuple):
        return _listed_ids_on(device, tuple(ids))
    return moved_to(device, ids).reshape(-1)


@lru_cache(maxsize=16)
def _listed_ids_on(device: Any, ids: tuple[int, ...]) -> Any:
    return moved_to(device, ids).reshape(-1)


def _current(device: int) -> Any:
    """Return a context in which a CUDA device is the current one."""
    import torch

    return nullcontext() if device < 0 or torch.cuda.current_device() == device else torch.cuda.device(device)
