"""Measure batches on an accelerator: one pass there and one small copy to the host per step, without waiting.

``launch`` queues the pass over a batch's tensors and returns at once. ``collect`` copies the results of several
launches to the host together; the host computes the metrics from the statistics of each sequence.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.device_copy import DeviceCopy
from windsock.measurement.batch import FIELDS, SEQUENCE_FIELDS, TOKEN_FIELDS, Batch
from windsock.measurement.options import Options, given
from windsock.measurement.selection import Selection
from windsock.states import EXTREMA, MEAN, MOMENTS, StateKind
from windsock.stats.channels import CHANNELS, Tokens, arrays_of, wanted
from windsock.stats.rows import COLUMNS, WIDTH, moved_to, owners, torch_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def on_device(batch: Batch) -> bool:
    """Return whether the batch is on an accelerator."""
    torch = sys.modules.get("torch")
    mask = batch.response_mask
    return torch is not None and isinstance(mask, torch.Tensor) and mask.device.type not in ("cpu", "meta")


def outline(batch: Batch) -> Any:
    """Return the batch without its tensors, which must not be in memory until the step ends.

    An array is None, or True where it is given; arrays of the sequences that are on the host are included.
    """
    given_arrays = batch.given
    flags: dict[str, Any] = {name: True if name in given_arrays else None for name in FIELDS}
    on_host = {name: getattr(batch, name) for name in SEQUENCE_FIELDS if _on_host(getattr(batch, name))}
    return SimpleNamespace(**{**flags, **on_host, "given": given_arrays, "sequences": batch.sequences})


def _on_host(value: Any) -> bool:
    device = getattr(value, "device", None)
    return value is not None and getattr(device, "type", "cpu") == "cpu"


@dataclass(slots=True)
class Launched:
    """A queued pass: the tensors of its results, and the host's data to finish it."""

    batch: Any  # from ``outline``
    parts: tuple[str, ...]
    options: Options
    rows: Any
    sequences: dict[str, Any] = field(default_factory=dict)  # arrays of the sequences that are on the device


def launch(batch: Batch, parts: tuple[str, ...], options: Options) -> Launched:
    """Queue the pass over a batch. This never waits for the device."""
    channels = wanted(parts, given(batch.given, options))
    rows = _by_kernel(batch, channels, options)
    if rows is None:
        rows = _by_torch(batch, channels, options)
    return Launched(outline(batch), parts, options, rows, _device_sequences(batch))


def collect(launched: Sequence[Launched]) -> list[DeviceSelection]:
    """Copy the results of launches to the host together, and wait for them."""
    pieces = [(one, name, tensor) for one in launched for name, tensor in [("", one.rows), *one.sequences.items()]]
    fetched = _fetch([tensor for _, _, tensor in pieces])
    by_launch: dict[int, dict[str, NDArray[Any]]] = {}
    for (one, name, _), array in zip(pieces, fetched, strict=True):
        by_launch.setdefault(id(one), {})[name] = array
    return [DeviceSelection(one, by_launch[id(one)]) for one in launched]


def _fetch(tensors: Sequence[Any]) -> list[NDArray[Any]]:
    """Copy tensors to the host as one run of bytes."""
    import torch

    flat = [
        tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
        for tensor in tensors
    ]
    data, place, arrays = DeviceCopy(torch.cat(flat)).wait().numpy(), 0, []
    for tensor, piece in zip(tensors, flat, strict=True):
        kind = np.dtype(str(tensor.dtype).removeprefix("torch."))
        arrays.append(data[place : place + len(piece)].view(kind).reshape(tuple(tensor.shape)))
        place += len(piece)
    return arrays


@cache
def _kernels(device: str) -> ModuleType | None:
    """Return the module of Triton kernels, or None for a device or an installation without Triton."""
    if device != "cuda":
        return None
    try:
        return importlib.import_module("windsock.stats.rows_triton")
    except ImportError:
        return None


def _by_kernel(batch: Batch, channels: frozenset[str], options: Options) -> Any | None:
    """Launch the kernels; return None where there are none, or where they cannot be compiled."""
    kernels = _kernels(batch.response_mask.device.type)
    if kernels is None or _broken:
        return None
    try:
        return _launch_kernels(kernels, batch, channels, options)
    except Exception as problem:  # noqa: BLE001 - a missing compiler, an old driver, …: torch measures as well
        _broken.append(problem)
        print(f"windsock: Triton kernels failed, measuring with torch instead: {problem}", file=sys.stderr)
        return None


_broken: list[Exception] = []
"""The failure of the kernels; after it they are not tried again in this process."""


def _launch_kernels(kernels: ModuleType, batch: Batch, channels: frozenset[str], options: Options) -> Any:
    # The kernels compute addresses from the width alone.
    mask = batch.response_mask.contiguous()
    needed = arrays_of(channels, given(batch.given, options))
    tensors = {name: getattr(batch, name).detach().contiguous() for name in TOKEN_FIELDS if name in needed}
    keep = None if batch.keep is None else moved_to(mask.device, batch.keep).contiguous()
    eos = moved_to(mask.device, batch.eos_ids).reshape(-1) if "eos_ids" in needed else None
    bounds = None if batch.cu_seqlens is None else batch.cu_seqlens.contiguous()
    return kernels.rows(tensors, mask, keep, bounds, eos, channels, options)


