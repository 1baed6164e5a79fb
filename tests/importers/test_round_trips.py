"""Runs that go through barograph's trackers and are read back from their stores have the same rows."""

import math
import random
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.importers.logs import logs_at
from barograph.importers.opening import ImportedView
from barograph.journal.view import View

QUIET = {"probe": {"monitor": False, "hardware": False, "requirements": False, "conda": False, "git": False}}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "tensorboard": {},
    "wandb": {"mode": "offline", "settings": {"x_disable_stats": True, "x_disable_meta": True}},
    "swanlab": {"mode": "offline", "settings": QUIET},
    "trackio": {},
    "mlflow": {},
}
FORMATS = {
    "tensorboard": "event_files", "wandb": "wandb_offline", "swanlab": "swanlab_store", "trackio": "trackio_store",
    "mlflow": "mlflow_store",
}  # fmt: skip
PLACES = {"tensorboard": "tensorboard", "wandb": "wandb", "swanlab": "swanlab", "mlflow": "mlflow.db"}  # in a run
PACKAGES = {"tensorboard": "numpy"}  # it is written without the tensorboard package
NAMES = ("loss", "val/pass@8", "with space/and more", "a/very/deep/name/of/a/metric", "单位/奖励", "sel/<1_ratio")
STEPS = 60
PATIENCE = 120.0


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a fresh home directory; Trackio's is read when its process starts."""
    monkeypatch.setenv("TRACKIO_DIR", str(home / "trackio"))


def recorded(tracker: str, folder: Path, is_32_bit: bool) -> View:
    """Record a run with a tracker, and return the run."""
    chance = random.Random(2)
    run = barograph.init(
        project="maze", name="first", dir=folder, config={"lr": 1e-6, "seed": 7, "model": {"name": "qwen"}},
        track_with=[tracker], tracker_kwargs={tracker: ARGUMENTS[tracker]},
    )  # fmt: skip
    for step in range(STEPS):
        # Numbers that a float32 has exactly, where the store has no others.
        values = {name: chance.randrange(-(2**20), 2**20) / 2**7 if is_32_bit else chance.gauss() for name in NAMES}
        if step % 7 == 3:
            values.pop("val/pass@8")
        if step == 11:
            values |= {"loss": math.nan, "单位/奖励": math.inf, "sel/<1_ratio": -math.inf}
        run.log(values, step=step)
    run.finish(timeout=PATIENCE)
    return barograph.open(run.path)


@pytest.mark.parametrize("tracker", ARGUMENTS)
def test_a_run_that_is_read_back_has_the_same_rows(tracker: str, tmp_path: Path, home: Path):
    """Every value, NaN and infinities included, with its step; what is not there stays away."""
    pytest.importorskip(PACKAGES.get(tracker, tracker))
    run = recorded(tracker, tmp_path / "runs", is_32_bit=tracker == "tensorboard")
    [log] = logs_at(home / "trackio" if tracker == "trackio" else run.path / PLACES[tracker])
    assert log.format == FORMATS[tracker]
    read = ImportedView(log)
    for name in NAMES:
        wrote, found = run.series(name), read.series(name)
        assert found.steps.tolist() == wrote.steps.tolist(), name
        # SQLite and JSON have all digits; NaN equals NaN here.
        assert [repr(value) for value in found.values.tolist()] == [repr(value) for value in wrote.values.tolist()]
    assert len(read.writers()) == 1
    assert set(read.names()) - set(run.names()) <= {"barograph/step"}
    assert read.info.name == "first" or tracker == "tensorboard"
    assert read.status.word == "finished"
    assert read.config.get("lr") == 1e-6
