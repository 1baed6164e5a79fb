"""The interface to accelerators, with back ends that mimic torch's."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from barograph.recording.probe import devices
from barograph.recording.probe.devices import Accelerators, AllocatorStats, MpsDevice, TorchDevice


class Backend:
    """Mimic of ``torch.cuda`` with two devices, one of them in use."""

    def __init__(self) -> None:
        self.held = {0: 0, 1: 500}
        self.reset: list[int] = []
        self.memory = SimpleNamespace(
            memory_stats_as_nested_dict=self._statistics, reset_peak_memory_stats=self.reset.append
        )

    def _statistics(self, device: int) -> dict[str, Any]:
        def of(size: int) -> dict[str, Any]:
            return {"all": {"current": size, "peak": 2 * size, "allocated": 0, "freed": 0}}

        return {"allocated_bytes": of(self.held[device]), "reserved_bytes": of(10 * self.held[device])}

    def get_device_properties(self, device: int) -> Any:
        return SimpleNamespace(name="NVIDIA H200", uuid=f"uuid-{device}", total_memory=10_000)

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return 1

    def is_initialized(self) -> bool:
        return True


def test_a_reading_is_one_call_for_the_statistics(monkeypatch: pytest.MonkeyPatch):
    """It has current and peak values, allocated and reserved; a reset affects one device only."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    backend = Backend()
    device = TorchDevice("cuda", backend, 1)
    assert device.read() == AllocatorStats(500, 5000, 1000, 10_000)
    device.reset_peaks()
    assert backend.reset == [1]
    assert (device.index, device.name, device.uuid, device.total) == (7, "NVIDIA H200", "uuid-1", 10_000)


def test_only_devices_in_use_are_read(monkeypatch: pytest.MonkeyPatch):
    """These are the current device and those with allocated memory; a forked child drops them."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    backend = Backend()
    monkeypatch.setattr(devices, "_backend", lambda: ("cuda", backend))
    accelerators = Accelerators()
    assert [device.index for device in accelerators.devices()] == [1]
    backend.held[0] = 5
    assert [device.index for device in accelerators.devices()] == [1]
    assert [device.index for device in accelerators.refresh()] == [0, 1]
    monkeypatch.setattr(devices, "_backend", lambda: ("", None))
    accelerators.after_fork_in_child()
    assert list(accelerators.devices()) == []


def test_an_unused_allocator_reads_zero():
    """Its statistics are empty."""
    backend = Backend()
    backend.memory.memory_stats_as_nested_dict = lambda device: {}
    assert TorchDevice("cuda", backend, 0).read() == AllocatorStats(0, 0, 0, 0)


def test_the_initialised_back_end_is_found(monkeypatch: pytest.MonkeyPatch):
    """It is found for each back end of torch, and none is initialised by the probe."""
    idle = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=idle, npu=Backend()))
    assert devices._backend()[0] == "npu"
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=idle))
    assert devices._backend() == ("", None)


def test_apples_device_has_no_peaks():
    """Its allocator records none, so they are missing."""
    torch = SimpleNamespace(mps=SimpleNamespace(current_allocated_memory=lambda: 7, driver_allocated_memory=lambda: 9))
    device = MpsDevice(torch)
    assert device.read() == AllocatorStats(7, 9, None, None)
    assert device.total is None
    device.reset_peaks()
