"""The pass over a batch's tensors by the Triton kernel, with as little work on the host as possible.

What the kernel has to know about the tensors is prepared once (``outline``). A launch then needs their addresses only:
those of a part follow from the whole batch's, so that no view is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from windsock.device_copy.copies import current_device, current_stream
from windsock.measurement.batch import Batch
from windsock.measurement.device_rows import (
    ALIGNED,
    DeviceRows,
    RowLayout,
    TokenMemory,
    at_once,
    kernel_of,
    layout_of,
)
from windsock.measurement.device_selection import copied
from windsock.measurement.outline import Outline, Prepared, is_stretch, located, prepare
from windsock.measurement.plan import Plan
from windsock.measurement.result_memory import ResultMatrix, ResultMemory
from windsock.measurement.token_rows import Request, TokenRows, clip_of
from windsock.stats.rows import moved_to

MAX_CHOICES = 256  # of an outline: there is one for every size of a batch


class Launched(NamedTuple):
    """A pass that was queued: its tensors, the first sequence, the addresses, and where its results are."""

    prepared: Prepared
    start: int
    addresses: tuple[Any, ...]  # of the results, and the kernel's arguments
    tensor_addresses: list[int]  # the addresses of the tensors
    aligned: tuple[bool, ...] | None
    matrix: ResultMatrix
    column: int


def launch(
    kernels: ModuleType,
    batch: Batch,
    plan: Plan,
    memory: ResultMemory,
    tokens: TokenRows | None = None,
) -> Launched:
    """Queue the kernel, which completes rows of ``tokens`` that were chosen. This never waits for the device."""
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
    launched = _launched(prepared, start, matrix)
    if sequences:
        completing = None
        if tokens is not None:
            rows = whole.prepared.get(TokenRows)
            completing = None if rows is None else rows.passes.get(outline)
            if completing is None:
                completing, first = _completing(batch, rows, first, tokens, outline, memory)
        _queue(launched, sequences, memory, completing, first)
        if completing is not None and completing.is_choosing:
            completing.rows.waiting = None
    # Only now, so that a batch whose kernel failed is not counted.
    matrix.add(sequences, {name: copied(getattr(batch, name)) for name in outline.host_names})
    return launched


def _launched(prepared: Prepared, start: int, matrix: ResultMatrix) -> Launched:
    outline = prepared.outline
    addresses = _addresses(prepared, start)
    # Triton compiles other code for addresses that are no multiples of 16; those of the results always are.
    aligned = None if reduce(or_, addresses) & 15 == 0 else tuple(address & 15 == 0 for address in addresses)
    arguments = (matrix.address, matrix.histogram_address, *outline.arguments(addresses))
    return Launched(prepared, start, arguments, addresses, aligned, matrix, matrix.sequences)


def _addresses(prepared: Prepared, start: int) -> list[int]:
    """Return the addresses of the tensors, from some sequence on."""
    if not start and not prepared.is_offset:
        return [tensor.data_ptr() for tensor in prepared.tensors]
    return [
        tensor.data_ptr() + (start + first) * stride
        for tensor, first, stride in zip(prepared.tensors, prepared.starts, prepared.outline.strides, strict=True)
    ]


def _versions(tensors: Sequence[Any]) -> list[int]:
    """Return what changes when torch writes to tensors."""
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:  # a tensor of the inference mode has no version
        return [-1 if tensor.is_inference() else tensor._version for tensor in tensors]


def _queue(launched: Launched, sequences: int, memory: ResultMemory, completing: Completing | None, first: int) -> None:
    prepared, matrix = launched.prepared, launched.matrix
    outline = prepared.outline
    kernel, kinds, room, more = outline.kernel, None, 0, ()
    if completing is not None:
        kernel, kinds, room, more, _, _ = completing
    with current_device(outline.key[0]):
        kernel.launch(
            (outline, prepared.ids, launched.aligned, kinds),
            current_stream(matrix.histograms.device),
            launched.addresses,
            lambda: _tensors(launched, sequences, memory),
            (outline.width, matrix.capacity, launched.column, sequences, prepared.ids, first, room),
            outline.limits,
            *more,
        )


def _tensors(launched: Launched, sequences: int, memory: ResultMemory) -> tuple[Any, ...]:
    prepared, matrix = launched.prepared, launched.matrix
    cut = _cut(prepared, launched.start, sequences)
    return *matrix.parts(memory.chunk(matrix)), *prepared.outline.arguments(cut)


class Completing(NamedTuple):
    """How a pass completes rows of chosen tokens; if the sequences are not chosen yet, it does that too."""

    kernel: Any  # rows_triton.Pass
    kinds: Any  # what stands for the kinds of its further arguments
    room: int  # tokens of a row
    arguments: tuple[Any, ...]
    rows: DeviceRows
    is_choosing: bool


def _completing(
    batch: Batch, rows: DeviceRows | None, first: int, tokens: TokenRows, outline: Outline, memory: ResultMemory
) -> tuple[Completing | None, int]:
    """Return how the pass over a stretch of a whole batch completes its rows, and the place of its first sequence.

    It is the same for all passes of a step, but for the one that chooses and for batches that are no stretch of another
    one: the rows keep it.
    """
    places = None
    if rows is None or rows not in memory.rows:
        known = tokens.located(batch)
        if known is None or known[0] not in memory.rows:  # they are elsewhere
            return None, 0
        chosen, found = known
        assert isinstance(chosen, DeviceRows)
        rows, first, places = (chosen, found, None) if isinstance(found, int) else (chosen, 0, found)
    if rows.drop_if_overwritten():
        memory.rows.remove(rows)
        return None, 0
    completing = filling = _filling(rows, places, outline, memory)
    if rows.waiting is not None:
        completing = _choosing(filling, rows.waiting, outline, memory)
    if places is None:
        rows.passes[outline] = filling
    rows.clip = clip_of(outline.plan.options)
    return completing, first


def _filling(rows: DeviceRows, places: Any, outline: Outline, memory: ResultMemory) -> Completing:
    """Return how a pass completes rows whose sequences were chosen before."""
    layout, on_device = rows.layout, None if places is None else moved_to(memory.device, places.astype(np.int32))
    kernel = outline.completing.get((layout, None)) or _new_kernel(outline, layout, None)
    fill = *rows.addresses, None if on_device is None else on_device.data_ptr()
    return Completing(kernel, places is None, layout.room, (fill, lambda: _fill(rows, memory, on_device)), rows, False)


def _choosing(filling: Completing, waiting: WaitingChoice, outline: Outline, memory: ResultMemory) -> Completing:
    """Return how a pass chooses the sequences and completes their rows."""
    _, kinds, room, arguments, rows, _ = filling
    kernel = outline.completing.get((rows.layout, waiting.choice)) or _new_kernel(outline, rows.layout, waiting.choice)
    key, addresses = waiting.arguments(rows)
    arguments = *arguments, addresses, lambda: waiting.tensors(rows, memory)
    return Completing(kernel, (kinds, key), room, arguments, rows, True)


def _new_kernel(outline: Outline, layout: RowLayout, choice: Any) -> Any:
    """Return the kernel of a pass that completes rows, and chooses them if there is a choice."""
    kernel = outline.completing[layout, choice] = outline.make(fill=(layout.count, layout.columns), choice=choice)
    return kernel


def _fill(rows: DeviceRows, memory: ResultMemory, places: Any = None) -> Any:
    """Return where rows are, as tensors, under the names that the kernel has for them."""
    from windsock.stats.tokens_triton import Fill

    chosen, _, tokens = rows.tensors(memory.chunk(rows))
    return Fill(chosen, tokens, places)


def choose(batch: Batch, plan: Plan, launched: Launched, memory: ResultMemory, request: Request) -> DeviceRows:
    """Choose sequences from a batch whose pass was queued; return their rows.

    The next pass of an update does that in programs of its own, for which nothing waits, or else the end of the step.
    Then the batch's tensors are kept until then. With tensors that need gradients, or in a pass of an update, a kernel
    is queued at once: to keep those would keep the whole graph.
    """
    prepared, sequences = launched.prepared, batch.sequences
    outline, which = prepared.outline, (request.number, sequences, launched.column % ALIGNED)
    known = outline.choices.get(which)
    if known is None:
        known = _remember_choice(outline, which, "cu_seqlens" in batch.given)
    layout, choice = known
    ids, start = located(batch, "ids")
    if len(ids) != sequences:
        ids = ids[start : start + sequences]
    waiting = WaitingChoice(choice, launched, sequences, request.seed, _versions(prepared.tensors))
    tokens = TokenMemory.on(memory.device, layout.token_words)
    rows = DeviceRows(ids, sequences, layout, tokens, memory.take(layout.choice_words), waiting)
    if sequences:
        memory.rows.append(rows)
        is_update = "policy" in plan.parts
        if is_update:
            rows.clip = clip_of(plan.options)
        if is_update or any([tensor.requires_grad for tensor in prepared.tensors]):  # noqa: C419
            choose_now(rows, memory)
    return rows


def _remember_choice(outline: Outline, which: tuple[int, int, int], packed: bool) -> tuple[RowLayout, Any]:
    """Return the layout of the rows and the kernel of a choice, by how many and from how many sequences."""
    number, sequences, column = which
    if len(outline.choices) >= MAX_CHOICES:
        outline.choices.clear()
    plan, layout = outline.plan, layout_of(outline.plan, number, outline.width)
    is_aligned = (column | sequences) % ALIGNED == 0
    kernel = kernel_of(plan, outline.table, layout, outline.key[2], packed, is_aligned, at_once(sequences))
    outline.choices[which] = layout, kernel
    return layout, kernel


class WaitingChoice(NamedTuple):
    """A choice that is still to be made, by a later pass or by a kernel of its own; it keeps the batch's tensors."""

    choice: Any  # tokens_triton.Choice
    launched: Launched
    sequences: int
    seed: int
    versions: list[int]  # of the tensors, when they were measured

    def is_unchanged(self) -> bool:
        """Return whether the tensors are what they were when they were measured."""
        prepared, start, _, addresses, *_ = self.launched
        return _addresses(prepared, start) == addresses and _versions(prepared.tensors) == self.versions

    def arguments(self, rows: DeviceRows) -> tuple[tuple[Any, ...], tuple[Any, Any, Any]]:
        """Return what stands for the kinds of the arguments, and these: the batch, its arrays, and the numbers."""
        prepared, _, (results, _, _, arrays, *others, _), _, aligned, matrix, column = self.launched
        outline, scores = prepared.outline, rows.addresses[0] + 4 * rows.layout.scores
        numbers = outline.width, matrix.capacity, column, self.sequences, self.seed
        return (outline, aligned), ((results, scores, *others), arrays, numbers)

    def tensors(self, rows: DeviceRows, memory: ResultMemory) -> tuple[Any, Any]:
        """Return the batch and its arrays as tensors."""
        from windsock.stats.tokens_triton import Whole

        results, _, _, arrays, *others, _ = _tensors(self.launched, self.sequences, memory)
        return Whole(results, rows.tensors(memory.chunk(rows))[1], *others), arrays


def choose_now(rows: DeviceRows, memory: ResultMemory) -> None:
    """Queue the kernel for a choice that no pass has made."""
    waiting, rows.waiting = rows.waiting, None
    if waiting is None:
        return
    key, (whole, arrays, numbers) = waiting.arguments(rows)
    device = memory.device
    with current_device(device.index):
        waiting.choice.launch(
            key,
            current_stream(device),
            ((*rows.addresses, None), whole, arrays),
            lambda: (_fill(rows, memory), *waiting.tensors(rows, memory)),
            numbers,
            rows.layout.room,
        )


def _cut(prepared: Prepared, start: int, sequences: int) -> list[Any]:
    """Return the tensors of a part of a batch."""
    return [
        (tensor[start + first : start + first + sequences] if stride else tensor).detach()
        for tensor, first, stride in zip(prepared.tensors, prepared.starts, prepared.outline.strides, strict=True)
    ]
