"""Memory of phases: exact sequences of readings, and peaks that are not affected by other phases."""

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import psutil
import pytest
from probing import KnownAccelerators, KnownDevice, Time, known_run, values

import barograph
from barograph.recording.probe.devices import (
    ON_LINUX,
    PAGE,
    Accelerators,
    HostReading,
    MemoryMeter,
    MemoryPeaks,
    StatmFile,
    host_memory,
    host_memory_with_children,
    host_used,
    local_rank,
    peak_flops,
    physical_index,
)

GIB = 2**30


def of_phase(run: barograph.Run, phase: str, device: int = 0) -> dict[str, int]:
    """Return a phase's readings in bytes, by moment and kind."""
    prefix, suffix = f"memory/{phase}/", f"/{device}"
    return {
        name.removeprefix(prefix).removesuffix(suffix): round(value * GIB)
        for name, value in values(run).items()
        if name.startswith(prefix) and name.endswith(suffix) and "_frac" not in name
    }


def holding(device: KnownDevice, *sizes: int) -> Callable[[], None]:
    """Return a function that sets the device's memory to these sizes in turn."""

    def hold() -> None:
        for size in sizes:
            device.hold(size)

    return hold


def test_the_four_moments_of_a_phase():
    """Each has the current memory and the peak since entry; reserved is twice the allocated memory on this device."""
    device = KnownDevice(total=1000)
    run = known_run(Time(), [device])
    device.hold(700)
    device.hold(10)
    with run.phase("train", onload=holding(device, 150, 100), offload=holding(device, 20)):
        holding(device, 400, 120)()
    run.commit(0)
    assert of_phase(run, "train") == {
        "start/offload/allocated": 10, "start/offload/max_allocated": 10,
        "start/offload/reserved": 20, "start/offload/max_reserved": 20,
        "start/onload/allocated": 100, "start/onload/max_allocated": 150,
        "start/onload/reserved": 200, "start/onload/max_reserved": 300,
        "end/onload/allocated": 120, "end/onload/max_allocated": 400,
        "end/onload/reserved": 240, "end/onload/max_reserved": 800,
        "end/offload/allocated": 20, "end/offload/max_allocated": 400,
        "end/offload/reserved": 40, "end/offload/max_reserved": 800,
        "end/onload/work_peak": 400,
    }  # fmt: skip
    found = values(run)
    assert found["memory/train/end/onload/max_allocated_frac/0"] == 0.4
    assert found["memory/train/end/onload/max_reserved_frac/0"] == 0.8
    assert round(found["memory/step/max_allocated"] * GIB) == 400


def test_fractions_are_of_the_capacity_of_each_device():
    """Two devices of different size have different fractions; a device of unknown size has none."""
    devices = [KnownDevice(0, total=1000), KnownDevice(1, total=4000), KnownDevice(2, total=None)]
    run = known_run(Time(), devices)
    with run.phase("train"):
        for device in devices:
            device.hold(200)
    run.commit(0)
    found = {name: value for name, value in values(run).items() if "_frac/" in name}
    assert found == {
        "memory/train/end/onload/max_allocated_frac/0": 0.2,
        "memory/train/end/onload/max_reserved_frac/0": 0.4,
        "memory/train/end/onload/max_allocated_frac/1": 0.05,
        "memory/train/end/onload/max_reserved_frac/1": 0.1,
    }
    described = [event["devices"] for event in barograph.open(run.path).events() if event["event"] == "devices"]
    assert [device["total"] for device in described[-1]] == [1000, 4000, None]


def test_each_moment_is_one_reading_and_resets_only_start_peaks():
    """The four moments are four readings; the step has one at its start and one at its end."""
    device = KnownDevice()
    run = known_run(Time(), [device])
    with run.phase("first"):
        pass
    device.calls.clear()
    with run.phase("train", onload=lambda: None, offload=lambda: None):
        pass
    assert device.calls == ["read", "reset", "read", "reset", "read", "read"]


def test_the_work_peak_excludes_onload():
    """A transient peak of onload is in the phase's peak, not in the work peak."""
    device = KnownDevice()
    run = known_run(Time(), [device])
    with run.phase("train", onload=holding(device, 900, 100)):
        holding(device, 300, 100)()
    run.commit(0)
    found = of_phase(run, "train")
    assert (found["end/onload/max_allocated"], found["end/onload/work_peak"]) == (900, 300)


