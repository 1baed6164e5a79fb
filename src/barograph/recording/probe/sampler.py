"""System metrics, read by a background thread every few seconds and attributed to the open phases."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from barograph.catalogue.registry import REGISTRY, Filled
from barograph.metrics.probe_values import GIB, Value
from barograph.recording.probe.devices import local_rank

Samples = dict[tuple[str, Filled], float]
"""Readings by catalogue id and device."""


class SampleAverages:
    """Averages of the samples since the last commit, in total and by phase."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._found: dict[tuple[str, Filled], list[float]] = {}

    def add(self, samples: Samples, phases: Iterable[str]) -> None:
        """Add one set of readings, taken while these phases were open."""
        phases = sorted(phases)
        with self._lock:
            for (id, filled), value in samples.items():
                self._found.setdefault((id, filled), []).append(value)
                for phase in phases:
                    place = f"{id}/during/{{phase}}", (*filled, ("phase", phase))
                    self._found.setdefault(place, []).append(value)

    def take(self) -> Iterator[Value]:
        """Yield the means, or the maxima where the catalogue asks for them, and reset."""
        with self._lock:
            found, self._found = self._found, {}
        for (id, filled), values in found.items():
            yield id, filled, max(values) if REGISTRY.metric(id).statistic == "max" else sum(values) / len(values)


class Sampler:
    """Background thread that calls the readers. A reader that fails is reported once and dropped."""

    def __init__(
        self,
        gathered: SampleAverages,
        open_phases: Callable[[], Iterable[str]],
        seconds: float,
        guard: Callable[[Exception], None],
        readers: Iterable[Callable[[], Samples]] | None = None,
        devices_in_use: Callable[[], set[int]] = set,
    ) -> None:
        self._gathered = gathered
        self._open_phases = open_phases
        self._seconds = seconds
        self._guard = guard
        self._devices_in_use = devices_in_use
        self._readers = list(readers) if readers is not None else None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="barograph-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(1.0)  # a driver call may hang; the thread is a daemon

    def _loop(self) -> None:
        # In this thread, so that the start of a run does not wait for imports and drivers.
        if self._readers is None:
            self._readers = [*_started(HostReader), *_started(lambda: NvmlReader(self._devices_in_use))]
        while not self._stop.wait(self._seconds):  # returns at once when the run finishes
            self._sample()

    def _sample(self) -> None:
        assert self._readers is not None
        phases = list(self._open_phases())
        for reader in list(self._readers):
            try:
                self._gathered.add(reader(), phases)
            except Exception as problem:  # noqa: BLE001 - drivers raise anything
                self._readers.remove(reader)
                self._guard(problem)


def _started(make: Callable[[], Callable[[], Samples]]) -> list[Callable[[], Samples]]:
    try:
        return [make()]
    except Exception:  # noqa: BLE001 - no package, no driver, no device: nothing to sample
        return []


class HostReader:
    """Reads CPU, disk and network of the host, in the first process of each host only."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        import psutil

        self._psutil = psutil
        self._is_idle = local_rank(os.environ if environ is None else environ) > 0
        psutil.cpu_percent()  # the first call returns 0 by design
        self._before = time.monotonic(), self._bytes()

    def __call__(self) -> Samples:
        """Return the readings; rates are since the last call."""
        if self._is_idle:
            return {}
        now, counted = time.monotonic(), self._bytes()
        then, before = self._before
        self._before = now, counted
        rates: Samples = {
            (f"system/{name}_rate", ()): (value - before[name]) / (now - then)
            for name, value in counted.items()
            if name in before and now > then
        }
        return {("system/cpu/utilisation", ()): self._psutil.cpu_percent() / 100, **rates}

    def _bytes(self) -> dict[str, float]:
        disk, network = self._psutil.disk_io_counters(), self._psutil.net_io_counters()
        found: dict[str, float] = {}
        if disk is not None:
            found |= {"disk/read": disk.read_bytes, "disk/write": disk.write_bytes}
        if network is not None:
            found |= {"network/receive": network.bytes_recv, "network/send": network.bytes_sent}
        return found


class NvmlReader:
    """Reads the NVIDIA devices that this process uses, or all visible ones where it uses none."""

    def __init__(self, in_use: Callable[[], set[int]] = set) -> None:
        import pynvml

        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        # CUDA's two ways to hide all devices.
        if visible is not None and visible.strip() in ("", "-1"):
            raise LookupError("no visible device")
        self._in_use = in_use
        pynvml.nvmlInit()
        self._nvml = pynvml
        count = pynvml.nvmlDeviceGetCount()
        # A list of UUIDs has no numbers: then all devices are opened, and ``in_use`` limits them.
        numbers = [int(entry) for entry in (visible or "").split(",") if entry.strip().isdigit()]
        self._handles = {n: pynvml.nvmlDeviceGetHandleByIndex(n) for n in (numbers or range(count)) if n < count}

    def __call__(self) -> Samples:
        """Return the readings of all devices; readings that a device does not support are missing."""
        found: Samples = {}
        used = self._in_use() & set(self._handles) or set(self._handles)
        for number, handle in ((n, self._handles[n]) for n in sorted(used)):
            for what, value in self._device_readings(handle):
                found[f"system/device/{{device}}/{what}", (("device", str(number)),)] = value
        return found

    def _device_readings(self, handle: Any) -> Iterator[tuple[str, float]]:
        nvml = self._nvml
        readings: tuple[tuple[str, Callable[[], float]], ...] = (
            ("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            ("memory_used", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / GIB),
            ("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            ("temperature", lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
        )
        for what, read in readings:
            try:
                yield what, float(read())
            except nvml.NVMLError:
                continue
