"""Trainings of TRL that report to a tracker open with the values of their state."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barograph.importers.logs import logs_at
from barograph.importers.opening import ImportedView

pytestmark = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="trl is not installed")

SCRIPT = Path(__file__).with_name("tiny_trl.py")
TRACKERS = {
    "tensorboard": "event_files", "wandb": "wandb_offline", "swanlab": "swanlab_store", "trackio": "trackio_store",
    "mlflow": "mlflow_store",
}  # fmt: skip
# What the Trainer's callback for Trackio leaves out, and the names that its others give to the rest.
NOT_REPORTED = {"trackio": {"train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss",
                            "total_flos"}}  # fmt: skip
PREFIXES = ("", "train/", "single_value/")
FLOAT32 = 1e-6


def environment(home: Path) -> dict[str, str]:
    """Return the variables with which every tracker writes below a directory, and sends nothing."""
    quiet = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "SWANLAB_MODE": "offline", "DO_NOT_TRACK": "true"}
    own = {"HOME": str(home), "TRACKIO_DIR": str(home / "trackio"), "MLFLOW_DISABLE_TELEMETRY": "true"}
    return {**os.environ, **quiet, **own}


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_training_opens_with_the_values_of_its_state(tracker: str, tmp_path: Path):
    """Every number of every step, from what the tracker has written."""
    pytest.importorskip(tracker)
    command = [sys.executable, SCRIPT, "grpo", tmp_path / "logged.json", tracker]
    env = environment(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    [log] = [log for log in logs_at(tmp_path) if log.format == TRACKERS[tracker]]
    view = ImportedView(log)
    names = set(view.names())
    compared = 0
    for row in json.loads((tmp_path / "trainer_state.json").read_text())["log_history"]:
        step = row.pop("step")
        for name in row.keys() - NOT_REPORTED.get(tracker, set()):
            shown = next(prefix + name for prefix in PREFIXES if prefix + name in names)
            series = view.series(shown)
            value = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))[step]
            assert math.isclose(value, row[name], rel_tol=FLOAT32), (name, step)
            compared += 1
    assert compared > 150
    assert view.config["learning_rate"] == 1e-3
    assert len(view.writers()) == 1
