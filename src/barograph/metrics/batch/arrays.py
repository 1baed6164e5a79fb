"""The arrays of a trainer's batch, under their usual names, padded or packed."""

# ruff: noqa: RUF009 - ``_array`` returns a dataclass field

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from barograph.base.arrays import Ints
from barograph.base.errors import BarographError


def copied(values: Any) -> Any:
    """Return a copy, so that the caller may change the values before the step ends."""
    return values.clone() if hasattr(values, "clone") else values.copy() if hasattr(values, "copy") else list(values)


Axes = Literal["tokens", "sequences", "vocabulary", "other"]


def _array(axes: Axes, computed_from: str = "") -> Any:
    """Declare an array of the batch. ``computed_from`` are the arrays that it follows from where it is not given."""
    return field(default=None, metadata={"axes": axes, "computed_from": computed_from})


class BatchError(BarographError, ValueError):
    """An array of a batch is missing or has a wrong shape, device or dtype."""


# No equality: comparing arrays gives an array, which is neither true nor false.
@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The arrays of a batch; all are optional but ``response_mask``.

    Padded: token arrays are ``(sequences, width)``. Packed: they are one stream ``(tokens,)``, and ``cu_seqlens`` are
    the ``sequences + 1`` boundaries, as attention kernels take them. Arrays of sequences are ``(sequences,)``; logits
    have the vocabulary as a further, last axis; ``prompt_mask`` has a width of its own; ``keep`` is per sequence or,
    where its shape differs from that, per token. NumPy arrays, torch tensors on any device and lists are accepted.
    Values outside the mask are never used. ``ids`` is a list of names or integers on the host, one for each sequence:
    those of ``run.sample(id=…)``, with which the values of tokens are joined.
    """

    response_mask: Any = _array("tokens")
    log_probs: Any = _array("tokens", computed_from="logits and actions")
    old_log_probs: Any = _array("tokens", computed_from="old_logits and actions")
    ref_log_probs: Any = _array("tokens")
    rollout_log_probs: Any = _array("tokens")
    advantages: Any = _array("tokens")
    raw_advantages: Any = _array("tokens")
    returns: Any = _array("tokens")
    values: Any = _array("tokens")
    old_values: Any = _array("tokens")
    rewards: Any = _array("tokens")
    unclipped_rewards: Any = _array("sequences")
    scores: Any = _array("sequences")
    entropy: Any = _array("tokens", computed_from="logits")
    old_entropy: Any = _array("tokens", computed_from="old_logits or entropy")
    logits: Any = _array("vocabulary")
    old_logits: Any = _array("vocabulary")
    ref_logits: Any = _array("vocabulary")
    exact_kl: Any = _array("tokens", computed_from="logits and old_logits")
    exact_ref_kl: Any = _array("tokens", computed_from="logits and ref_logits")
    highest_logits: Any = _array("tokens", computed_from="logits")
    lowest_logits: Any = _array("tokens", computed_from="logits")
    actions: Any = _array("tokens")
    eos_ids: Any = _array("other")
    finished: Any = _array("sequences")
    prompt_mask: Any = _array("other")
    prompt_lengths: Any = _array("sequences", computed_from="prompt_mask")
    cu_seqlens: Any = _array("other")
    groups: Any = _array("sequences")
    episodes: Any = _array("sequences")
    domains: Any = _array("sequences")
    weights: Any = _array("sequences")
    keep: Any = _array("other")
    ids: Any = _array("other")
    given: frozenset[str] = field(init=False, repr=False)
    """The names of the given arrays."""
    shape: tuple[int, ...] = field(init=False, repr=False)
    """The shape of the tokens."""
    sequences: int = field(init=False, default=0)
    device: Any = field(init=False, default=None, repr=False)
    """The device of the mask, where it has one."""
    whole: Batch | None = field(init=False, default=None, repr=False)
    """The batch from which this one takes the arrays that are not its ``own``, and ``rows`` the part; None for all."""
    rows: slice | Ints | None = field(init=False, default=None, repr=False)
    own: frozenset[str] = field(init=False, repr=False)
    prepared: dict[Any, Any] = field(init=False, default_factory=dict, repr=False)
    """What a measurement found out about the arrays, for its next call with this batch or a part of it."""

    def __post_init__(self) -> None:
        if self.response_mask is None:
            raise BatchError("a batch needs response_mask: 1 at the tokens that the policy generated")
        shape = shape_of(self.response_mask)
        wanted = 1 if self.cu_seqlens is not None else 2
        if len(shape) != wanted:
            layout = "packed (cu_seqlens is given): (tokens,)" if wanted == 1 else "padded: (sequences, width)"
            raise BatchError(f"response_mask: expected {layout}, got shape {shape}")
        given = frozenset(name for name in FIELDS if getattr(self, name) is not None)
        count = shape[0] if wanted == 2 else _sequences_of(self.cu_seqlens, shape[0])
        put = object.__setattr__
        put(self, "given", given)
        put(self, "own", given)
        put(self, "shape", shape)
        put(self, "sequences", count)
        put(self, "device", getattr(self.response_mask, "device", None))
        for name in given:
            self._check(name, getattr(self, name))

    if not TYPE_CHECKING:  # a wrong name is an error for the type checker

        def __getattr__(self, name: str) -> Any:
            """Take an array from the whole batch: a part cuts its arrays when they are used, as that takes time."""
            if name not in AXES:
                raise AttributeError(f"Batch has no {name!r}")
            array = getattr(self.whole, name) if name in self.given else None
            # eos_ids are one list for all sequences.
            part = array if array is None or self.rows is None or name == "eos_ids" else _cut(array, self.rows)
            object.__setattr__(self, name, part)
            return part

    def _check(self, name: str, value: Any) -> None:
        """Reject an array of a wrong shape, and one of tokens that is on another device than the mask or complex."""
        axes, shape, count = AXES[name], self.shape, self.sequences
        # Of names the length is enough: NumPy would make an array of them.
        got = (len(value),) if name == "ids" and isinstance(value, list | tuple) else shape_of(value)
        if axes == "sequences":
            if got != (count,):
                raise BatchError(f"{name}: expected shape {(count,)} like response_mask, got {got}")
        elif axes == "other":
            if name == "keep" and got not in (shape, (count,)):
                raise BatchError(f"keep: expected {shape} or {(count,)}, got shape {got}")
            if name == "prompt_mask" and got[:1] != (count,):
                raise BatchError(f"prompt_mask: expected ({count}, width), got shape {got}")
            if name == "ids" and got != (count,):
                raise BatchError(f"ids: expected a name or an integer for each of {count} sequences, got shape {got}")
        else:
            if axes == "tokens" and got != shape:
                raise BatchError(f"{name}: expected shape {shape} like response_mask, got {got}")
            if axes == "vocabulary" and got[:-1] != shape:
                raise BatchError(f"{name}: expected {(*shape, 'vocabulary')}, got shape {got}")
            self._check_device(name, value)

    def _check_device(self, name: str, value: Any) -> None:
        device, home = getattr(value, "device", None), self.device
        # Lists have no device, NumPy arrays only since NumPy 2, and torch's is not a string.
        if device != home and str(device or "cpu") != str(home or "cpu"):
            raise BatchError(f"{name} is on {device or 'the host'}, response_mask on {home or 'the host'}: move one")
        if _is_complex(value):
            raise BatchError(f"{name}: expected real numbers, got {value.dtype}")

    def having(self, **arrays: Any) -> Batch:
        """Return this batch with further arrays, or with other ones in place of its own."""
        checked_alone = AXES.keys() - {"response_mask", "cu_seqlens"}
        if not arrays.keys() <= checked_alone or any(array is None for array in arrays.values()):
            return Batch(**{**{name: getattr(self, name) for name in self.given}, **arrays})
        for name, array in arrays.items():
            self._check(name, array)
        return self.completed(**arrays)

    def split(self, parts: int) -> list[Batch]:
        """Cut a padded batch into micro-batches of complete sequences."""
        bounds = [n * self.sequences // parts for n in range(parts + 1)]
        return [self.take(slice(a, b)) for a, b in pairwise(bounds) if b > a]

    def take(self, rows: slice | Ints) -> Batch:
        """Return a padded batch of some of the sequences: a slice or places. Its arrays are cut when they are used."""
        if "cu_seqlens" in self.given:
            raise BatchError("split takes a padded batch, this one is packed (cu_seqlens is given): pack each part")
        chosen = range(*rows.indices(self.sequences)) if isinstance(rows, slice) else rows
        return self._view(rows, len(chosen), {})

    def completed(self, **arrays: Any) -> Batch:
        """Return this batch with further arrays that are known to fit: nothing is checked."""
        return self._view(None, self.sequences, arrays)

    def _view(self, rows: slice | Ints | None, sequences: int, arrays: dict[str, Any]) -> Batch:
        view, put = object.__new__(Batch), object.__setattr__
        put(view, "given", self.given.union(arrays) if arrays else self.given)
        put(view, "shape", self.shape if rows is None else (sequences, *self.shape[1:]))
        put(view, "sequences", sequences)
        put(view, "device", self.device)
        put(view, "whole", self)
        put(view, "rows", rows)
        put(view, "own", frozenset(arrays))
        put(view, "prepared", {})
        for name, array in arrays.items():
            put(view, name, array)
        return view

    def gathered(
        self, group: Any, *, order: Literal["contiguous", "zigzag"] = "contiguous", temperature: float = 1.0
    ) -> Batch:
        """Return the whole batch in context-parallel training, where each process has some tokens of every sequence.

        All processes of the ``torch.distributed`` group call it, with the same arrays; those of tokens are gathered,
        the others are the same everywhere. ``order`` says which tokens a process has: a contiguous slice, in the order
        of the group's ranks, or two chunks of each sequence in the zigzag layout of ring attention. A packed batch has
        the ``cu_seqlens`` of its own tokens. Logits are replaced by the log-probs and entropies that follow from them,
        with the ``temperature`` of the option of that name. Raises BatchError on every process where the batches of
        the group do not fit together.
        """
        from barograph.metrics.batch.completion import gathered

        return gathered(self, group, order, temperature)


AXES: dict[str, Axes] = {array.name: array.metadata["axes"] for array in fields(Batch) if array.init}

FIELDS = tuple(AXES)

COMPUTED_FROM: dict[str, str] = {
    array.name: array.metadata["computed_from"]
    for array in fields(Batch)
    if array.init and array.metadata["computed_from"]
}
"""In words, the arrays from which an array is computed where it is not given."""


def _fields_over(axes: Axes) -> tuple[str, ...]:
    return tuple(name for name, of_array in AXES.items() if of_array == axes)


TOKEN_FIELDS = _fields_over("tokens")

SEQUENCE_FIELDS = _fields_over("sequences")

VOCABULARY_FIELDS = _fields_over("vocabulary")

LABELS = ("groups", "episodes")
"""Arrays whose labels are of one batch: the same label in another batch is another group."""


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of an array, tensor or list."""
    shape = getattr(value, "shape", None)
    return tuple(shape) if shape is not None else np.shape(value)


