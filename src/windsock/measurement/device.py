"""Batches on an accelerator: one pass there, one small copy back per step, and nothing waits in between.

``launch`` queues the pass over a batch's tensors and returns at once. ``collect`` brings what several launches left
back in one copy, and the metrics follow on the host from the statistics of each sequence.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.measurement.batch import SEQUENCE_FIELDS, Batch
from windsock.measurement.channels import CHANNELS, RESPONSE
from windsock.measurement.options import Options
from windsock.measurement.selection import Selection
from windsock.states import EXTREMA, MEAN, MOMENTS, StateKind
from windsock.stats.rows import COLUMNS, SPREAD, WIDTH, handed_over, owners, torch_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FLAGS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    # flag: part, what it needs, the channels that it fills
    "POLICY": ("policy", ("log_probs", "old_log_probs"), ("ratio", "kl_k1", "kl_k2", "kl_k3", "above", "below")),
    "NLL": ("policy", ("log_probs",), ("nll",)),
    "SURROGATE": ("policy", ("log_probs", "old_log_probs", "advantages"), ("surrogate", "binds", "high", "low")),
    "DUAL": ("policy", ("log_probs", "old_log_probs", "advantages", "dual_clip"), ("dual",)),
    "REF_LOSS": ("policy", ("log_probs", "ref_log_probs"), ("ref_k3",)),
    "ENTROPY": ("policy", ("entropy",), ("entropy",)),
    "EXACT": ("policy", ("exact_kl",), ("exact_kl",)),
    "ADVANTAGES": ("data", ("advantages",), ("advantages",)),
    "RETURNS": ("data", ("returns",), ("returns",)),
    "OLD": ("data", ("old_log_probs",), ("old_log_probs",)),
    "REF": ("data", ("ref_log_probs",), ("ref_log_probs",)),
    "OLD_REF": ("data", ("old_log_probs", "ref_log_probs"), ("old_minus_ref",)),
    "OLD_ENTROPY": ("data", ("old_entropy",), ("old_entropy",)),
    "ROLLOUT": (
        "data", ("old_log_probs", "rollout_log_probs"),
        ("rollout_log_probs", "mismatch", "mismatch_k3", "mismatch_ratio", "log_prob_difference",
         "probability_difference"),
    ),
    "OLD_VALUES": ("data value", ("old_values",), ("old_values",)),
    "RESIDUAL": ("data", ("returns", "old_values"), ("residual",)),
    "VALUES": ("value", ("values",), ("values",)),
    "ERROR": ("value", ("values", "returns"), ("error", "value_loss")),
    "VALUE_CLIP": ("value", ("values", "returns", "old_values", "value_clip"), ("value_clip",)),
    "REWARDS": ("data", ("rewards",), ("rewards",)),
    "ENDS": ("data", ("actions", "eos_ids"), ("ends",)),
}  # fmt: skip
NEGATED = {"mismatch_k1": "mismatch"}  # channels that are another one with the sign turned


def on_device(batch: Batch) -> bool:
    """Tell whether the batch lies on an accelerator."""
    torch = sys.modules.get("torch")
    mask = batch.response_mask
    return torch is not None and isinstance(mask, torch.Tensor) and mask.device.type not in ("cpu", "meta")


def outline(batch: Batch) -> Any:
    """Return what the host needs to know of a batch, without its tensors: those must not be kept until the step ends.

    Arrays that lie on the device are only marked as being there.
    """
    marked: dict[str, Any] = {name: True if name in batch.given else None for name in Batch.__dataclass_fields__}
    kept = {name: getattr(batch, name) for name in SEQUENCE_FIELDS if _on_host(getattr(batch, name))}
    return SimpleNamespace(**{**marked, **kept, "given": batch.given, "sequences": batch.sequences})


def _on_host(value: Any) -> bool:
    device = getattr(value, "device", None)
    return value is not None and getattr(device, "type", "cpu") == "cpu"


@dataclass(slots=True)
class Launched:
    """A pass that was queued: where its results will be, and what the host needs to finish it."""

    batch: Any  # an outline
    parts: tuple[str, ...]
    options: Options
    rows: Any
    sequences: dict[str, Any] = field(default_factory=dict)  # arrays of the sequences that lie on the device


def launch(batch: Batch, parts: tuple[str, ...], options: Options) -> Launched:
    """Queue the pass over a batch. Nothing here waits for the device."""
    flags = _flags(batch, parts, options)
    rows = _by_kernel(batch, flags, options)
    if rows is None:
        rows = _by_torch(batch, flags, options)
    return Launched(outline(batch), parts, options, rows, _device_sequences(batch))


def collect(launched: Sequence[Launched]) -> list[DeviceSelection]:
    """Bring what was launched to the host, in one copy for each device, and wait for it."""
    pieces = [(one, name, tensor) for one in launched for name, tensor in [("", one.rows), *one.sequences.items()]]
    fetched = _fetch([tensor for _, _, tensor in pieces])
    by_launch: dict[int, dict[str, NDArray[Any]]] = {}
    for (one, name, _), array in zip(pieces, fetched, strict=True):
        by_launch.setdefault(id(one), {})[name] = array
    return [DeviceSelection(one, by_launch[id(one)]) for one in launched]


def _fetch(tensors: Sequence[Any]) -> list[NDArray[Any]]:
    """Copy tensors as one run of bytes through pinned memory, and cut it up again."""
    import torch

    flat = [
        tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
        for tensor in tensors
    ]
    joined = torch.cat(flat)
    host = torch.empty(joined.shape, dtype=torch.uint8, pin_memory=joined.device.type == "cuda")
    host.copy_(joined, non_blocking=True)
    if joined.device.type == "cuda":
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(joined.device))
        arrived.synchronize()
    data, place, arrays = host.numpy(), 0, []
    for tensor, piece in zip(tensors, flat, strict=True):
        kind = np.dtype(str(tensor.dtype).removeprefix("torch."))
        arrays.append(data[place : place + len(piece)].view(kind).reshape(tuple(tensor.shape)))
        place += len(piece)
    return arrays


def _flags(batch: Batch, parts: tuple[str, ...], options: Options) -> set[str]:
    def there(name: str) -> bool:
        return getattr(options, name) is not None if name in Options.__dataclass_fields__ else name in batch.given

    return {
        flag
        for flag, (of, needs, _) in FLAGS.items()
        if any(part in of.split() for part in parts) and all(there(name) for name in needs)
    }


@cache
def _kernels(device: str) -> ModuleType | None:
    """Return the Triton kernels where they run."""
    if device != "cuda":
        return None
    try:
        return importlib.import_module("windsock.stats.rows_triton")
    except ImportError:
        return None


def _by_kernel(batch: Batch, flags: set[str], options: Options) -> Any | None:
    """Launch the kernels; None where there are none, or where they cannot be compiled."""
    kernels = _kernels(batch.response_mask.device.type)
    if kernels is None or _broken:
        return None
    try:
        return _launch_kernels(kernels, batch, flags, options)
    except Exception as problem:  # noqa: BLE001 - whatever Triton lacks here, torch measures as well
        _broken.append(problem)
        print(f"windsock: the Triton kernels do not run here, torch measures instead: {problem}", file=sys.stderr)
        return None


_broken: list[Exception] = []
"""Why the kernels are not tried again."""


def _launch_kernels(kernels: ModuleType, batch: Batch, flags: set[str], options: Options) -> Any:
    mask = batch.response_mask.contiguous()
    tensors = {
        name: getattr(batch, name).detach().contiguous() for name in kernels.TENSORS if getattr(batch, name) is not None
    }
    keep = None if batch.keep is None else handed_over(batch.keep, mask.device).contiguous()
    eos = handed_over(batch.eos_ids, mask.device).reshape(-1) if "ENDS" in flags else None
    bounds = None if batch.cu_seqlens is None else batch.cu_seqlens.contiguous()
    channels = frozenset(channel for flag in flags for channel in FLAGS[flag][2])
    return kernels.rows(tensors, mask, keep, bounds, eos, flags, channels, options)


def _by_torch(batch: Batch, flags: set[str], options: Options) -> Any:
    import torch

    response = batch.response_mask.bool()
    valid, bounds = response, batch.cu_seqlens
    if batch.keep is not None:
        keep = handed_over(batch.keep, response.device).bool()
        if keep.shape == (batch.sequences,):
            keep = keep[:, None] if bounds is None else keep[owners(bounds, len(response))]
        valid = response & keep

    def pick(name: str) -> Any:
        if name == "ends":
            return torch.isin(batch.actions, handed_over(batch.eos_ids, response.device).reshape(-1))
        return torch.where(response if name == "rewards" else valid, getattr(batch, name).detach().double(), 0.0)

    def compute(channel: str) -> Callable[[], Any]:
        return lambda: CHANNELS[channel](pick, options)

    wanted = {channel: compute(channel) for flag in flags for channel in FLAGS[flag][2]}
    if options.value_clip is not None and batch.old_values is None:
        wanted.pop("value_loss", None)  # it cannot be clipped, and is missing
    return torch_rows(wanted, valid, response, RESPONSE, bounds)


def _device_sequences(batch: Batch) -> dict[str, Any]:
    """Return the arrays of sequences that have to be fetched, in dtypes that NumPy knows."""
    import torch

    found = {}
    for name in SEQUENCE_FIELDS:
        value = getattr(batch, name)
        if isinstance(value, torch.Tensor) and value.device == batch.response_mask.device:
            found[name] = value.detach().double() if value.is_floating_point() else value.long()
    if batch.prompt_lengths is None and isinstance(batch.prompt_mask, torch.Tensor):
        found["prompt_lengths"] = batch.prompt_mask.bool().sum(-1)
    return found


class DeviceSelection(Selection):
    """A batch that was measured on a device, as the statistics of its sequences."""

    def __init__(self, launched: Launched, fetched: dict[str, NDArray[Any]]) -> None:
        self.batch = launched.batch
        self.options = launched.options
        self.parts = launched.parts
        self._rows = fetched.pop("").astype(np.float64).reshape(-1, WIDTH)
        self._fetched = fetched
        self.counts = self._column("valid").astype(np.int64)
        self.response_lengths = self._column("response").astype(np.int64)
        if "prompt_lengths" in fetched:
            self.prompt_lengths = fetched["prompt_lengths"].astype(np.int64)

    def sequence(self, name: str) -> NDArray[Any]:
        """Return an array of the sequences as it is."""
        return self._fetched[name] if name in self._fetched else super().sequence(name)

    def totals(self, channel: str) -> Floats:
        """Add a channel up per sequence."""
        if channel == "outside":
            return self.totals("above") + self.totals("below")
        if channel in NEGATED:
            return -self.totals(NEGATED[channel])
        total = self._column(channel)
        if channel in SPREAD:
            total = total + self._shift(channel) * self.counts
        return total

    def state(self, kind: StateKind, channel: str, rank: int) -> Floats:
        """Return the state of a channel over all its tokens."""
        bad = self._bad(channel)
        if kind is MEAN:
            return np.array([self.totals(channel).sum(), self.counts.sum(), bad.sum()])
        some = self.counts > 0
        if kind is EXTREMA:
            return self._extremes(channel, some, bad, rank)
        assert kind is MOMENTS
        return self._moments(channel, some, bad)

    def _moments(self, channel: str, some: NDArray[np.bool_], bad: Floats) -> Floats:
        """Merge the sequences' squares by the distances of their means from the whole's."""
        counts = self.counts[some].astype(np.float64)
        if not len(counts):
            return MOMENTS.empty()
        totals = self.totals(channel)[some]
        around = self._column(channel)[some]
        inner = self._column(channel, "squares")[some] - around * around / counts
        means, mean = totals / counts, totals.sum() / counts.sum()
        squares = np.maximum(inner, 0.0).sum() + (counts * np.square(means - mean)).sum()
        return np.array([counts.sum(), totals.sum(), np.nan if bad.sum() else squares, bad.sum()])

    def _extremes(self, channel: str, some: NDArray[np.bool_], bad: Floats, rank: int) -> Floats:
        if not some.any():
            return EXTREMA.empty()
        low, high = self._column(channel, "min")[some].min(), self._column(channel, "max")[some].max()
        if self._column(channel, "nan").any():
            low = high = np.nan
        return np.array([low, rank, high, rank, bad.sum()])

    def _bad(self, channel: str) -> Floats:
        channel = NEGATED.get(channel, channel)
        return self._column(channel, "bad") if (channel, "bad") in COLUMNS else np.zeros(len(self.counts))

    def _shift(self, channel: str) -> Floats:
        return self._column(channel, "shift")

    def _column(self, channel: str, slot: str = "sum") -> Floats:
        return self._rows[:, COLUMNS[channel, slot]]
