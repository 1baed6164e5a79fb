"""What the Triton kernels have to know about the tensors of a batch, prepared once for tensors of some dtypes, and how
the rows of chosen sequences are laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from types import ModuleType
from typing import Any, NamedTuple, TypeGuard

from barograph.base.device_copy import moved_to
from barograph.metrics.batch.arrays import AXES, Batch, shape_of
from barograph.metrics.batch.inputs import clip_of
from barograph.metrics.batch.plan import MeasurementPlan
from barograph.metrics.formulas.table import SequenceTable

ALIGNED = 16  # words of 32 bits


class Chooser(NamedTuple):
    """How sequences are chosen from batches of one kind."""

    layout: RowLayout
    kernel: Any  # tokens_triton.SequenceChoice
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


def aligned(words: int) -> int:
    """Return a number of words, rounded up so that what follows them is aligned."""
    return -(-words // ALIGNED) * ALIGNED


Completing = tuple[Any, bool | None, int, Any, Callable[[], Any]]
"""How a pass completes rows of chosen tokens.

These are its kernel, whether it does so for a stretch of their batch, the tokens of a row, where the rows are, and the
same as tensors.
"""


# Compared by identity, which is fast: there is one for each plan and kinds of tensors.
@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """What the kernel has to know about the tensors of a batch, but for their addresses."""

    plan: MeasurementPlan
    table: SequenceTable
    plain: Completing
    make: Callable[..., Any]
    """Return the kernel (``rows_triton.Pass``) that completes rows of a choice, or describes the batch for one."""
    completing: dict[Any, Any]
    """The former by their choice."""
    choices: dict[Any, Chooser]
    """How sequences are chosen, by how many, from how many, and where their columns are."""
    dtypes: tuple[Any, ...]
    """Those of the arrays of tokens, the actions, the mask, keep and the bounds."""
    reduction: Any  # rows_triton.TableReduction
    arguments: Callable[[Sequence[Any]], tuple[Any, ...]]  # of the kernel, from one of each array
    strides: tuple[int, ...]  # bytes from one sequence to the next
    key: tuple[Any, ...]
    width: int
    limits: Any
    floating: tuple[bool, ...]  # whether the copied arrays of the sequences are floating-point numbers
    host_names: tuple[str, ...]  # of the arrays of the sequences that are not on the device
    clip: tuple[float, float] | None  # of the tokens, one by one


class Prepared(NamedTuple):
    """The tensors of a batch that the kernel uses, each once."""

    outline: Outline
    tensors: Sequence[Any]
    starts: Sequence[int]  # the sequence of each tensor with which the batch begins
    is_offset: bool  # whether any of them is not the first
    ids: int  # the number of tokens that end a sequence


def prepare(kernels: ModuleType, batch: Batch, plan: MeasurementPlan) -> tuple[Prepared, bool]:
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
    found = [_located(batch, name) for name in names]
    return [array for array, _ in found], [start for _, start in found]


def _located(batch: Batch, name: str) -> tuple[Any, int]:
    """Return an array and the sequence of it with which the batch begins, without cutting it."""
    start = 0
    while batch.whole is not None and name not in batch.own:
        if batch.rows is not None:
            if not is_stretch(batch.rows):
                break
            start += batch.rows.indices(batch.whole.sequences)[0]
        batch = batch.whole
    return getattr(batch, name), start


def is_stretch(rows: Any) -> TypeGuard[slice]:
    """Return whether the rows of a part follow each other in the whole batch."""
    return isinstance(rows, slice) and rows.step in (None, 1)


def _is_on(value: Any, device: Any) -> bool:
    return bool(getattr(value, "device", None) == device)


@lru_cache(maxsize=256)
def _names(
    kernels: ModuleType, plan: MeasurementPlan, on_device: tuple[str, ...]
) -> tuple[tuple[str, ...], Callable[[Sequence[Any]], tuple[Any, ...]]]:
    """Return the names of the arrays that the kernel uses, and what makes its arguments of one of each.

    These are the arrays of the sequences and those of the tokens, in their order and with None for one that is not
    used, and further ones, where the mask stands in.
    """
    further = (
        "actions" if plan.repeats or "eos_ids" in plan.arrays else "response_mask",
        "response_mask",
        *(name if name in plan.given else "response_mask" for name in ("keep", "cu_seqlens")),
        "eos_ids" if "eos_ids" in plan.arrays else "response_mask",
    )
    used = [name if name in plan.arrays else None for name in kernels.ARRAYS]
    names = tuple(dict.fromkeys((*on_device, *filter(None, used), *further)))
    none = len(names)  # the place of None, which is put behind the given ones
    unused = kernels.MOST_ARRAYS - len(on_device)
    of_sequences = itemgetter(*map(names.index, on_device), *(none,) * unused)
    of_tokens = itemgetter(*(none if name is None else names.index(name) for name in used))
    others = itemgetter(*map(names.index, further))

    def arguments(given: Sequence[Any]) -> tuple[Any, ...]:
        every = (*given, None)
        return of_sequences(every), of_tokens(every), *others(every)

    return names, arguments


@lru_cache(maxsize=1024)
def _outline(
    kernels: ModuleType, plan: MeasurementPlan, on_device: tuple[str, ...], key: tuple[Any, ...], packed: bool
) -> Outline:
    _, width, keep, *dtypes = key
    names, arguments = _names(kernels, plan, on_device)
    table = plan.table(on_device)
    byte_mask = dtypes[names.index("response_mask")].itemsize == 1
    make = partial(_pass_of, kernels, table, keep, packed, byte_mask)
    return Outline(
        plan=plan,
        table=table,
        plain=(make(), None, 0, kernels.NO_FILL, lambda: kernels.NO_FILL),
        make=make,
        completing={},
        choices={},
        dtypes=arguments(dtypes)[1:-1],
        reduction=_reduction_of(kernels, table),
        arguments=arguments,
        strides=tuple(_stride(name, kind, width, keep, packed) for name, kind in zip(names, dtypes, strict=True)),
        key=key,
        width=width,
        limits=kernels.FormulaLimits.of(plan.options),
        floating=tuple(kind.is_floating_point for kind in dtypes[: len(on_device)]),
        host_names=tuple(name for name in plan.sequence_arrays if name not in on_device),
        clip=clip_of(plan.options),
    )


@lru_cache(maxsize=256)
def _pass_of(
    kernels: ModuleType,
    table: SequenceTable,
    keep: int,
    packed: bool,
    byte_mask: bool,
    choice: Any = None,
    describes: bool = False,
) -> Any:
    return kernels.Pass(table, keep, packed, byte_mask, choice, describes)


@lru_cache(maxsize=256)
def _reduction_of(kernels: ModuleType, table: SequenceTable) -> Any:
    return kernels.TableReduction(table)


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
