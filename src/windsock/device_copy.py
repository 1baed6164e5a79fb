"""Copies from an accelerator to the host that nothing waits for."""

from __future__ import annotations

import ctypes
from typing import Any

SMALL_BYTES = 1024
"""Size of the buffers that copies share: to pin memory and to create an event take longer than a small copy."""
MAX_FREE = 64  # shared buffers of a device that wait for their next use

_free: dict[int, list[PinnedBuffer]] = {}
"""Shared buffers by the index of their device, whose events they have. They are never freed."""


class PinnedBuffer:
    """Memory on the host to which a device copies without blocking its stream, and the event of the last copy."""

    def __init__(self, size: int) -> None:
        import torch

        self.size = size
        self.shared = False  # kept for further copies
        self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self._event = torch.cuda.Event()
        self._views: dict[Any, Any] = {}

    def receive(self, tensor: Any) -> Any:
        """Queue a copy of a tensor on the current stream of its device; return the tensor in which it arrives."""
        import torch

        key = tensor.dtype, tensor.shape
        host = self._views.get(key)
        if host is None:
            host = self._views[key] = self._memory[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        host.copy_(tensor, non_blocking=True)
        # An event of this stream: to synchronise the device would wait for the training's other streams too.
        self._event.record(torch.cuda.current_stream(tensor.device))
        return host

    def arrived(self) -> bool:
        """Return whether the last copy is complete."""
        return bool(self._event.query())

    def wait(self) -> None:
        """Wait for the last copy."""
        self._event.synchronize()


class DeviceCopy:
    """A copy of a tensor to the host, queued on the current stream; later kernels may overwrite the tensor.

    ``reused`` is for many small copies whose ``values`` are read: they take turns in the same memory.
    """

    def __init__(self, tensor: Any, *, reused: bool = False) -> None:
        import torch

        self._buffer: PinnedBuffer | None = None
        self._values: list[Any] | None = None
        self._reused = reused and tensor.nbytes <= SMALL_BYTES
        device = tensor.device
        if device.type != "cuda":
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype)
            self._host.copy_(tensor, non_blocking=True)
            return
        self._free = _free.setdefault(device.index, [])
        self._buffer = self._taken() if self._reused else PinnedBuffer(tensor.nbytes)
        try:
            self._host = self._buffer.receive(tensor)
        except Exception:
            _keep(self._buffer)
            raise

    def ready(self) -> bool:
        """Return whether the values are on the host, without waiting."""
        if self._buffer is None:
            return True
        try:
            return self._buffer.arrived()
        except Exception:
            _keep(self._buffer)
            raise

    def wait(self) -> Any:
        """Return the tensor on the host, waiting for the device if necessary."""
        if self._buffer is not None:
            try:
                self._buffer.wait()
            except Exception:
                _keep(self._buffer)
                raise
        return self._host

    def values(self) -> list[Any]:
        """Return the elements as numbers, waiting if necessary; then other copies may use the memory."""
        if self._values is None:
            self._values = self.wait().flatten().tolist()
            buffer, self._buffer, self._host = self._buffer, None, None
            if buffer is not None and self._reused:
                self._give_back(buffer)
        return self._values

    def _give_back(self, buffer: PinnedBuffer) -> None:
        if not buffer.shared:
            if len(self._free) >= MAX_FREE:
                return
            _keep(buffer)  # also at the end of the process, which would free it after an error of the device
            buffer.shared = True
        self._free.append(buffer)

    def _taken(self) -> PinnedBuffer:
        try:
            return self._free.pop()  # atomic: no other thread gets the same
        except IndexError:
            return PinnedBuffer(SMALL_BYTES)


def _keep(buffer: PinnedBuffer) -> None:
    """Keep a buffer until the process ends.

    PyTorch records an event when it frees pinned memory. After an error of the device that raises, and an exception in
    a destructor aborts the process before anybody sees the training's own error. A reference that is never given back
    keeps the memory.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))