def test_without_onload_and_offload_there_are_two_moments():
    """Before and after the body."""
    device = KnownDevice()
    run = known_run(Time(), [device])
    with run.phase("train"):
        device.hold(5)
    run.commit(0)
    assert {name.rpartition("/")[0] for name in of_phase(run, "train")} == {"start/onload", "end/onload"}


def test_nested_phases_have_their_own_peaks():
    """An inner phase resets the allocator's counter; the outer phase keeps its peak."""
    device = KnownDevice()
    run = known_run(Time(), [device])
    with run.phase("outer"):
        holding(device, 500, 50)()
        with run.phase("inner"):
            holding(device, 200, 60)()
        holding(device, 300, 10)()
        with run.phase("second"):
            device.hold(40)
    run.commit(0)
    peaks = {name: of_phase(run, name)["end/onload/max_allocated"] for name in ("outer", "inner", "second")}
    assert peaks == {"outer": 500, "inner": 200, "second": 40}
    assert round(values(run)["memory/step/max_allocated"] * GIB) == 500


def test_parallel_phases_have_the_peak_of_their_own_time():
    """One allocator serves all threads, so parallel phases include each other's memory."""
    device = KnownDevice()
    run = known_run(Time(), [device])
    first, second = run.phase("first"), run.phase("second")
    first.__enter__()
    holding(device, 100, 10)()
    second.__enter__()
    holding(device, 70, 10)()
    first.__exit__(None, None, None)
    holding(device, 80, 10)()
    second.__exit__(None, None, None)
    run.commit(0)
    assert of_phase(run, "first")["end/onload/max_allocated"] == 100
    assert of_phase(run, "second")["end/onload/max_allocated"] == 80


def test_of_several_spans_peaks_take_the_maximum_and_readings_the_last():
    """A peak in the first span is not hidden by the second."""
    device = KnownDevice()
    run = known_run(Time(), [device])
    for most, left in ((90, 30), (50, 20)):
        with run.phase("train"):
            holding(device, most, left)()
    run.commit(0)
    found = of_phase(run, "train")
    assert (found["end/onload/max_allocated"], found["end/onload/allocated"]) == (90, 20)


def test_the_peak_of_a_step_restarts_with_the_step():
    """It may fall from step to step."""
    device = KnownDevice()
    run = known_run(Time(), [device])
    for step, most in enumerate((800, 30)):
        with run.phase("train"):
            holding(device, most, 5)()
        run.commit(step)
    series = barograph.open(run.path).series("memory/step/max_allocated")
    assert [round(value * GIB) for value in series.values.tolist()] == [800, 30]


def test_devices_are_named_by_their_index_on_the_machine():
    """Each has its own metrics, and an event describes the devices."""
    run = known_run(Time(), [KnownDevice(3), KnownDevice(5)])
    with run.phase("train"):
        pass
    run.commit(0)
    assert of_phase(run, "train", 3)
    assert of_phase(run, "train", 5)
    [event] = [e for e in barograph.open(run.path).events() if e["event"] == "devices"]
    assert [(d["index"], d["uuid"], d["name"]) for d in event["devices"]] == [
        (3, "GPU-3", "NVIDIA H200"), (5, "GPU-5", "NVIDIA H200"),
    ]  # fmt: skip


def test_a_device_without_peaks_has_no_peak_metrics():
    """Missing values are not 0."""
    run = known_run(Time(), [KnownDevice(peaks=False)])
    with run.phase("train", onload=lambda: None):
        pass
    run.commit(0)
    kinds = {name.rpartition("/")[2] for name in of_phase(run, "train")}
    assert kinds == {"allocated", "reserved"}
    assert "memory/step/max_allocated" not in values(run)


def test_without_an_accelerator_there_are_only_host_metrics():
    """There are no zeros for missing devices; the start is read at the phase's entry."""
    readings = iter([HostReading(1 * GIB, 8 * GIB), HostReading(3 * GIB, 9 * GIB)])
    run = known_run(Time(), read_host=lambda: next(readings))
    with run.phase("train", onload=lambda: None, offload=lambda: None):
        pass
    run.commit(0)
    assert {name: value for name, value in values(run).items() if name.startswith("memory/")} == {
        "memory/cpu/train/start/rss": 1.0, "memory/cpu/train/start/vms": 8.0,
        "memory/cpu/train/end/rss": 3.0, "memory/cpu/train/end/vms": 9.0,
        "memory/host/used": 4.0,
    }  # fmt: skip
    assert [span.rss for span in barograph.open(run.path).phases()] == [3 * GIB]


