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
from windsock.measurement.outline import Outline, Prepared, is_stretch, prepare
from windsock.measurement.plan import Plan
from windsock.measurement.result_memory import ResultMatrix, ResultMemory
from windsock.measurement.token_rows import Request, TokenRows
from windsock.stats.rows import moved_to

MAX_CHOICES = 256  # of an outline: there is one for every size of a batch


class Launched(NamedTuple):
    """A pass that was queued: its tensors, the first sequence, the addresses, and where its results are."""

    prepared: Prepared
    start: int
    addresses: tuple[Any, ...]  # of the results, and the kernel's arguments
    aligned: tuple[bool, ...] | None
    memory: ResultMemory
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
    launched = _launched(prepared, start, memory, matrix)
    if sequences:
        completing = chosen = None
        if tokens is not None:
            rows = whole.prepared.get(TokenRows)
            completing = None if rows is None else rows.passes.get(outline)
            if completing is None:
                completing, chosen, first = _completing(batch, rows, first, tokens, outline, memory)
        _queue(launched, sequences, completing, first)
        if chosen is not None:
            chosen.waiting = None
    # Only now, so that a batch whose kernel failed is not counted.
    matrix.add(sequences, {name: copied(getattr(batch, name)) for name in outline.host_names})
    return launched


def _launched(prepared: Prepared, start: int, memory: ResultMemory, matrix: ResultMatrix) -> Launched:
    outline = prepared.outline
    addresses = _addresses(prepared, start)
    # Triton compiles other code for addresses that are no multiples of 16; those of the results always are.
    aligned = None if reduce(or_, addresses) & 15 == 0 else tuple(address & 15 == 0 for address in addresses)
    arguments = (matrix.address, matrix.histogram_address, *outline.arguments(addresses))
    return Launched(prepared, start, arguments, aligned, memory, matrix, matrix.sequences)


def _addresses(prepared: Prepared, start: int) -> list[int]:
    """Return the addresses of the tensors, from some sequence on."""
    if not start and not prepared.is_offset:
        return [tensor.data_ptr() for tensor in prepared.tensors]
    return [
        tensor.data_ptr() + (start + first) * stride
        for tensor, first, stride in zip(prepared.tensors, prepared.starts, prepared.outline.strides, strict=True)
    ]


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


def _queue(launched: Launched, sequences: int, completing: Completing | None, first: int) -> None:
    prepared, matrix = launched.prepared, launched.matrix
    outline = prepared.outline
    kernel, kinds, room, more = outline.kernel, None, 0, ()
    if completing is not None:
        kernel, kinds, room, more = completing
    with current_device(outline.key[0]):
        kernel.launch(
            (outline, prepared.ids, launched.aligned, kinds),
            current_stream(matrix.histograms.device),
            launched.addresses,
            lambda: _tensors(launched, sequences),
            (outline.width, matrix.capacity, launched.column, sequences, prepared.ids, first, room),
            outline.limits,
            *more,
        )


def _tensors(launched: Launched, sequences: int) -> tuple[Any, ...]:
    prepared, matrix = launched.prepared, launched.matrix
    cut = _cut(prepared, launched.start, sequences)
    return *matrix.parts(launched.memory.chunk(matrix)), *prepared.outline.arguments(cut)


Completing = tuple[Any, Any, int, tuple[Any, ...]]
"""How a pass completes rows of chosen tokens, and chooses them before if that is to be done.

These are its kernel, what stands for the kinds of the further arguments, the tokens of a row, and the arguments.
"""


def _completing(
    batch: Batch, rows: Any, first: int, tokens: TokenRows, outline: Outline, memory: ResultMemory
) -> tuple[Completing | None, DeviceRows | None, int]:
    """Return how the pass over a batch completes rows, which rows, and the place of its first sequence among theirs.

    It is the same for all passes over stretches of the batch that the rows were chosen from, which keep it, but for the
    one that chooses.
    """
    places = on_device = None
    if rows is None or rows not in memory.rows:
        known = tokens.located(batch)
        if known is None or known[0] not in memory.rows:  # they are elsewhere
            return None, None, 0
        rows, found = known
        first, places = (found, None) if isinstance(found, int) else (0, found)
    waiting, layout = rows.waiting, rows.layout
    if waiting is not None and _state_of(waiting.prepared.tensors) != rows.state:
        _give_up(rows)
        return None, None, 0
    rows.clip = outline.clip
    completes, chooses = outline.completing.get((layout, rows.kernel)) or _new_kernels(outline, layout, rows.kernel)
    if places is not None:
        on_device = moved_to(memory.device, places.astype(np.int32))
    fill = *rows.addresses, None if on_device is None else on_device.data_ptr()
    more: tuple[Any, ...] = fill, lambda: _fill(rows, memory, on_device)
    if places is None:
        rows.passes[outline] = completes, True, layout.room, more
    if waiting is None:
        return (completes, places is None, layout.room, more), rows, first
    key, addresses = _chosen_from(rows)
    more = *more, addresses, lambda: _tensors_chosen_from(rows)
    return (chooses, (places is None, key), layout.room, more), rows, first


