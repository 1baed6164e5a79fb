"""The doctor names the faults of short demo runs, and says nothing of healthy ones; benchmarks/demo_diagnoses.py
trains them all in full.
"""

from pathlib import Path

import pytest

from barograph.apps.demo.config import DemoConfig, sick_config
from barograph.apps.demo.trainer import start_runs, train
from barograph.diagnosis.diagnose import Diagnosis, doctor
from barograph.importers.opening import open_run

SMALL = {"tasks": 24, "hidden": 64, "maps": 128, "validation_maps": 16, "validate_every": 5, "actor_lr": 8e-4}
STEPS = 30
NAMED = {
    "ratio-drift": ("ratio_drift", 10),
    "nan": ("nonfinite", 20),
    "lr-too-high": ("lr_implausible", 0),
    "slow-phase": ("phase_imbalance", 0),
    "stale-policy": ("stale", 12),
}


def diagnosis_of(folder: Path, sick: str = "") -> Diagnosis:
    """Return the diagnosis of a short training."""
    config = DemoConfig().changed(SMALL | {"steps": STEPS})
    config = sick_config(config, sick) if sick else config
    run, explorer = start_runs(config, dir=folder)
    with run, explorer:
        train(config, run, explorer)
    return doctor(open_run(run.path))


@pytest.mark.parametrize("sick", NAMED)
def test_a_fault_is_found_by_its_name(sick: str, tmp_path: Path):
    """As a finding that nothing else explains, since a step near its beginning."""
    rule, latest = NAMED[sick]
    diagnosis = diagnosis_of(tmp_path, sick)
    finding = next(one for one in diagnosis.findings if one.rule == rule)
    assert finding.severity in ("warning", "critical")
    assert finding.onset <= latest


def test_a_healthy_training_has_no_warning(tmp_path: Path):
    """Neither now nor before."""
    diagnosis = diagnosis_of(tmp_path)
    assert [one.text.en for one in (*diagnosis.findings, *diagnosis.past) if one.severity != "info"] == []
    assert diagnosis.verdict == "healthy"
