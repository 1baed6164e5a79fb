"""Phases on a CUDA device: memory at the four moments, without synchronising."""

import csv
from pathlib import Path

import pytest
import torch
from probing import values

import barograph
from barograph.recording.probe.sampler import NvmlReader

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SEED = Path(__file__).parents[2] / "data" / "seed_metrics.tsv"
GIB = 2**30
MEGABYTES = 256 << 20


def floats(size: int, device: str = "cuda") -> torch.Tensor:
    return torch.zeros(size // 4, device=device)


def device_index() -> int:
    from barograph.recording.probe.devices import physical_index

    return physical_index("cuda", torch.cuda.current_device(), torch.cuda.device_count())


def test_memory_at_the_four_moments():
    """Weights are loaded and offloaded, and the phase's peak differs from the work peak."""
    torch.cuda.init()
    floats(4)
    run = barograph.init()
    held: dict[str, torch.Tensor] = {}
    before = torch.cuda.memory_allocated()

    def load() -> None:
        transient = floats(2 * MEGABYTES)
        held["weights"] = floats(MEGABYTES)
        del transient

    with run.phase("train", onload=load, offload=held.clear), run.phase("inner"):
        floats(MEGABYTES // 2)
    run.commit(0)
    found, number = values(run), device_index()
    expected = {
        "start/offload/allocated": 0, "start/onload/allocated": MEGABYTES, "start/onload/max_allocated": 3 * MEGABYTES,
        "end/onload/allocated": MEGABYTES, "end/onload/max_allocated": 3 * MEGABYTES,
        "end/onload/work_peak": 1.5 * MEGABYTES, "end/offload/allocated": 0, "end/offload/max_allocated": 3 * MEGABYTES,
    }  # fmt: skip
    got = {name: found[f"memory/train/{name}/{number}"] * GIB - before for name in expected}
    assert got == pytest.approx(expected, abs=0.01 * MEGABYTES)
    assert 0 < found[f"memory/train/end/onload/max_reserved_frac/{number}"] < 1
    inner = found[f"memory/inner/end/onload/max_allocated/{number}"] * GIB - before
    assert inner == pytest.approx(1.5 * MEGABYTES, abs=0.01 * MEGABYTES)
    assert [
        event["devices"][0]["index"] for event in barograph.open(run.path).events() if event["event"] == "devices"
    ] == [number]


def test_every_documented_memory_name_is_produced():
    """All documented names are logged on a real device."""
    floats(4)
    run = barograph.init()
    with run.phase("actor_train/train_step", onload=lambda: None, offload=lambda: None):
        pass
    run.commit(0)
    with SEED.open() as file:
        rows = [row["name"] for row in csv.DictReader(file, delimiter="\t") if row["name"].startswith("memory/")]
    number = str(device_index())
    wanted = {n.replace("{metric_infix}", "actor_train/train_step").replace("{device_id}", number) for n in rows}
    assert wanted <= set(values(run))


def test_a_phase_does_not_synchronise():
    """A stream that is busy at entry is still busy at exit; the device's time is known later."""
    floats(4)
    run = barograph.init()
    with run.phase("warm", onload=lambda: None, offload=lambda: None, clock="device"):
        pass
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    busy = torch.cuda.Event()
    busy.record()
    with run.phase("train", onload=lambda: None, offload=lambda: None, clock="device"):
        torch.cuda._sleep(1000)
    run.commit(0)
    assert not busy.query()
    torch.cuda.synchronize()
    run.commit(1)
    train = [span for span in barograph.open(run.path).phases() if span.name == "train"]
    assert [(span.clock, span.step) for span in train] == [("device", 0)]


def test_tokens_on_the_device_are_fetched_later():
    """Counting them does not synchronise."""
    run = barograph.init()
    count = torch.tensor(123, device="cuda")
    with run.phase("generate", tokens=lambda: {"generated": count}):
        pass
    torch.cuda.synchronize()
    run.commit(0)
    [span] = barograph.open(run.path).phases()
    assert (span.tokens, span.token_kind) == (123.0, "generated")


def test_nvml_readings_of_the_device():
    """Utilisation, memory, power and temperature, where the package is installed."""
    pytest.importorskip("pynvml")
    found = NvmlReader()()
    kinds = {id.rpartition("/")[2] for id, _ in found}
    assert {"utilisation", "memory_used"} <= kinds
    assert all(value >= 0 for value in found.values())
