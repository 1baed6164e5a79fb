"""Copies from a device: when their memory is used again, and when it must be kept."""

import gc
import threading
import time
import weakref
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch")

from barograph.base import device_copy  # noqa: E402 - after the check for torch
from barograph.base.device_copy import SIZES, DeviceCopy  # noqa: E402
from barograph.base.scalars import Deferred  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Far(torch.Tensor):
    """A tensor that says it is on a CUDA device."""

    device = torch.device("cuda", 0)


class KnownBuffer(device_copy.PinnedBuffer):
    """Memory without a device: a copy arrives when it is waited for, or the device fails."""

    made: ClassVar[list["weakref.ref[KnownBuffer]"]] = []
    fails = False

    def __init__(self, size: int) -> None:
        self.size, self.shared = size, False
        self._queued: list[tuple[torch.Tensor, torch.Tensor]] = []
        KnownBuffer.made.append(weakref.ref(self))

    def receive(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.as_subclass(torch.Tensor)
        host = torch.full_like(plain, -1)
        self._queued.append((host, plain.clone()))
        return host

    def gather(self, tensors: list[torch.Tensor], kernel: object) -> torch.Tensor:
        return self.receive(torch.stack([tensor.as_subclass(torch.Tensor) for tensor in tensors]))

    def arrived(self) -> bool:
        return not self._queued

    def wait(self) -> None:
        if KnownBuffer.fails:
            raise RuntimeError("device-side assert")
        for host, sent in self._queued:
            host.copy_(sent)
        self._queued = []


@pytest.fixture(autouse=True)
def known_buffers(monkeypatch: pytest.MonkeyPatch) -> list["weakref.ref[KnownBuffer]"]:
    """Use memory of the host, and no buffer of another test."""
    monkeypatch.setattr(device_copy, "_free", {})
    monkeypatch.setattr(device_copy, "_gathering", set())
    monkeypatch.setattr(device_copy, "PinnedBuffer", KnownBuffer)
    monkeypatch.setattr(KnownBuffer, "made", [])
    monkeypatch.setattr(KnownBuffer, "fails", False)
    return KnownBuffer.made


def reused(tensor: torch.Tensor) -> DeviceCopy:
    return DeviceCopy(tensor, reused=True)


def far(*values: float) -> torch.Tensor:
    return torch.tensor(values).as_subclass(Far)


def test_memory_is_used_again_after_the_values_were_read(known_buffers: list):
    """Rows that are logged and written one after the other need one buffer."""
    for step in range(5):
        copy = reused(far(step, 2.0))
        assert not copy.ready()
        assert copy.values() == [step, 2.0]
        assert copy.ready()
    assert len(known_buffers) == 1


def test_copies_under_way_have_their_own_memory(known_buffers: list):
    """A row that has not arrived is not overwritten by the next one."""
    copies = [reused(far(step)) for step in range(3)]
    assert [copy.values() for copy in copies] == [[0.0], [1.0], [2.0]]
    assert len(known_buffers) == 3
    again = [reused(far(step)) for step in range(3)]
    assert [copy.values() for copy in again] == [[0.0], [1.0], [2.0]]
    assert len(known_buffers) == 3


def test_values_may_be_read_twice(known_buffers: list):
    """The second time they are those of the first, also if the memory has other values by then."""
    first = reused(far(1.0))
    assert first.values() == [1.0]
    reused(far(9.0)).values()
    assert first.values() == [1.0]


def test_a_tensor_that_is_handed_out_keeps_its_memory(known_buffers: list):
    """After ``wait`` the caller has the memory itself, for as long as it likes, and it is freed with the tensor."""
    reused(far(0.0, 0.0)).values()
    host = DeviceCopy(far(1.0, 2.0)).wait()
    for _ in range(3):
        reused(far(8.0, 9.0)).values()
    assert host.tolist() == [1.0, 2.0]
    del host
    gc.collect()
    assert [buffer() is None for buffer in known_buffers] == [False, True]


def test_memory_that_a_kernel_uses_is_not_freed(known_buffers: list):
    """A row that nobody reads may be dropped before the kernel has begun; one that was read is used again."""
    gathered = DeviceCopy.gathered([far(1.0), far(2.0)], None)
    del gathered
    gc.collect()
    assert known_buffers[0]() is not None
    for _ in range(3):
        assert DeviceCopy.gathered([far(1.0), far(2.0)], None).values() == [1.0, 2.0]
    assert len(known_buffers) == 2
    assert [*device_copy._gathering] == [known_buffers[0]()]


def test_huge_copies_are_not_shared(known_buffers: list):
    """Their memory is freed with them; of each size a few buffers are kept."""
    huge = reused(torch.zeros(max(SIZES) // 4 + 1).as_subclass(Far))
    huge.wait()
    huge.release()
    gc.collect()
    assert [buffer() for buffer in known_buffers] == [None]
    small, most = next(iter(SIZES.items()))
    many = [reused(far(n)) for n in range(most + 5)]
    assert [copy.values() for copy in many] == [[float(n)] for n in range(most + 5)]
    assert {size: len(free) for (_, size), free in device_copy._free.items()} == {small: most}


def test_a_large_copy_has_its_memory_until_it_is_released(known_buffers: list):
    """The results of steps take turns in one buffer, also where their sizes differ somewhat."""
    for length in (1000, 4000, 2000):
        copy = reused(torch.full((length,), float(length)).as_subclass(Far))
        assert reused(far(0.0)).values() == [0.0]
        assert copy.wait().tolist() == [float(length)] * length
        copy.release()
    assert len(known_buffers) == 2


@pytest.mark.parametrize("shared", [True, False])
def test_memory_is_kept_after_an_error_of_the_device(known_buffers: list, shared: bool):
    """It is neither freed, which would abort the process, nor used again."""
    if shared:
        reused(far(1.0)).values()
    copy = reused(far(2.0))
    KnownBuffer.fails = True
    with pytest.raises(RuntimeError, match="device-side assert"):
        copy.values()
    del copy
    gc.collect()
    assert known_buffers[0]() is not None
    assert not any(device_copy._free.values())


def test_shared_memory_is_not_freed_when_the_process_ends(known_buffers: list):
    """An error of the device may come after the last copy, and the end of the process drops all references."""
    reused(far(1.0)).values()
    device_copy._free.clear()
    gc.collect()
    assert known_buffers[0]() is not None


@needs_cuda
def test_values_behind_a_busy_stream_arrive_in_order(monkeypatch: pytest.MonkeyPatch):
    """On a real device: many rows under way, buffers used again, tensors overwritten after each row."""
    monkeypatch.undo()
    x = torch.zeros(20, device="cuda")
    for _ in range(3):
        torch.cuda._sleep(20_000_000)
        rows = []
        for row in range(100):
            x.fill_(row)
            rows.append(Deferred(list(x.unbind())))
        assert [row.values() for row in rows] == [[float(row)] * 20 for row in range(100)]


@needs_cuda
def test_tokens_are_copied_beside_a_busy_stream(monkeypatch: pytest.MonkeyPatch):
    """A copy aside is complete although the training's stream has work for much longer."""
    monkeypatch.undo()
    tensor = torch.arange(1 << 18, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    device_copy.copied_on_side_stream(tensor)  # to pin the first memory may wait for the device
    torch.cuda._sleep(2_000_000_000)  # about a second
    event = torch.cuda.Event()
    event.record()
    host = device_copy.copied_on_side_stream(tensor)
    assert not event.query()
    assert torch.equal(host, torch.arange(1 << 18, dtype=torch.int32))


@needs_cuda
def test_a_graph_is_captured_while_another_thread_waits_for_copies(monkeypatch: pytest.MonkeyPatch):
    """CUDA would end the capture of the training with an error."""
    monkeypatch.undo()
    x, tokens = torch.ones(20, device="cuda"), torch.arange(8, device="cuda")
    device_copy.copied_on_side_stream(tokens)
    stops, asked, problems = threading.Event(), [0], []

    def ask() -> None:
        try:
            while not stops.wait(0.001):
                with device_copy.relaxed_capture_mode():
                    logged.ready()
                device_copy.copied_on_side_stream(tokens)
                asked[0] += 1
        except RuntimeError as problem:
            problems.append(problem)

    logged = Deferred(list(x.unbind()))
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        while not asked[0] and not problems:
            time.sleep(0.01)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            before = asked[0]
            y = x * 2
            while asked[0] < before + 20 and not problems:
                time.sleep(0.01)
    finally:
        stops.set()
        thread.join()
    assert problems == []
    graph.replay()
    assert y.tolist() == [2.0] * 20
