"""What a trainer has of a batch, under the names that everyone uses, in either of the two usual layouts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.errors import WindsockError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TOKEN_FIELDS = (
    "log_probs", "old_log_probs", "ref_log_probs", "rollout_log_probs", "advantages", "raw_advantages", "returns",
    "values", "old_values", "rewards", "entropy", "old_entropy", "exact_kl", "actions", "response_mask",
)  # fmt: skip
SEQUENCE_FIELDS = ("unclipped_rewards", "scores", "finished", "prompt_lengths", "groups", "episodes", "weights")
LOGIT_FIELDS = ("logits", "old_logits")


class BatchError(WindsockError, ValueError):
    """The arrays of a batch do not fit each other."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The arrays of a batch; all are optional but ``response_mask``.

    Padded: token arrays are ``(sequences, width)``. Packed: they are one stream ``(tokens,)`` and ``cu_seqlens`` holds
    the ``sequences + 1`` boundaries, as attention kernels take them. Arrays of sequences are ``(sequences,)``; logits
    have the vocabulary as a further, last axis; ``prompt_mask`` has a width of its own; ``keep`` is per sequence or,
    where it does not fit that, per token. NumPy arrays, torch tensors on any device and lists are taken. What stands
    outside the mask is never looked at.
    """

    response_mask: Any = None
    log_probs: Any = None
    old_log_probs: Any = None
    ref_log_probs: Any = None
    rollout_log_probs: Any = None
    advantages: Any = None
    raw_advantages: Any = None
    returns: Any = None
    values: Any = None
    old_values: Any = None
    rewards: Any = None
    unclipped_rewards: Any = None
    scores: Any = None
    entropy: Any = None
    old_entropy: Any = None
    logits: Any = None
    old_logits: Any = None
    exact_kl: Any = None
    actions: Any = None
    eos_ids: Any = None
    finished: Any = None
    prompt_mask: Any = None
    prompt_lengths: Any = None
    cu_seqlens: Any = None
    groups: Any = None
    episodes: Any = None
    weights: Any = None
    keep: Any = None
    sequences: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.response_mask is None:
            raise BatchError("a batch needs response_mask: which tokens of each sequence the policy wrote")
        shape = _shape(self.response_mask)
        wanted = 1 if self.cu_seqlens is not None else 2
        if len(shape) != wanted:
            layout = "packed (cu_seqlens is given): (tokens,)" if wanted == 1 else "padded: (sequences, width)"
            raise BatchError(f"response_mask: expected {layout}, got shape {shape}")
        count = shape[0] if wanted == 2 else _sequences_of(self.cu_seqlens, shape[0])
        object.__setattr__(self, "sequences", count)
        self._check(shape, count)
        self._check_devices()

    def _check(self, shape: tuple[int, ...], count: int) -> None:
        for name in TOKEN_FIELDS:
            self._expect(name, shape)
        for name in SEQUENCE_FIELDS:
            self._expect(name, (count,))
        for name in LOGIT_FIELDS:
            got = _shape(getattr(self, name))
            if getattr(self, name) is not None and got[:-1] != shape:
                raise BatchError(f"{name}: expected {(*shape, 'vocabulary')}, got shape {got}")
        if self.keep is not None and _shape(self.keep) not in (shape, (count,)):
            raise BatchError(f"keep: expected {shape} or {(count,)}, got shape {_shape(self.keep)}")
        if self.prompt_mask is not None and _shape(self.prompt_mask)[:1] != (count,):
            raise BatchError(f"prompt_mask: expected ({count}, width), got shape {_shape(self.prompt_mask)}")

    def _check_devices(self) -> None:
        """Refuse token arrays that lie on another device than the mask, or hold no real numbers."""
        home = getattr(self.response_mask, "device", None)
        for name in (*TOKEN_FIELDS, *LOGIT_FIELDS):
            value = getattr(self, name)
            if value is None:
                continue
            device = getattr(value, "device", None)
            if str(device or "cpu") != str(home or "cpu"):
                raise BatchError(
                    f"{name} is on {device or 'the host'}, response_mask on {home or 'the host'}: move one"
                )
            if "complex" in str(getattr(value, "dtype", "")):
                raise BatchError(f"{name}: expected real numbers, got {value.dtype}")

    def _expect(self, name: str, shape: tuple[int, ...]) -> None:
        value = getattr(self, name)
        if value is not None and _shape(value) != shape:
            raise BatchError(f"{name}: expected shape {shape} like response_mask, got {_shape(value)}")

    @property
    def given(self) -> frozenset[str]:
        """The names of the arrays that are there."""
        return frozenset(f.name for f in fields(self) if f.init and getattr(self, f.name) is not None)

    def having(self, **arrays: Any) -> Batch:
        """Return this batch with further arrays, or others in place of its own."""
        return Batch(**{**{name: getattr(self, name) for name in self.given}, **arrays})

    def split(self, parts: int) -> list[Batch]:
        """Cut a padded batch into micro-batches of whole sequences."""
        if self.cu_seqlens is not None:
            raise BatchError("split cuts padded batches; a packed one has to be packed anew")
        bounds = np.linspace(0, self.sequences, parts + 1).astype(int)
        return [self.take(slice(a, b)) for a, b in pairwise(bounds.tolist()) if b > a]

    def take(self, rows: slice) -> Batch:
        """Return a batch of some of the sequences."""
        chosen = {n: getattr(self, n) if n == "eos_ids" else getattr(self, n)[rows] for n in self.given}
        return Batch(**chosen)


def _shape(value: Any) -> tuple[int, ...]:
    shape = getattr(value, "shape", None)
    return tuple(int(size) for size in shape) if shape is not None else np.shape(value)


def _sequences_of(cu_seqlens: Any, tokens: int) -> int:
    device = getattr(cu_seqlens, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu":
        return len(cu_seqlens) - 1  # looking at the boundaries would wait for the device
    bounds = to_numpy(cu_seqlens)
    if bounds.ndim != 1 or len(bounds) < 1 or bounds[0] != 0 or bounds[-1] != tokens or (np.diff(bounds) < 0).any():
        raise BatchError(f"cu_seqlens: expected rising boundaries from 0 to {tokens}, got {_short(bounds)}")
    return len(bounds) - 1


def _short(values: NDArray[Any]) -> str:
    listed: Sequence[Any] = values.ravel()[:6].tolist()
    return f"{listed}{' …' if values.size > 6 else ''}"


def to_numpy(value: Any) -> NDArray[Any]:
    """Return an array on the host; half precision that NumPy does not know is widened, exactly."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach()
        if value.is_floating_point() and value.dtype not in (torch.float64, torch.float32, torch.float16):
            value = value.float()
        return np.asarray(value.cpu())
    return np.asarray(value)