def _by_torch(batch: Batch, channels: frozenset[str], options: Options) -> Any:
    import torch

    response = batch.response_mask.bool()
    valid, bounds = response, batch.cu_seqlens
    if batch.keep is not None:
        keep = moved_to(response.device, batch.keep).bool()
        if keep.shape == (batch.sequences,):
            keep = keep[:, None] if bounds is None else keep[owners(bounds, len(response))]
        valid = response & keep

    def read(mask: Any, name: str) -> Any:
        if name == "eos_ids":
            return moved_to(response.device, batch.eos_ids).reshape(-1)
        # Selected, not multiplied: padding may be NaN, and 0 times NaN is NaN.
        return torch.where(mask, getattr(batch, name).detach().double(), 0.0)

    tokens = {
        of_response: Tokens(partial(read, mask), options, keep=False)
        for of_response, mask in ((False, valid), (True, response))
    }
    compute = {
        name: partial(getattr, tokens[CHANNELS[name].of_response], name)
        for name in channels
        if not CHANNELS[name].combines
    }
    return torch_rows(compute, valid, response, bounds)


def _device_sequences(batch: Batch) -> dict[str, Any]:
    """Return the arrays of sequences that are on the device, in dtypes that NumPy has."""
    import torch

    found = {}
    for name in SEQUENCE_FIELDS:
        value = getattr(batch, name)
        if isinstance(value, torch.Tensor) and value.device == batch.response_mask.device:
            found[name] = value.detach().double() if value.is_floating_point() else value.long()
    return found


class DeviceSelection(Selection):
    """A batch measured on a device: the statistics of its sequences."""

    def __init__(self, launched: Launched, fetched: dict[str, NDArray[Any]]) -> None:
        self.batch = launched.batch
        self.options = launched.options
        self.parts = launched.parts
        self._rows = fetched.pop("").astype(np.float64).reshape(-1, WIDTH)
        self._fetched = fetched
        self.counts = self._column("valid").astype(np.int64)
        self.response_lengths = self._column("response").astype(np.int64)

    def sequence(self, name: str) -> NDArray[Any]:
        """Return an array of the sequences."""
        return self._fetched[name] if name in self._fetched else super().sequence(name)

    def totals(self, channel: str) -> Floats:
        """Return the sum of a channel per sequence."""
        combined = CHANNELS[channel].combines
        if combined:
            return sum((factor * self.totals(other) for other, factor in combined.items()), self._zeros())
        total = self._column(channel)
        if CHANNELS[channel].nan_of is not None:
            total = np.where(self.nonfinite(channel) > 0, np.nan, total)
        # The device sums distances to the shift: add it again for every token.
        if CHANNELS[channel].statistics == "spread":
            total = total + self._column(channel, "shift") * self.counts
        return total

    def state(self, kind: StateKind, channel: str, rank: int) -> Floats:
        """Return the state of a channel over all its tokens."""
        bad = self.nonfinite(channel)
        if kind is MEAN:
            return np.array([self.totals(channel).sum(), self.counts.sum(), bad.sum()])
        some = self.counts > 0
        if kind is EXTREMA:
            return self._extremes(channel, some, bad, rank)
        assert kind is MOMENTS
        return self._moments(channel, some, bad)

    def _moments(self, channel: str, some: NDArray[np.bool_], bad: Floats) -> Floats:
        """Return the moments of all tokens: the squares within sequences and between their means."""
        counts = self.counts[some].astype(np.float64)
        if not len(counts):
            return MOMENTS.empty()
        totals = self.totals(channel)[some]
        around = self._column(channel)[some]
        # The merge of MOMENTS, for all sequences at once.
        inner = self._column(channel, "squares")[some] - around * around / counts  # may round to below 0
        means, mean = totals / counts, totals.sum() / counts.sum()
        squares = np.maximum(inner, 0.0).sum() + (counts * np.square(means - mean)).sum()
        return np.array([counts.sum(), totals.sum(), np.nan if bad.sum() else squares, bad.sum()])

    def _extremes(self, channel: str, some: NDArray[np.bool_], bad: Floats, rank: int) -> Floats:
        if not some.any():
            return EXTREMA.empty()
        low, high = self._column(channel, "min")[some].min(), self._column(channel, "max")[some].max()
        # The kernel's extremes pass over NaN; a column of its own says whether there was one.
        if self._column(channel, "nan").any():
            low = high = np.nan
        return np.array([low, rank, high, rank, bad.sum()])

    def nonfinite(self, channel: str) -> Floats:
        """Return the number of values of each sequence that are not finite; conditions are NaN or finite."""
        if (inputs := CHANNELS[channel].nan_of) is not None:
            return self._column(inputs, "nan")
        if CHANNELS[channel].combines:
            return sum((self.nonfinite(other) for other in CHANNELS[channel].combines), self._zeros())
        return self._column(channel, "bad") if (channel, "bad") in COLUMNS else self._zeros()

    def _zeros(self) -> Floats:
        return np.zeros(len(self.counts))

    def _column(self, channel: str, slot: str = "sum") -> Floats:
        return self._rows[:, COLUMNS[channel, slot]]
