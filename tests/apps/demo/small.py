"""A small training of the demo for tests."""

from pathlib import Path
from typing import Any

import barograph
from barograph.apps.demo.config import DemoConfig, sick_config
from barograph.apps.demo.trainer import start_runs, train

SMALL = {
    "tasks": 24, "hidden": 64, "maps": 128, "validation_maps": 16, "validate_every": 5, "save_every": 4,
    "actor_lr": 1e-3, "critic_lr": 2e-3,
}  # fmt: skip


def trained(folder: Path, steps: int, sick: str = "", vocabulary: str = "roll", **changes: Any) -> barograph.View:
    """Train and return a view of the run."""
    config = DemoConfig().changed(SMALL | {"steps": steps})
    config = (sick_config(config, sick) if sick else config).changed(changes)
    run, explorer = start_runs(config, dir=folder, vocabulary=vocabulary)
    with run, explorer:
        train(config, run, explorer)
    return barograph.open(run.path)
