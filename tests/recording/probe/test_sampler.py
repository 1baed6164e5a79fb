"""System metrics: readings are attributed to the open phase."""

import threading
import time

import pytest
from probing import known_run, values

import barograph
from barograph.metrics.probe_values import Names
from barograph.recording.probe.sampler import HostReader, SampleAverages, Sampler

DEVICE = ("system/device/{device}/utilisation", (("device", "0"),))
HEAT = ("system/device/{device}/temperature", (("device", "0"),))


def test_samples_are_averaged_over_the_step_and_by_phase():
    """Utilisation is a mean, temperature a maximum; a step without samples has neither."""
    gathered = SampleAverages()
    gathered.add({DEVICE: 0.2, HEAT: 80.0}, ["rollout"])
    gathered.add({DEVICE: 1.0, HEAT: 60.0}, ["train"])
    gathered.add({DEVICE: 0.9, HEAT: 70.0}, [])
    assert Names("roll").named(gathered.take()) == pytest.approx({
        "system/device/0/utilisation": 0.7,
        "system/device/0/utilisation/during/rollout": 0.2,
        "system/device/0/utilisation/during/train": 1.0,
        "system/device/0/temperature": 80.0,
        "system/device/0/temperature/during/rollout": 80.0,
        "system/device/0/temperature/during/train": 60.0,
    })  # fmt: skip
    assert list(gathered.take()) == []


def test_a_reader_that_fails_is_reported_once_and_dropped():
    """Other readers continue."""
    gathered, problems, seen = SampleAverages(), [], threading.Event()
    asked: list[int] = []

    def broken() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        asked.append(1)
        raise OSError("driver gone")

    def working() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        if asked:
            seen.set()
        return {DEVICE: 0.5}

    sampler = Sampler(gathered, lambda: ["train"], 0.001, problems.append, [broken, working])
    assert seen.wait(5.0)
    time.sleep(0.02)
    sampler.stop()
    assert (len(asked), [str(problem) for problem in problems]) == (1, ["driver gone"])
    assert Names("roll").named(gathered.take())["system/device/0/utilisation/during/train"] == 0.5


def test_the_host_is_read_once_per_machine():
    """The first process of a machine reads CPU, disk and network; others do not."""
    host = HostReader({})
    time.sleep(0.01)
    found = host()
    assert 0.0 <= found["system/cpu/utilisation", ()] <= 1.0
    assert all(value >= 0 for value in found.values())
    assert ("system/network/receive_rate", ()) in found
    assert HostReader({"LOCAL_RANK": "1"})() == {}


def sampled_in(run: barograph.Run, phase: str) -> bool:
    return any(("phase", phase) in filled for _, filled in list(run._collectors.phases.probe.samples._found))


def test_a_run_samples_only_with_the_setting():
    """The innermost open phase gets the sample."""
    run = barograph.init(system_seconds=0.02)
    with run.phase("outer"), run.phase("inner"):
        deadline = time.monotonic() + 10.0
        while not sampled_in(run, "inner") and time.monotonic() < deadline:
            time.sleep(0.01)
        run.commit(0)  # between leaving one and the other a sample would be the outer one's
    found = values(run)
    assert "system/cpu/utilisation" in found
    assert "system/cpu/utilisation/during/inner" in found
    assert "system/cpu/utilisation/during/outer" not in found
    run.finish()
    assert "barograph-sampler" not in {thread.name for thread in threading.enumerate()}
    quiet = known_run()
    assert quiet._collectors.phases._sampler is None
