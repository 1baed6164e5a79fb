"""Processes of real launchers, without any setting: they record one run, and its values are those of all of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import barograph
from barograph.journal.format.folder import run_folders

SCORES = (1.0, 3.0, 8.0, 12.0)
TRAINING = f"""
import barograph
run = barograph.init(project="launched")
for step in range(2):
    run.measure({{"response_mask": [[1, 1]], "scores": [{SCORES}[run.writer.rank]]}})
    run.commit(step)
run.finish()
"""


@pytest.fixture
def training(tmp_path: Path) -> str:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    return str(script)


def check(dir: Path, processes: int, id: str) -> None:
    """Check that one run with this beginning of its id has the mean of all processes at every step."""
    (folder,) = run_folders(dir)
    assert folder.name.startswith(id)
    view = barograph.open(folder)
    assert [(writer.rank, writer.attempt) for writer in view.writers()] == [(rank, 1) for rank in range(processes)]
    mean = sum(SCORES[:processes]) / processes
    assert view.series("critic/score/mean").values.tolist() == [mean, mean]
    assert view.status.word == "finished"


@pytest.mark.parametrize("processes", [2, 4])
def test_torchrun(training: str, tmp_path: Path, processes: int):
    """The run id is derived from the process of torchrun, and is another one for the next job."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", training]
    subprocess.run(command, check=True, timeout=200, capture_output=True)
    check(tmp_path / "runs", processes, "torchrun-")


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed: apt-get install openmpi-bin")
def test_mpirun(training: str, tmp_path: Path, processes: int):
    """Also where a shell starts the process; the variables of a SLURM job around it do not count."""
    shell = 'export SLURM_JOB_ID=17 SLURM_NTASKS=1 SLURM_PROCID=0; "$@"'
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(processes)]
    command = [*mpirun, "sh", "-c", shell, "-", sys.executable, training]
    subprocess.run(command, check=True, timeout=200, capture_output=True)
    check(tmp_path / "runs", processes, "mpi-")


def test_srun(training: str, tmp_path: Path):
    """By the variables of SLURM, which is not installed here."""
    step = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}
    started = [
        subprocess.Popen([sys.executable, training], env={**os.environ, **step, "SLURM_PROCID": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(60) for process in started] == [0, 0]
    check(tmp_path / "runs", 2, "slurm-17-0")


def test_two_scripts_in_a_batch_shell_are_two_runs(training: str, tmp_path: Path):
    """SLURM has started neither of them, whatever number of tasks it has reserved."""
    shell = {**os.environ, "SLURM_JOB_ID": "17", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
    for _ in range(2):
        subprocess.run([sys.executable, training], env=shell, check=True, timeout=60)
    views = [barograph.open(folder) for folder in run_folders(tmp_path / "runs")]
    assert [view.series("critic/score/mean").last for view in views] == [1.0, 1.0]
