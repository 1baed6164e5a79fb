"""A small training of the demo for tests."""

from pathlib import Path
from typing import Any

import windsock
from windsock.demo.config import DemoConfig
from windsock.demo.sick_runs import sick_config
from windsock.demo.training import start_runs, train

SMALL = {
    "tasks": 24, "hidden": 64, "maps": 128, "validation_maps": 16, "validate_every": 5, "save_every": 4,
    "actor_lr": 1e-3, "critic_lr": 2e-3,
}  # fmt: skip


def trained(folder: Path, steps: int, sick: str = "", vocabulary: str = "roll", **changes: Any) -> windsock.View:
    """Train and return a view of the run."""
    config = DemoConfig().changed(SMALL | {"steps": steps})
    config = (sick_config(config, sick) if sick else config).changed(changes)
    run, explorer = start_runs(config, dir=folder, vocabulary=vocabulary)
    with run, explorer:
        train(config, run, explorer)
    return windsock.open(run.path)
