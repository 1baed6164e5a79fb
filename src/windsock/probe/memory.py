"""Memory readings: host memory of this process, and device memory with a peak for every open phase.

An allocator records one peak per device. Phases nest and overlap, so a reading is folded into the peaks of all open
phases before the allocator's peak is reset for one of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from windsock.probe.devices import AllocatorStats, Device

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
ON_LINUX = Path("/proc/self/statm").exists()


class HostReading(NamedTuple):
    """Memory of a process in bytes: resident set and address space."""

    rss: int
    vms: int


class StatmFile:
    """The file ``/proc/self/statm``, kept open: reading it costs a third of opening and reading it.

    It is opened again after a fork, where the descriptor still refers to the parent, and where other code has closed
    the descriptor or reused its number.
    """

    FIELDS = 7

    def __init__(self) -> None:
        self._process = self._file = -1

    def fields(self) -> list[bytes]:
        """Read the counts of pages."""
        if self._process == os.getpid():
            with suppress(OSError):
                found = os.pread(self._file, 128, 0).split()
                if len(found) == self.FIELDS and b"".join(found).isdigit():
                    return found
        # The old descriptor is not closed: its number may be that of another file by now.
        self._file, self._process = os.open("/proc/self/statm", os.O_RDONLY), os.getpid()
        return os.pread(self._file, 128, 0).split()


_statm = StatmFile()


def host_memory() -> HostReading:
    """Read the memory of this process."""
    if not ON_LINUX:
        return _by_psutil(children=False)
    fields = _statm.fields()
    return HostReading(int(fields[1]) * PAGE, int(fields[0]) * PAGE)


def host_memory_with_children() -> HostReading:
    """Read the memory of this process and its descendants; shared pages count once per process."""
    return _by_psutil(children=True)


def _by_psutil(children: bool) -> HostReading:
    import psutil

    rss = vms = 0
    own = psutil.Process()
    for process in (own, *(own.children(recursive=True) if children else ())):
        try:
            info = process.memory_info()
        except psutil.Error:  # the process has exited
            continue
        rss, vms = rss + info.rss, vms + info.vms
    return HostReading(rss, vms)


def host_used() -> int:
    """Return the host's memory in use in bytes: total minus available."""
    if ON_LINUX:
        # The first lines have the form "MemTotal:  1234 kB".
        fields = Path("/proc/meminfo").read_bytes()[:256].split()
        found = dict(zip(fields[::3], fields[1::3], strict=False))
        if b"MemTotal:" in found and b"MemAvailable:" in found:
            return (int(found[b"MemTotal:"]) - int(found[b"MemAvailable:"])) * 1024
    import psutil

    memory = psutil.virtual_memory()
    return int(memory.total - memory.available)


class DeviceMemory(NamedTuple):
    """Memory of one device at one moment of a phase: current values, and peaks since the phase was entered."""

    allocated: int
    reserved: int
    max_allocated: int | None
    max_reserved: int | None


class MemoryPeaks:
    """Peaks of one open phase by device, and the peaks during its execute stage (``work``)."""

    __slots__ = ("by_device", "work", "working")

    def __init__(self) -> None:
        self.by_device: dict[int, tuple[int, int]] = {}
        self.work: dict[int, int] = {}
        self.working = False

    def fold(self, device: int, allocated: int, reserved: int) -> None:
        """Raise the peaks to an allocator's values."""
        known = self.by_device.get(device, (0, 0))
        self.by_device[device] = max(known[0], allocated), max(known[1], reserved)
        if self.working:
            self.work[device] = max(self.work.get(device, 0), allocated)


class MemoryMeter:
    """Reads the devices and maintains the peaks of all open phases.

    It is thread-safe: the allocator peaks that it resets are shared by all threads of the process.
    """

    def __init__(self, devices: Callable[[], Sequence[Device]]) -> None:
        self._devices = devices
        # Re-entrant: a signal handler may end the run in the middle of a reading.
        self._lock = threading.RLock()
        self._open_peaks: dict[int, MemoryPeaks] = {}

    def enter(self, peaks: MemoryPeaks) -> dict[int, DeviceMemory]:
        """Read the devices and start a phase's peaks."""
        with self._lock:
            # Read before the phase is added: the allocator's peak so far belongs to the phases that are open already.
            memory = self._read(peaks, reset=True)
            self._open_peaks[id(peaks)] = peaks
        return memory

    def read(self, peaks: MemoryPeaks) -> dict[int, DeviceMemory]:
        """Read the devices in the middle of a phase."""
        with self._lock:
            return self._read(peaks, reset=False)

    def begin_work(self, peaks: MemoryPeaks) -> dict[int, DeviceMemory]:
        """Read the devices and start the peaks of the execute stage."""
        with self._lock:
            memory = self._read(peaks, reset=True)
            peaks.working = True
            peaks.work = {n: one.allocated for n, one in memory.items() if one.max_allocated is not None}
        return memory

    def end_work(self, peaks: MemoryPeaks) -> dict[int, DeviceMemory]:
        """Read the devices and end the peaks of the execute stage."""
        with self._lock:
            memory = self._read(peaks, reset=False)
            peaks.working = False
        return memory

    def restart(self, peaks: MemoryPeaks) -> dict[int, DeviceMemory]:
        """Read the devices and start the peaks again."""
        with self._lock:
            memory = self._read(peaks, reset=True)
            # Peaks start at the current memory, which a step takes over from the one before.
            peaks.by_device = {device: (one.allocated, one.reserved) for device, one in memory.items()}
        return memory

    def leave(self, peaks: MemoryPeaks) -> None:
        """Remove a phase."""
        with self._lock:
            self._open_peaks.pop(id(peaks), None)

    def _read(self, peaks: MemoryPeaks, reset: bool) -> dict[int, DeviceMemory]:
        return {device.index: self._read_one(device, peaks, reset) for device in self._devices()}

    def _read_one(self, device: Device, peaks: MemoryPeaks, reset: bool) -> DeviceMemory:
        reading = device.read()
        if reading.peak_allocated is None or reading.peak_reserved is None:
            return DeviceMemory(reading.allocated, reading.reserved, None, None)
        # Order matters: the peak must reach all open phases before it is reset.
        self._fold(device.index, reading, self._open_peaks.values())
        if reset:
            device.reset_peaks()
        if id(peaks) not in self._open_peaks:  # a phase that is being entered: its peak starts at the current memory
            peaks.fold(device.index, reading.allocated, reading.reserved)
        return DeviceMemory(reading.allocated, reading.reserved, *peaks.by_device[device.index])

    @staticmethod
    def _fold(device: int, reading: AllocatorStats, all_peaks: Iterable[MemoryPeaks]) -> None:
        assert reading.peak_allocated is not None
        assert reading.peak_reserved is not None
        for peaks in all_peaks:
            peaks.fold(device, reading.peak_allocated, reading.peak_reserved)
