"""Copies between an accelerator and the host that nothing waits for.

`triton_kernels` starts kernels with little work on the host, and has the one that reads scalars.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any


def moved_to(device: Any, values: Any) -> Any:
    """Return values as a tensor on a device, without waiting: the copy from the host is from pinned memory."""
    import torch

    tensor = torch.as_tensor(values)
    if tensor.device == torch.device(device) or torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


SIZES = {1 << 10: 64, 1 << 18: 2, 1 << 20: 2, 1 << 22: 2, 1 << 24: 2}
"""Sizes of the buffers that copies share, and how many of each wait for their next use, by device.

To pin memory and to create an event take longer than to copy.
"""

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

MAX_VIEWS = 16  # of a buffer: the shapes of logged scalars are always the same

_free: dict[tuple[int, int], list[PinnedBuffer]] = {}
"""Shared buffers by the index of their device, whose events they have, and by size. They are never freed."""

_gathering: set[PinnedBuffer] = set()
"""Buffers that a kernel uses. PyTorch knows of its own copies only, and would let others use memory that is freed."""


class PinnedBuffer:
    """Memory on the host to which a device copies without blocking its stream, and the event of the last copy."""

    def __init__(self, size: int) -> None:
        import torch

        self.size = size
        self.shared = False  # kept for further copies
        self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self._event = torch.cuda.Event()
        self._views: dict[Any, Any] = {}
        self._halves: Any = None  # of a buffer that gathers: as tensors, the memory of the first, and its address
        self._stream: tuple[int, Any] = (-1, None)  # the last one, and its number

    def receive(self, tensor: Any) -> Any:
        """Queue a copy of a tensor on the current stream of its device; return the tensor in which it arrives."""
        key = tensor.dtype, tensor.shape
        host = self._views.get(key)
        if host is None:
            if len(self._views) >= MAX_VIEWS:
                self._views.clear()
            host = self._views[key] = self._memory[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        host.copy_(tensor, non_blocking=True)
        # An event of this stream: to synchronise the device would wait for the training's other streams too.
        self._event.record(self._current_stream(tensor.device))
        return host

    def gather(self, tensors: Sequence[Any], kernel: Any) -> Any:
        """Queue a kernel that reads scalars of one device and dtype; return the tensor in which they arrive.

        It reads their addresses from the first half of this memory, and writes numbers into the second half.
        """
        import torch

        half, count, device = self.size // 2, len(tensors), tensors[0].device
        if self._halves is None:
            addresses, results = self._memory[:half].view(torch.int64), self._memory[half:].view(torch.float64)
            self._halves = addresses, results, addresses.numpy().data.cast("B"), addresses.data_ptr()
        addresses, results, memory, address = self._halves
        _addresses(count).pack_into(memory, 0, *[tensor.data_ptr() for tensor in tensors])
        stream, number = self._current_stream(device), self._stream[0]
        with current_device(device.index):
            kernel(
                device.index,
                (1, 1, 1),
                None if number < 0 else number,
                (address, address + half, count),
                lambda: (addresses, results, count),
            )
        self._event.record(stream)
        host = self._views.get(count)
        if host is None:
            host = self._views[count] = results[:count]
        return host

    def _current_stream(self, device: Any) -> Any:
        """Return the current stream. To make an object of it takes longer than to record the event."""
        import torch

        number = current_stream(device)
        if number is None or number != self._stream[0]:
            self._stream = (-1 if number is None else number, torch.cuda.current_stream(device))
        return self._stream[1]

    def arrived(self) -> bool:
        """Return whether the last copy is complete."""
        return bool(self._event.query())

    def wait(self) -> None:
        """Wait for the last copy."""
        self._event.synchronize()


def current_stream(device: Any) -> int | None:
    """Return the number of a device's current stream; None where this version of PyTorch does not tell it."""
    import torch

    if device.type != "cuda":
        return 0
    ask = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return None if ask is None else int(ask(device.index))


@cache
def _addresses(count: int) -> struct.Struct:
    return struct.Struct(f"={count}q")


_HERE = nullcontext()


def current_device(index: int | None) -> Any:
    """Return a context in which a CUDA device is the current one."""
    if index is None or _is_only_device():
        return _HERE
    import torch

    return _HERE if torch.cuda.current_device() == index else torch.cuda.device(index)


@cache
def _is_only_device() -> bool:
    import torch

    return bool(torch.cuda.device_count() == 1)


