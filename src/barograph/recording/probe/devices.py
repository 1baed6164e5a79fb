"""The accelerators that this process uses, and memory readings: host memory of this process, and device memory with a
peak for every open phase.

torch is taken from ``sys.modules`` and never imported here.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

VISIBLE_VARIABLES = {
    # torch's name for ROCm devices is cuda too.
    "cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES",),
    "xpu": ("ZE_AFFINITY_MASK",),
}

LOCAL_RANK_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")

# The longer of two names comes first: "H200" contains "H20", and "H100 PCIe" contains "H100".
PEAK_FLOPS = {
    "B200": 2250e12, "H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "H800": 989e12, "H20": 148e12,
    "A100": 312e12, "A800": 312e12, "L40S": 362e12, "MI300X": 1307e12,
}  # fmt: skip
"""Dense bfloat16 FLOP/s from the vendors' data sheets, by a part of the device's name. The first match counts."""


class AllocatorStats(NamedTuple):
    """Memory statistics of one device's allocator in bytes. Peaks are since the last reset; None: not recorded."""

    allocated: int
    reserved: int
    peak_allocated: int | None = None
    peak_reserved: int | None = None


class Device(Protocol):
    """One accelerator that this process uses."""

    index: int  # on the machine, not in the process
    name: str
    uuid: str
    total: int | None  # bytes

    def read(self) -> AllocatorStats:
        """Read the allocator's statistics without synchronising."""

    def reset_peaks(self) -> None:
        """Reset the peaks to the current values."""


class TorchDevice:
    """A device of a torch back end with the interface of ``torch.cuda``: CUDA, ROCm, NPU, XPU."""

    def __init__(self, backend: str, module: Any, visible: int) -> None:
        properties = module.get_device_properties(visible)
        self.name = str(getattr(properties, "name", backend))
        self.uuid = str(getattr(properties, "uuid", ""))
        self.total: int | None = getattr(properties, "total_memory", None)
        self.visible = visible
        self.index = physical_index(backend, visible, module.device_count(), self.uuid)
        self._statistics: Callable[[int], dict[str, Any]] = module.memory.memory_stats_as_nested_dict
        self._reset: Callable[[int], None] = module.memory.reset_peak_memory_stats

    def read(self) -> AllocatorStats:
        """Read the allocator's statistics."""
        # One call for all four numbers; torch's getters would build the same dictionary four times.
        statistics = self._statistics(self.visible)
        # torch returns no statistics until the device's allocator is used.
        if not statistics:
            return AllocatorStats(0, 0, 0, 0)
        allocated, reserved = statistics["allocated_bytes"]["all"], statistics["reserved_bytes"]["all"]
        return AllocatorStats(allocated["current"], reserved["current"], allocated["peak"], reserved["peak"])

    def reset_peaks(self) -> None:
        """Reset the peaks to the current values."""
        self._reset(self.visible)


class MpsDevice:
    """Apple's GPU. Its allocator records no peaks."""

    index = 0
    name = "mps"
    uuid = ""

    def __init__(self, torch: Any) -> None:
        self._mps = torch.mps
        self.total: int | None = None
        with suppress(Exception):
            self.total = int(torch.mps.recommended_max_memory())

    def read(self) -> AllocatorStats:
        """Read the allocator's statistics."""
        return AllocatorStats(self._mps.current_allocated_memory(), self._mps.driver_allocated_memory())

    def reset_peaks(self) -> None:
        """Do nothing: the allocator records no peaks."""


class TorchEvent:
    """A timing event in the current stream of the current device."""

    def __init__(self, module: Any) -> None:
        self._event = module.Event(enable_timing=True)
        self._event.record()

    def reached(self) -> bool:
        """Return whether the device has reached the event, without waiting."""
        return bool(self._event.query())

    def wait(self) -> None:
        """Wait until the device reaches the event."""
        self._event.synchronize()

    def seconds_since(self, earlier: TorchEvent) -> float:
        """Return the device's seconds since an earlier event; both must have been reached."""
        return float(earlier._event.elapsed_time(self._event)) / 1000