def _cut(array: Any, rows: slice | Ints) -> Any:
    """Return some rows of an array or a list."""
    if isinstance(array, list | tuple) and not isinstance(rows, slice):
        return [array[row] for row in rows]
    return array[rows]


def _is_complex(value: Any) -> bool:
    asked = getattr(value, "is_complex", None)  # of a tensor
    return bool(asked()) if asked is not None else getattr(getattr(value, "dtype", None), "kind", "f") == "c"


def _sequences_of(cu_seqlens: Any, tokens: int) -> int:
    device = getattr(cu_seqlens, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu":
        return len(cu_seqlens) - 1  # checking the boundaries would wait for the device
    bounds = to_numpy(cu_seqlens)
    if bounds.ndim != 1 or len(bounds) < 1 or bounds[0] != 0 or bounds[-1] != tokens or (np.diff(bounds) < 0).any():
        raise BatchError(f"cu_seqlens: expected ascending boundaries from 0 to {tokens}, got {_short(bounds)}")
    return len(bounds) - 1


def _short(values: NDArray[Any]) -> str:
    listed: Sequence[Any] = values.ravel()[:6].tolist()
    return f"{listed}{' …' if values.size > 6 else ''}"


def to_numpy(value: Any) -> NDArray[Any]:
    """Return an array on the host; bfloat16, which NumPy does not have, becomes float32."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach()
        if value.is_floating_point() and value.dtype not in (torch.float64, torch.float32, torch.float16):
            value = value.float()
        return np.asarray(value.cpu())
    return np.asarray(value)