def _new_kernels(outline: Outline, layout: RowLayout, choice: Any) -> tuple[Any, Any]:
    """Return the kernel of a pass that completes rows, and that of one that chooses them too."""
    fill = layout.count, layout.columns
    kernels = outline.completing[layout, choice] = outline.make(fill=fill), outline.make(fill=fill, choice=choice)
    return kernels


def _fill(rows: DeviceRows, memory: ResultMemory, places: Any = None) -> Any:
    """Return where rows are, as tensors, under the names that the kernel has for them."""
    from windsock.stats.tokens_triton import Fill

    chosen, _, tokens = rows.tensors(memory.chunk(rows))
    return Fill(chosen, tokens, places)


def choose(batch: Batch, plan: Plan, launched: Launched, request: Request) -> DeviceRows:
    """Choose sequences from a batch whose pass was queued; return their rows.

    The next pass of an update does that in programs of its own, for which nothing waits, or else the end of the step.
    Then the batch's tensors are kept until then. With tensors that need gradients, or in a pass of an update, a kernel
    is queued at once: to keep those would keep the whole graph.
    """
    prepared, memory, sequences = launched.prepared, launched.memory, batch.sequences
    outline, tensors = prepared.outline, prepared.tensors
    number, seed = request
    which = number, sequences, launched.column % ALIGNED
    layout, choice = outline.choices.get(which) or _remember_choice(outline, which, "cu_seqlens" in batch.given)
    tokens = TokenMemory.on(memory.device, layout.token_words)
    rows = DeviceRows(batch.ids, sequences, layout, tokens, memory.take(layout.choice_words))
    if sequences:
        rows.waiting, rows.kernel, rows.seed, rows.state = launched, choice, seed, _state_of(tensors)
        memory.rows.append(rows)
        is_update = "policy" in plan.parts
        if is_update:
            rows.clip = outline.clip
        if is_update or len(rows.state) < len(tensors):
            _choose(rows)
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


def choose_waiting(rows: DeviceRows) -> None:
    """Make a choice that no pass has made, unless its tensors changed."""
    if _state_of(rows.waiting.prepared.tensors) == rows.state:
        _choose(rows)
    else:
        _give_up(rows)


def _give_up(rows: DeviceRows) -> None:
    """Give up a choice, because its tensors were written to or moved since their pass."""
    rows.waiting.memory.rows.remove(rows)
    rows.waiting, rows.is_overwritten = None, True


def _chosen_from(rows: DeviceRows) -> tuple[tuple[Any, ...], tuple[Any, Any, Any]]:
    """Return what stands for the kinds of a choice's arguments, and these: the batch, its arrays, and the numbers."""
    prepared, _, (results, _, _, arrays, *others, _), aligned, _, matrix, column = rows.waiting
    outline, scores = prepared.outline, rows.addresses[0] + 4 * rows.layout.scores
    numbers = outline.width, matrix.capacity, column, rows.sequences, rows.seed
    return (outline, aligned), ((results, scores, *others), arrays, numbers)


def _tensors_chosen_from(rows: DeviceRows) -> tuple[Any, Any]:
    """Return the batch and its arrays as tensors."""
    from windsock.stats.tokens_triton import Whole

    launched: Launched = rows.waiting
    results, _, _, arrays, *others, _ = _tensors(launched, rows.sequences)
    return Whole(results, rows.tensors(launched.memory.chunk(rows))[1], *others), arrays


def _choose(rows: DeviceRows) -> None:
    """Queue the kernel that makes a choice."""
    key, (whole, arrays, numbers) = _chosen_from(rows)
    memory: ResultMemory = rows.waiting.memory
    device = memory.device
    try:
        with current_device(device.index):
            rows.kernel.launch(
                key,
                current_stream(device),
                ((*rows.addresses, None), whole, arrays),
                lambda: (_fill(rows, memory), *_tensors_chosen_from(rows)),
                numbers,
                rows.layout.room,
            )
    finally:
        rows.waiting = None  # after a failure too: it keeps tensors, and a graph if these have one


def _cut(prepared: Prepared, start: int, sequences: int) -> list[Any]:
    """Return the tensors of a part of a batch."""
    return [
        (tensor[start + first : start + first + sequences] if stride else tensor).detach()
        for tensor, first, stride in zip(prepared.tensors, prepared.starts, prepared.outline.strides, strict=True)
    ]
