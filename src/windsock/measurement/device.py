"""Measure batches on an accelerator: one pass there and one small copy to the host per step, without waiting.

``Launches.add`` queues the pass over a batch's tensors and returns at once. ``Launches.collect`` copies the results of
all passes to the host together; there ``DeviceSelection`` computes the metrics from the statistics of each sequence.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windsock.device_copy.copies import DeviceCopy
from windsock.errors import without_frames
from windsock.measurement import kernel_pass, torch_pass
from windsock.measurement.batch import Batch
from windsock.measurement.device_rows import DeviceRows
from windsock.measurement.device_selection import DeviceSelection, Fetched, selection_of
from windsock.measurement.plan import Plan
from windsock.measurement.result_memory import ResultMemory
from windsock.measurement.token_rows import Request, TokenRows
from windsock.measurement.torch_pass import TorchResults
from windsock.stats.rows import Table


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
        self, batch: Batch, plan: Plan, tokens: TokenRows | None = None, request: Request | None = None
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
                    rows = kernel_pass.launch(kernels, batch, plan, memory, completed, request)
                except Exception as problem:  # noqa: BLE001 - the metrics do not need the tokens
                    unable.append(without_frames(problem))
                else:
                    return rows if rows is None or not rows.is_urgent or _try_choice(rows, memory) else None
            try:
                kernel_pass.launch(kernels, batch, plan, memory)
                return None
            except Exception as problem:  # noqa: BLE001 - a missing compiler, an old driver, …: torch measures as well
                _tell_broken(problem)
        self._by_torch.append(torch_pass.launch(batch, plan))
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
            kernel_pass.choose_waiting(rows, memory)
            return True
    except Exception as problem:  # noqa: BLE001 - the metrics do not need the tokens
        unable.append(without_frames(problem))
    memory.rows.remove(rows)
    return False


def _alike(fetched: Iterable[Fetched]) -> Iterable[list[Fetched]]:
    """Return the results with the same plan and table together."""
    found: dict[tuple[Plan, Table], list[Fetched]] = {}
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
        return importlib.import_module("windsock.stats.rows_triton")
    except ImportError:
        return None


def _tell_broken(problem: Exception) -> None:
    if not _broken:
        print(f"windsock: Triton kernels failed, measuring with torch instead: {problem}", file=sys.stderr)
    _broken.append(without_frames(problem))


_broken: list[Exception] = []
"""The failure of the kernels; after it they are not tried again in this process."""
unable: list[Exception] = []
"""The same of the choice of sequences."""
