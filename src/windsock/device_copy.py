"""Copies from an accelerator to the host that nothing waits for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class DeviceCopy:
    """A copy of a tensor to the host, queued on the current stream; later kernels may overwrite the tensor."""

    def __init__(self, tensor: Any) -> None:
        import torch

        on_cuda = tensor.device.type == "cuda"
        # Only a copy to pinned memory does not block the stream.
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_cuda)
        self._arrived: Any = None
        with self._kept_after_error():
            self._host.copy_(tensor, non_blocking=True)
            if on_cuda:
                # An event of this stream: to synchronise the device would wait for the training's other streams too.
                self._arrived = torch.cuda.Event()
                self._arrived.record(torch.cuda.current_stream(tensor.device))

    def ready(self) -> bool:
        """Return whether the values are on the host, without waiting."""
        with self._kept_after_error():
            return self._arrived is None or bool(self._arrived.query())

    def wait(self) -> Any:
        """Return the tensor on the host, waiting for the device if necessary."""
        with self._kept_after_error():
            if self._arrived is not None:
                self._arrived.synchronize()
            return self._host

    @contextmanager
    def _kept_after_error(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            # PyTorch records an event when it frees pinned memory. After an error of the device that raises, and an
            # exception in a destructor aborts the process before anybody sees the training's own error. A reference
            # that is never given back keeps the memory until the process ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._host))
            raise