class DeviceCopy:
    """A copy of a tensor to the host, queued on the current stream; later kernels may overwrite the tensor.

    ``reused`` is for many copies that are read soon: they take turns in the same memory. The next one gets it after
    ``values``, or after ``release``.
    """

    def __init__(self, tensor: Any, *, reused: bool = False) -> None:
        import torch

        self._buffer: PinnedBuffer | None = None
        self._values: list[Any] | None = None
        self._free: list[PinnedBuffer] | None = None  # where the buffer comes from
        device = tensor.device
        if device.type != "cuda":
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype)
            self._host.copy_(tensor, non_blocking=True)
            return
        size = next((size for size in SIZES if tensor.nbytes <= size), None) if reused else None
        if size is None:
            self._receive(PinnedBuffer(tensor.nbytes), lambda buffer: buffer.receive(tensor))
        else:
            self._receive(self._taken(device, size), lambda buffer: buffer.receive(tensor))

    @classmethod
    def gathered(cls, tensors: Sequence[Any], kernel: Any) -> DeviceCopy:
        """Return a copy of a few scalars of one device and dtype, as numbers.

        The kernel reads them at their addresses and writes to the host's memory, which takes the host less time than to
        stack and copy them.
        """
        copy = cls.__new__(cls)
        copy._values = None
        buffer = copy._taken(tensors[0].device, min(SIZES))
        _gathering.add(buffer)
        copy._receive(buffer, lambda buffer: buffer.gather(tensors, kernel))
        return copy

    def _receive(self, buffer: PinnedBuffer, receive: Callable[[PinnedBuffer], Any]) -> None:
        self._buffer = buffer
        self._host = _kept_on_error(buffer, receive)

    def ready(self) -> bool:
        """Return whether the values are on the host, without waiting."""
        return self._buffer is None or bool(_kept_on_error(self._buffer, PinnedBuffer.arrived))

    def wait(self) -> Any:
        """Return the tensor on the host, waiting for the device if necessary."""
        if self._buffer is not None:
            _kept_on_error(self._buffer, PinnedBuffer.wait)
        return self._host

    def values(self) -> list[Any]:
        """Return the elements as numbers, waiting if necessary; then other copies may use the memory."""
        if self._values is None:
            self._values = self.wait().flatten().tolist()
            self.release()
        return self._values

    def release(self) -> None:
        """Let other copies use the memory: the tensor that ``wait`` returned must not be used any more."""
        buffer, self._buffer, self._host = self._buffer, None, None
        if buffer is None or self._free is None:
            return
        _gathering.discard(buffer)
        if not buffer.shared:
            if len(self._free) >= SIZES[buffer.size]:
                return
            _keep(buffer)  # also at the end of the process, which would free it after an error of the device
            buffer.shared = True
        self._free.append(buffer)

    def _taken(self, device: Any, size: int) -> PinnedBuffer:
        self._free = _free.setdefault((device.index, size), [])
        try:
            return self._free.pop()  # atomic: no other thread gets the same
        except IndexError:
            return PinnedBuffer(size)


def copied_on_side_stream(tensor: Any) -> Any:
    """Return a copy on the host of a tensor that nothing writes to any more, without waiting for the training's work.

    For another thread than the training's: it waits for the copy.
    """
    if tensor.device.type != "cuda":
        return tensor.clone()
    import torch

    with relaxed_capture_mode(), torch.cuda.stream(_side_stream(tensor.device)):
        copy = DeviceCopy(tensor, reused=True)  # of memory that is not pinned, the copy may wait for other streams
        host = copy.wait().clone()
        copy.release()
    return host


@cache
def _side_stream(device: Any) -> Any:
    import torch

    return torch.cuda.Stream(device)


@contextmanager
def relaxed_capture_mode() -> Iterator[None]:
    """Let this thread wait for a device while another one captures a CUDA graph, which would fail otherwise.

    CUDA forbids calls such as the query of an event to all threads while one of them captures, unless their mode is
    "relaxed".
    """
    exchange, mode = _capture_mode_exchange(), ctypes.c_int(RELAXED)
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


@cache
def _capture_mode_exchange() -> Callable[[Any], Any]:
    """Return CUDA's function that exchanges the mode of this thread; without CUDA, one that does nothing."""
    try:
        found: Callable[[Any], Any] = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return lambda mode: None
    return found


def _kept_on_error(buffer: PinnedBuffer, use: Callable[[PinnedBuffer], Any]) -> Any:
    """Use a buffer; after an error of the device it is kept."""
    try:
        return use(buffer)
    except Exception:
        _keep(buffer)
        raise


def _keep(buffer: PinnedBuffer) -> None:
    """Keep a buffer until the process ends.

    PyTorch records an event when it frees pinned memory. After an error of the device that raises, and an exception in
    a destructor aborts the process before anybody sees the training's own error. A reference that is never given back
    keeps the memory.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))
