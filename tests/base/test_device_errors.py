"""An error of the device is the end of the training, and the run shows it. These tests need a CUDA device."""

import subprocess
import sys
from pathlib import Path

import pytest

import barograph

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

SCRIPT = """
import sys, torch, barograph
run = barograph.init(id="bad", dir=sys.argv[1])
x = torch.arange(4.0, device="cuda")
run.log({"good": x.sum()})
run.commit(0)
torch.cuda._sleep(int(4e9))                           # the error comes after everything below was queued
torch._assert_async(torch.zeros((), device="cuda"))
{queue}
run.log({"host": 2.0})
run.sample(prompt="p", completion="c", reward=1.0)
run.commit(1)
torch.cuda.synchronize()
"""
QUEUES = {
    "log": 'run.log({"b": x.sum()})',
    "count": "run.count(tokens=x.sum())",
    "measure": 'ones = torch.ones((2, 4), device="cuda"); run.measure({"response_mask": ones, "scores": ones[:, 0]})',
}


@pytest.mark.parametrize("queue", QUEUES)
def test_an_error_of_the_device_is_what_the_run_shows(tmp_path: Path, queue: str):
    """Values that wait for the device are lost and told; the host's values, the samples and the end are recorded."""
    script = SCRIPT.replace("{queue}", QUEUES[queue])
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr  # not a signal: PyTorch aborts if pinned memory is freed after the error
    view = barograph.open("bad", tmp_path)
    assert view.status.word == "crashed"
    assert "device-side assert" in view.status.reason
    assert view.series("good").values.tolist() == [6.0]
    assert view.series("host").steps.tolist() == [1]
    assert len(view.samples()) == 1
    assert any("device-side assert" in problem.error for problem in view.problems())
