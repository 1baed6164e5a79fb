"""Measure batches on an accelerator: one pass there and one small copy to the host per step, without waiting.

``Launches.add`` queues the pass over a batch's tensors and returns at once. What the Triton kernel has to know
about the tensors is prepared once (``outline``): a launch then needs their addresses only, and those of a part
follow from the whole batch's, so that no view is made. ``Launches.collect`` copies the results of all passes to the
host together; there ``DeviceSelection`` computes the metrics from the statistics of each sequence.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, reduce
from operator import or_
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.base.device_copy import DeviceCopy, current_device, current_stream, moved_to
from barograph.base.errors import without_frames
from barograph.metrics.batch.arrays import Batch, copied
from barograph.metrics.batch.plan import Fetched, MeasurementPlan
from barograph.metrics.batch.token_rows import Request, TokenRows
from barograph.metrics.formulas.table import SequenceTable
from barograph.metrics.gpu import torch_pass
from barograph.metrics.gpu.outline import ALIGNED, Chooser, Completing, Outline, Prepared, is_stretch, prepare
from barograph.metrics.gpu.results import (
    DeviceRows,
    ResultMatrix,
    ResultMemory,
    TokenMemory,
    at_once,
    kernel_of,
    layout_of,
)
from barograph.metrics.gpu.selection import DeviceSelection, selection_of
from barograph.metrics.gpu.torch_pass import TorchResults

MAX_CHOICES = 256  # of an outline: there is one for every size of a batch

NO_SEED = -1


def queue_kernel(
    kernels: ModuleType,
    batch: Batch,
    plan: MeasurementPlan,
    memory: ResultMemory,
    tokens: TokenRows | None = None,
    request: Request | None = None,
) -> DeviceRows | None:
    """Queue the kernel, which completes rows of ``tokens`` that were chosen. This never waits for the device.

    With a request, return the rows of sequences that are chosen from this batch. The next pass of an update makes the
    choice in programs of its own, for which nothing waits, or else the end of the step; the batch's tensors are kept
    until then. With tensors that need gradients, or in a pass of an update, it is urgent: to keep those would keep the
    whole graph.
    """
    whole, start = batch, 0
    if not batch.own and batch.whole is not None and is_stretch(batch.rows):
        whole, start = batch.whole, batch.rows.indices(batch.whole.sequences)[0]
    first = start
    prepared: Prepared | None = whole.prepared.get(plan)
    if prepared is None:
        prepared, are_own = prepare(kernels, whole, plan)
        if are_own:
            whole.prepared[plan] = prepared
        elif whole is not batch:  # copies of the part's tensors are smaller
            start, (prepared, _) = 0, prepare(kernels, batch, plan)
    outline, sequences = prepared.outline, batch.sequences
    matrix = memory.matrix(outline, sequences)
    rows, completing = _new_rows(batch, prepared, matrix, memory, request) if request else (None, outline.plain)
    chosen = None
    if sequences:
        if tokens is not None:
            known = whole.prepared.get(TokenRows)
            if known is not None and outline in known.passes:
                completing = known.passes[outline]
            else:
                completing, chosen, first = _completing(batch, known, first, tokens, outline, memory)
        seed = NO_SEED if chosen is None else chosen.seed
        _queue(prepared, start, sequences, memory, matrix, completing, first, seed)
        if chosen is not None:
            chosen.waiting = None
        if rows is not None:
            memory.rows.append(rows)
    # Only now, so that a batch whose kernel failed is not counted.
    matrix.add(sequences, {name: copied(getattr(batch, name)) for name in outline.host_names})
    return rows


def _queue(
    prepared: Prepared,
    start: int,
    sequences: int,
    memory: ResultMemory,
    matrix: ResultMatrix,
    completing: Completing,
    first: int,
    seed: int,
) -> None:
    """Queue the kernel for sequences from ``start`` on.

    ``first`` is the place of the first one among those that the rows to complete are chosen from.
    """
    outline, ids = prepared.outline, prepared.ids
    addresses = _addresses(prepared, start)
    # Triton compiles other code for addresses that are no multiples of 16; those of the results always are.
    aligned = None if reduce(or_, addresses) & 15 == 0 else tuple(address & 15 == 0 for address in addresses)
    kernel, kinds, room, fill, fill_tensors = completing
    with current_device(outline.key[0]):
        kernel.launch(
            (outline, ids, aligned, kinds),
            current_stream(matrix.histograms.device),
            (matrix.address, matrix.histogram_address, *outline.arguments(addresses)),
            lambda: (*matrix.parts(memory.chunk(matrix)), *outline.arguments(_cut(prepared, start, sequences))),
            (outline.width, matrix.capacity, matrix.sequences, sequences, ids, first, room, seed),
            outline.limits,
            fill,
            fill_tensors,
        )


def _addresses(prepared: Prepared, start: int) -> list[int]:
    """Return the addresses of the tensors, from some sequence on."""
    if not start and not prepared.is_offset:
        return [tensor.data_ptr() for tensor in prepared.tensors]
    return [
        tensor.data_ptr() + (start + first) * stride
        for tensor, first, stride in zip(prepared.tensors, prepared.starts, prepared.outline.strides, strict=True)
    ]


def _cut(prepared: Prepared, start: int, sequences: int) -> list[Any]:
    """Return the tensors of a part of a batch."""
    return [
        (tensor[start + first : start + first + sequences] if stride else tensor).detach()
        for tensor, first, stride in zip(prepared.tensors, prepared.starts, prepared.outline.strides, strict=True)
    ]


def _completing(
    batch: Batch, rows: Any, first: int, tokens: TokenRows, outline: Outline, memory: ResultMemory
) -> tuple[Completing, DeviceRows | None, int]:
    """Return how the pass over a batch completes rows, those that it chooses, and the place of its first sequence.

    The first is the same for all passes over stretches of the batch that the rows were chosen from, which keep it.
    """
    places = on_device = None
    if rows is None or rows not in memory.rows:
        known = tokens.located(batch)
        if known is None or known[0] not in memory.rows:  # they are elsewhere
            return outline.plain, None, 0
        rows, found = known
        first, places = (found, None) if isinstance(found, int) else (0, found)
    is_waiting = rows.waiting is not None
    if is_waiting and _state_of(rows.waiting) != rows.state:
        _give_up(rows, memory)
        return outline.plain, None, 0
    rows.clip = outline.clip
    kernel = outline.completing.get(rows.kernel) or _new_kernel(outline, rows.kernel)
    if places is not None:
        on_device = moved_to(memory.device, places.astype(np.int32))
    fill = *rows.addresses, None if on_device is None else on_device.data_ptr()
    completing = kernel, places is None, rows.layout.room, fill, lambda: _fill(rows, memory, on_device)
    if places is None:
        rows.passes[outline] = completing
    return completing, rows if is_waiting else None, first


def _new_kernel(outline: Outline, choice: Any) -> Any:
    """Return the kernel of a pass that completes rows of a choice."""
    kernel = outline.completing[choice] = outline.make(choice=choice)
    return kernel


def _fill(rows: DeviceRows, memory: ResultMemory, places: Any = None) -> Any:
    """Return where rows are, as tensors, under the names that the kernel has for them."""
    from barograph.metrics.gpu.tokens_triton import Fill

    return Fill(*rows.tensors(memory.chunk(rows)), places)


def _new_rows(
    batch: Batch, prepared: Prepared, matrix: ResultMatrix, memory: ResultMemory, request: Request
) -> tuple[DeviceRows, Completing]:
    """Return rows of sequences to be chosen from a batch, and how its pass, which completes none, describes it."""
    outline, tensors = prepared.outline, prepared.tensors
    sequences, (number, seed) = batch.sequences, request
    which = number, sequences, matrix.sequences % ALIGNED
    chooser = outline.choices.get(which) or _new_chooser(outline, which, "cu_seqlens" in batch.given)
    whole = batch.whole
    # A view that only has further arrays would look them up there, which takes longer.
    ids = batch.ids if whole is None or batch.rows is not None or "ids" in batch.own else whole.ids
    tokens = TokenMemory.on(memory.device, chooser.layout.token_words)
    rows = DeviceRows(ids, sequences, chooser, seed, tokens, memory.take(chooser.layout.choice_words))
    if sequences:
        rows.waiting, rows.state = tensors, _state_of(tensors)
        rows.is_urgent = len(rows.state) < len(tensors)
        if "policy" in outline.plan.parts:
            rows.is_urgent, rows.clip = True, outline.clip
    choice = rows.addresses[0], None, None
    return rows, (chooser.describing, None, 0, choice, lambda: _fill(rows, memory)._replace(rows=None))


def _new_chooser(outline: Outline, which: tuple[int, int, int], packed: bool) -> Chooser:
    """Return how sequences are chosen, and remember it."""
    number, sequences, column = which
    if len(outline.choices) >= MAX_CHOICES:
        outline.choices.clear()
    plan, layout = outline.plan, layout_of(outline.plan, number, outline.width)
    is_aligned = (column | sequences) % ALIGNED == 0
    kernel = kernel_of(
        plan, outline.table, layout, outline.key[2], packed, is_aligned, at_once(sequences), outline.dtypes
    )
    chooser = outline.choices[which] = Chooser(layout, kernel, outline.make(describes=True))
    return chooser


def _state_of(tensors: Sequence[Any]) -> list[tuple[int, int]]:
    """Return what changes when torch moves tensors or writes to them; nothing of those that need gradients."""
    try:
        return [(tensor.data_ptr(), tensor._version) for tensor in tensors if not tensor.requires_grad]
    except RuntimeError:  # a tensor of the inference mode has no version
        return [
            (tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version)
            for tensor in tensors
            if not tensor.requires_grad
        ]


def choose_waiting(rows: DeviceRows, memory: ResultMemory) -> None:
    """Make a choice that no pass has made, unless its tensors changed."""
    if _state_of(rows.waiting) == rows.state:
        _choose(rows, memory)
    else:
        _give_up(rows, memory)


def _give_up(rows: DeviceRows, memory: ResultMemory) -> None:
    """Give up a choice, because its tensors were written to or moved since their pass."""
    memory.rows.remove(rows)
    rows.waiting, rows.is_overwritten = None, True


def _choose(rows: DeviceRows, memory: ResultMemory) -> None:
    """Queue the kernel that makes a choice."""
    device = memory.device
    try:
        with current_device(device.index):
            rows.kernel.launch(
                device.index,
                current_stream(device),
                (*rows.addresses, None),
                lambda: _fill(rows, memory),
                rows.seed,
            )
    finally:
        rows.waiting = None  # after a failure too: it keeps tensors, and a graph if these have one


def on_device(batch: Batch) -> bool:
    """Return whether the batch is on an accelerator."""
    return getattr(batch.device, "type", "cpu") not in ("cpu", "meta")  # NumPy's is a string, a list has none


class Launches:
    """The queued passes of one step, and the memory of their results."""

    def __init__(self) -> None:
        self._memories: dict[Any, ResultMemory] = {}  # of the kernels' results, by device
        self._by_torch: list[TorchResults] = []

    def __bool__(self) -> bool:
        return bool(self._memories or self._by_torch)

    def add(
        self, batch: Batch, plan: MeasurementPlan, tokens: TokenRows | None = None, request: Request | None = None
    ) -> DeviceRows | None:
        """Queue the pass over a batch, which completes the rows of chosen tokens. This never waits for the device.

        With a request, return the rows of sequences that are chosen from this batch. There are none if torch computes
        the pass, and none after a failure of such rows, which ``unable`` has.
        """
        device = batch.device
        kernels = _kernels(device.type)
        if kernels is not None and not _broken:
            memory = self._memories.get(device)
            if memory is None:
                memory = self._memories[device] = ResultMemory(device)
            completed = tokens if memory.rows and plan.completes else None
            if (completed or request) and not unable:
                try:
                    rows = queue_kernel(kernels, batch, plan, memory, completed, request)
                except Exception as problem:  # noqa: BLE001 - the metrics do not need the tokens
                    unable.append(without_frames(problem))
                else:
                    return rows if rows is None or not rows.is_urgent or _try_choice(rows, memory) else None
            try:
                queue_kernel(kernels, batch, plan, memory)
                return None
            except Exception as problem:  # noqa: BLE001 - a missing compiler, an old driver, …: torch measures as well
                _tell_broken(problem)
        self._by_torch.append(torch_pass.queue_operations(batch, plan))
        return None

    @contextmanager
    def collected(self) -> Iterator[list[DeviceSelection]]:
        """Copy the results to the host, and wait for them; the batches of one plan become one selection.

        The selections can be used inside of the ``with`` block: their memory is that of the next step then.
        """
        fetched: list[Fetched] = []
        copies: list[DeviceCopy] = []
        for memory in self._memories.values():
            for rows in [rows for rows in memory.rows if rows.waiting is not None]:
                _try_choice(rows, memory)
            try:
                memory.reduce()
            except Exception as problem:  # noqa: BLE001 - the host can do it too
                _tell_broken(problem)
            fetched += memory.fetched(fetch(memory.tensors(), copies, memory.number_labels))
            memory.release()
        if self._by_torch:
            arrays = iter(fetch([tensor for result in self._by_torch for tensor in result.tensors()], copies))
            fetched += [result.fetched(arrays) for result in self._by_torch]
        yield [selection_of(pieces) for pieces in _alike(fetched)]
        for copy in copies:
            copy.release()


def _try_choice(rows: DeviceRows, memory: ResultMemory) -> bool:
    """Make a choice of sequences that no pass has made; return whether that succeeded."""
    try:
        if not unable:
            choose_waiting(rows, memory)
            return True
    except Exception as problem:  # noqa: BLE001 - the metrics do not need the tokens
        unable.append(without_frames(problem))
    memory.rows.remove(rows)
    return False


def _alike(fetched: Iterable[Fetched]) -> Iterable[list[Fetched]]:
    """Return the results with the same plan and table together."""
    found: dict[tuple[MeasurementPlan, SequenceTable], list[Fetched]] = {}
    for piece in fetched:
        found.setdefault((piece.plan, piece.table), []).append(piece)
    return found.values()


def fetch(
    tensors: Sequence[Any], copies: list[DeviceCopy], meanwhile: Callable[[], object] = lambda: None
) -> list[NDArray[Any]]:
    """Copy tensors of one device to the host as one run of bytes, and wait for it.

    The arrays have the memory of a copy that is added to ``copies``. ``meanwhile`` is called before the wait.
    """
    import torch

    if not tensors:
        return []
    if len(tensors) == 1:
        return [_arrived(tensors[0], copies, meanwhile)]
    flat = [
        tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
        for tensor in tensors
    ]
    data, place, arrays = _arrived(torch.cat(flat), copies, meanwhile), 0, []
    for tensor, piece in zip(tensors, flat, strict=True):
        kind = np.dtype(str(tensor.dtype).removeprefix("torch."))
        arrays.append(data[place : place + len(piece)].view(kind).reshape(tuple(tensor.shape)))
        place += len(piece)
    return arrays


def _arrived(tensor: Any, copies: list[DeviceCopy], meanwhile: Callable[[], object]) -> NDArray[Any]:
    copies.append(DeviceCopy(tensor, reused=True))
    meanwhile()
    array: NDArray[Any] = copies[-1].wait().numpy()
    return array


@cache
def _kernels(device: str) -> ModuleType | None:
    """Return the module of Triton kernels, or None for a device or an installation without Triton."""
    if device != "cuda":
        return None
    try:
        return importlib.import_module("barograph.metrics.gpu.rows_triton")
    except ImportError:
        return None


def _tell_broken(problem: Exception) -> None:
    if not _broken:
        print(f"barograph: Triton kernels failed, measuring with torch instead: {problem}", file=sys.stderr)
    _broken.append(without_frames(problem))


_broken: list[Exception] = []
"""The failure of the kernels; after it they are not tried again in this process."""

unable: list[Exception] = []
"""The same of the choice of sequences."""