class Accelerators:
    """The devices that this process uses. Devices that are only visible to it are not touched."""

    def __init__(self) -> None:
        self._known: dict[int, Device] = {}
        self._devices: list[Device] = []

    def devices(self) -> Sequence[Device]:
        """Return the devices found by the last ``refresh``; refresh while none is known."""
        return self._devices if self._devices else self.refresh()

    def refresh(self) -> Sequence[Device]:
        """Find the devices in use: the current one, and those with allocated memory."""
        backend, module = _backend()
        if module is None:
            return self._devices
        if backend == "mps":
            self._devices = self._devices or [MpsDevice(sys.modules["torch"])]
            return self._devices
        current = module.current_device()
        for visible in range(module.device_count()):
            if visible not in self._known and (visible == current or _has_allocated(module, visible)):
                self._known[visible] = TorchDevice(backend, module, visible)
        self._devices = [self._known[visible] for visible in sorted(self._known)]
        return self._devices

    def record_event(self) -> TorchEvent | None:
        """Record an event in the current stream; None where no device has a queue."""
        _, module = _backend()
        return None if module is None else TorchEvent(module)

    def after_fork_in_child(self) -> None:
        """Drop the parent's devices: a forked child cannot use them."""
        self._known, self._devices = {}, []


def _has_allocated(module: Any, visible: int) -> bool:
    statistics = module.memory.memory_stats_as_nested_dict(visible)
    # The peak: a device counts as used also while its memory is freed, as between offload and onload.
    return bool(statistics) and statistics["reserved_bytes"]["all"]["peak"] > 0


def _backend() -> tuple[str, Any]:
    """Return the name and module of the back end that the training has initialised; never initialise one."""
    torch = sys.modules.get("torch")
    # Asking an uninitialised back end would create a context, which takes device memory.
    for name in ("cuda", "npu", "xpu"):
        module = getattr(torch, name, None)
        if module is not None and getattr(module, "is_initialized", bool)():
            return name, module
    if sys.platform == "darwin" and torch is not None and torch.backends.mps.is_available():
        return "mps", torch.mps
    return "", None


def physical_index(
    backend: str, visible: int, count: int, uuid: str = "", environ: Mapping[str, str] | None = None
) -> int:
    """Return the index on the machine of a device that has index ``visible`` in this process.

    It is taken from the variable that limits visible devices. Where that lists UUIDs, NVML is asked. Without NVML, it
    is derived from the process's local rank.
    """
    environ = os.environ if environ is None else environ
    given = next((environ[name] for name in VISIBLE_VARIABLES.get(backend, ()) if environ.get(name)), "")
    entries = [entry.strip() for entry in given.split(",")] if given else []
    if visible >= len(entries):
        return visible
    if entries[visible].isdigit():
        return int(entries[visible])
    # The variable may have an abbreviated UUID, which CUDA accepts; torch has the complete one.
    found = _nvml_index(uuid or entries[visible])
    # Without NVML this is an assumption: launchers give each local rank the next ``count`` devices.
    return local_rank(environ) * count + visible if found is None else found


def local_rank(environ: Mapping[str, str]) -> int:
    """Return this process's local rank from the launcher's variables; 0 without a launcher."""
    return next((int(environ[name]) for name in LOCAL_RANK_VARIABLES if environ.get(name, "").isdigit()), 0)


def _nvml_index(uuid: str) -> int | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            known = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
            # Older versions of pynvml return bytes. NVML writes the prefix "GPU-", torch does not.
            known = known.decode() if isinstance(known, bytes) else str(known)
            if known.removeprefix("GPU-") == uuid.removeprefix("GPU-"):
                return index
    except Exception:  # noqa: BLE001 - no package, no driver or no permission: the index is unknown
        return None
    return None


def peak_flops(name: str) -> float | None:
    """Return a device's dense bfloat16 peak in FLOP/s; None where it is not known."""
    return next((peak for part, peak in PEAK_FLOPS.items() if part.lower() in name.lower()), None)


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
