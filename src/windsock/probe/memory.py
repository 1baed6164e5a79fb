"""What is held: host memory of this process, and device memory with a peak for every open phase.

An allocator keeps one peak per device. Phases nest and run side by side, so each reading is folded into every phase
that is open before the counter is reset for one of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from windsock.probe.devices import Device, Reading

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
ON_LINUX = Path("/proc/self/statm").exists()


class HostReading(NamedTuple):
    """Memory of a process in bytes: what lies in RAM, and its address space."""

    rss: int
    vms: int


class Statm:
    """What the kernel says of this process's memory, kept open: that is a third of the cost.

    After a fork the open file would tell of the parent, and somebody may have closed it and opened another in its
    place: then it is opened anew.
    """

    FIELDS = 7

    def __init__(self) -> None:
        self._process = self._file = -1

    def fields(self) -> list[bytes]:
        """Read the numbers of pages."""
        if self._process == os.getpid():
            with suppress(OSError):
                found = os.pread(self._file, 128, 0).split()
                if len(found) == self.FIELDS and b"".join(found).isdigit():
                    return found
        self._file, self._process = os.open("/proc/self/statm", os.O_RDONLY), os.getpid()
        return os.pread(self._file, 128, 0).split()


_statm = Statm()


def host_memory() -> HostReading:
    """Read the memory of this process."""
    if not ON_LINUX:
        return _by_psutil(children=False)
    fields = _statm.fields()
    return HostReading(int(fields[1]) * PAGE, int(fields[0]) * PAGE)


def host_memory_with_children() -> HostReading:
    """Read the memory of this process and all below it; pages that they share count for each."""
    return _by_psutil(children=True)


def _by_psutil(children: bool) -> HostReading:
    import psutil

    rss = vms = 0
    own = psutil.Process()
    for process in (own, *(own.children(recursive=True) if children else ())):
        try:
            info = process.memory_info()
        except psutil.Error:  # gone meanwhile
            continue
        rss, vms = rss + info.rss, vms + info.vms
    return HostReading(rss, vms)


def host_used() -> int:
    """Return the bytes in use on the whole host: its total less what is available."""
    if ON_LINUX:
        fields = Path("/proc/meminfo").read_bytes()[:256].split()
        found = dict(zip(fields[::3], fields[1::3], strict=False))
        if b"MemTotal:" in found and b"MemAvailable:" in found:
            return (int(found[b"MemTotal:"]) - int(found[b"MemAvailable:"])) * 1024
    import psutil

    memory = psutil.virtual_memory()
    return int(memory.total - memory.available)


class Held(NamedTuple):
    """One device at one moment of a phase: what is held now, and the most since the phase was entered."""

    allocated: int
    reserved: int
    max_allocated: int | None
    max_reserved: int | None


class Watch:
    """The peaks of one open phase, by device, and those of its work alone."""

    __slots__ = ("peaks", "work", "working")

    def __init__(self) -> None:
        self.peaks: dict[int, tuple[int, int]] = {}
        self.work: dict[int, int] = {}
        self.working = False

    def fold(self, device: int, allocated: int, reserved: int) -> None:
        """Take in what the allocator's counter says."""
        known = self.peaks.get(device, (0, 0))
        self.peaks[device] = max(known[0], allocated), max(known[1], reserved)
        if self.working:
            self.work[device] = max(self.work.get(device, 0), allocated)


class Ledger:
    """Reads the devices on behalf of all open phases. Thread-safe, as the counters that it resets are the process's."""

    def __init__(self, devices: Callable[[], Sequence[Device]]) -> None:
        self._devices = devices
        self._lock = threading.RLock()
        self._watches: dict[int, Watch] = {}

    def enter(self, watch: Watch) -> dict[int, Held]:
        """Read, and let the peaks of a phase begin here."""
        with self._lock:
            held = self._read(watch, reset=True)
            self._watches[id(watch)] = watch
        return held

    def read(self, watch: Watch) -> dict[int, Held]:
        """Read, in the middle of a phase."""
        with self._lock:
            return self._read(watch, reset=False)

    def begin_work(self, watch: Watch) -> dict[int, Held]:
        """Read, and let the peaks of the work begin here."""
        with self._lock:
            held = self._read(watch, reset=True)
            watch.working = True
            watch.work = {n: one.allocated for n, one in held.items() if one.max_allocated is not None}
        return held

    def end_work(self, watch: Watch) -> dict[int, Held]:
        """Read, and let the peaks of the work end here."""
        with self._lock:
            held = self._read(watch, reset=False)
            watch.working = False
        return held

    def renew(self, watch: Watch) -> dict[int, Held]:
        """Read, and let the peaks of a watch begin anew."""
        with self._lock:
            held = self._read(watch, reset=True)
            watch.peaks = {device: (one.allocated, one.reserved) for device, one in held.items()}
        return held

    def leave(self, watch: Watch) -> None:
        """Forget a phase."""
        with self._lock:
            self._watches.pop(id(watch), None)

    def _read(self, watch: Watch, reset: bool) -> dict[int, Held]:
        return {device.index: self._read_one(device, watch, reset) for device in self._devices()}

    def _read_one(self, device: Device, watch: Watch, reset: bool) -> Held:
        reading = device.read()
        if reading.peak_allocated is None or reading.peak_reserved is None:
            return Held(reading.allocated, reading.reserved, None, None)
        self._fold(device.index, reading, self._watches.values())
        if reset:
            device.reset_peaks()
        if id(watch) not in self._watches:
            watch.fold(device.index, reading.allocated, reading.reserved)
        return Held(reading.allocated, reading.reserved, *watch.peaks[device.index])

    @staticmethod
    def _fold(device: int, reading: Reading, watches: Iterable[Watch]) -> None:
        assert reading.peak_allocated is not None
        assert reading.peak_reserved is not None
        for watch in watches:
            watch.fold(device, reading.peak_allocated, reading.peak_reserved)
