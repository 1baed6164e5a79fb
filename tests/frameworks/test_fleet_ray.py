"""The example that asks a question about many runs with Ray."""

import importlib.util
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from recorded_runs import QUIET

import barograph
from barograph.apps.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet_ray.py"


def record(dir: Path, number: int, rate: float, broken_from: int | None) -> None:
    """Record a run whose reward is gone once its gradient norm is NaN."""
    run = barograph.init(dir=dir, id=f"run{number}", project="p", config={"actor": {"lr": rate}, "seed": number})
    for step in range(60):
        is_broken = broken_from is not None and step >= broken_from
        norm, reward = (math.nan, 0.0) if is_broken else (0.5, step / 60)
        run.log({"critic/score/mean": reward, "actor/grad_norm": norm, "actor/entropy": 1 - step / 80}, step=step)
    run.finish()


def test_ray_finds_which_configs_collapse_and_when(tmp_path: Path):
    """By the doctor's findings, at the first critical one; by the mean of the reward some steps later."""
    if any(importlib.util.find_spec(name) is None for name in ("ray", "pyarrow", "pandas")):
        pytest.skip("ray, pyarrow or pandas is not installed")
    for number, (rate, broken) in enumerate([(1e-6, None), (1e-6, None), (1e-5, 30), (1e-5, None)]):
        record(tmp_path / "runs", number, rate, broken)
    assert main(["export", str(tmp_path / "runs"), "--to", "parquet", "--partition", "project,run"]) == 0
    temporary = tempfile.mkdtemp(prefix="ray-")  # not below the folder: the path of a socket must be short
    try:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), str(tmp_path / "runs-fleet"), "actor.lr"],
            env={**os.environ, **QUIET, "RAY_TMPDIR": temporary}, capture_output=True, text=True, timeout=280,
        )  # fmt: skip
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-4000:]
    _, by_findings, by_values = done.stdout.split("\nWhich configs collapse, and when, ")
    assert by_findings.startswith("by the doctor's findings? (actor.lr)")
    found = barograph.doctor(barograph.open(tmp_path / "runs" / "p" / "run2")).findings
    onset = min(one.onset for finding in found for one in (finding, *finding.explains) if one.severity == "critical")
    for answer, first, last in ((by_findings, onset, onset), (by_values, 31, 59)):
        broken, fine = (line.split() for line in answer.splitlines() if line.startswith("1e-"))
        assert (broken[:3], fine[:3]) == (["1e-05", "2", "1"], ["1e-06", "2", "0"])
        assert first <= float(broken[3]) <= last