@pytest.mark.parametrize(
    ("memory", "devices", "host"), [("all", True, True), ("cpu", False, True), ("none", False, False)]
)
def test_memory_readings_can_be_switched_off(memory: str, devices: bool, host: bool):
    """For devices only, or completely."""
    device = KnownDevice()
    run = known_run(Time(), [device], memory=memory)
    with run.phase("train"):
        pass
    run.commit(0)
    found = {name for name in values(run) if name.startswith("memory/")}
    assert (any("onload" in name for name in found), any("cpu" in name for name in found)) == (devices, host)
    assert bool(device.calls) is devices


def test_host_memory_equals_psutils():
    """For this process, with its children, and for the host."""
    own = psutil.Process().memory_info()
    assert host_memory().vms == pytest.approx(own.vms, rel=0.2)
    assert host_memory().rss == pytest.approx(own.rss, rel=0.2)
    assert host_memory_with_children().rss == pytest.approx(own.rss, rel=0.5)
    memory = psutil.virtual_memory()
    assert host_used() == pytest.approx(memory.total - memory.available, rel=0.5)


@pytest.mark.skipif(not ON_LINUX, reason="reads /proc")
def test_host_memory_is_right_after_a_fork_and_a_closed_file():
    """A child reads its own memory, and a reused file descriptor is detected."""
    statm = StatmFile()
    before = int(statm.fields()[0])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        kept = mmap.mmap(-1, 1 << 30)
        os.write(writing, statm.fields()[0])
        kept.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 64)) * PAGE > before * PAGE + (1 << 29)
    os.close(reading)
    os.close(writing)
    os.close(statm._file)
    with open(os.devnull) as other:
        assert other.fileno() == statm._file
        assert abs(int(statm.fields()[0]) - before) * PAGE < 1 << 29


def test_many_threads_may_read_at_once():
    """The meter stays consistent."""
    device = KnownDevice()
    meter = MemoryMeter(KnownAccelerators([device]).devices)

    def work() -> None:
        for _ in range(200):
            peaks = MemoryPeaks()
            meter.enter(peaks)
            meter.begin_work(peaks)
            meter.end_work(peaks)
            meter.leave(peaks)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter._open_peaks == {}


@pytest.mark.parametrize(
    ("visible", "environ", "number"),
    [
        (1, {}, 1),
        (0, {"CUDA_VISIBLE_DEVICES": "3"}, 3),
        (1, {"CUDA_VISIBLE_DEVICES": "4, 6"}, 6),
        (0, {"HIP_VISIBLE_DEVICES": "2"}, 2),
        (0, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937", "LOCAL_RANK": "5"}, 5),
        (0, {"CUDA_VISIBLE_DEVICES": "MIG-GPU-1/2/3", "SLURM_LOCALID": "2"}, 2),
        (0, {"CUDA_VISIBLE_DEVICES": ""}, 0),
    ],
)
def test_the_physical_index_of_a_device(visible: int, environ: dict[str, str], number: int):
    """Eight processes with one visible device each do not all have device 0."""
    assert physical_index("cuda", visible, 1, "", environ) == number


def test_the_local_rank_comes_from_the_launcher():
    """It is 0 without a launcher."""
    assert local_rank({"SLURM_LOCALID": "3"}) == 3
    assert local_rank({}) == 0


def test_the_probe_initialises_no_device():
    """With torch loaded and no accelerator in use, none is read."""
    import torch

    if not torch.cuda.is_initialized():
        assert list(Accelerators().devices()) == []
        assert Accelerators().record_event() is None
        assert not torch.cuda.is_initialized()


def test_peak_flops_of_known_devices():
    """Found by a part of the name; None for unknown devices."""
    assert peak_flops("NVIDIA H200") == 989e12
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("Voodoo 2") is None


def test_child_processes_may_be_included():
    """With the setting, a child's 256 MiB are in the reading."""
    code = "import sys; held = bytearray(b'x') * (256 << 20); print(flush=True); sys.stdin.read()"
    run = barograph.init(memory_children=True)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with run.phase("train"):
            pass
        own = psutil.Process().memory_info().rss
    run.commit(0)
    assert values(run)["memory/cpu/train/end/rss"] * GIB - own > 200 << 20
