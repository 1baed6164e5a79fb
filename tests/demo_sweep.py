"""A sweep of the demo: forty short trainings of eight settings with five seeds each, of which two break on the way."""

import fcntl
import itertools
import os
import tempfile
from pathlib import Path

import pytest

from barograph.apps.demo.config import DemoConfig, sick_config
from barograph.apps.demo.trainer import Trainer, measure_peak_flops, single_threaded, start_runs

SHORT = {
    "steps": 14, "tasks": 12, "runs": 4, "hidden": 64, "maps": 32, "validation_maps": 20, "repeats": 1, "epochs": 4,
    "mini_batches": 1, "critic_lr": 3e-3, "validate_every": 5, "save_every": 100,
}  # fmt: skip
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # the states of workers are written ten times a step
RATES = (0.0, 3e-4, 6e-4, 9e-4)
TURNS = (8, 16)
SEEDS = range(5)
FAULTS = {"lr0.0009-turns16-s3": ("nan", 8), "lr0.0006-turns8-s1": ("reward-hacking", 2)}
"""The sick run that a training becomes, and at which step: a mistake in the code, of which its config has nothing."""
FRAMEWORKS = {
    "from-roll": ("roll", "policy/entropy/mean"),
    "from-trl": ("trl", "policy/entropy_avg"),
    "from-trinity": ("trinity", "actor/entropy"),  # veRL's name
}
"""Vocabularies in which one training is recorded, with the name that each has for the entropy."""


def run_name(rate: float, turns: int, seed: int) -> str:
    """Return the name of a run of the sweep, which is also its id."""
    return f"lr{rate:g}-turns{turns}-s{seed}"


def forty_configs() -> dict[str, DemoConfig]:
    """Return the configurations of the forty trainings by name."""
    return {
        run_name(rate, turns, seed): DemoConfig().changed(SHORT | {"actor_lr": rate, "turns": turns, "seed": seed})
        for rate, turns, seed in itertools.product(RATES, TURNS, SEEDS)
    }


def train_sweep(dir: Path) -> None:
    """Train all runs into a directory: the forty in the project ``sweep``, and one in the names of three frameworks."""
    peak = measure_peak_flops()  # once, not for each run
    for name, config in forty_configs().items():
        train_run(dir, config, name, peak, project="sweep")
    for name, (vocabulary, _) in FRAMEWORKS.items():
        config = DemoConfig().changed(SHORT | {"steps": 4, "actor_lr": 5e-4})
        train_run(dir, config, name, peak, project="frameworks", vocabulary=vocabulary)


def train_run(dir: Path, config: DemoConfig, name: str, peak: float, **settings: str) -> None:
    """Train one run, with a fault from the step of ``FAULTS`` on."""
    cheap = {"peak_flops": peak, "doctor": False, "token_samples_per_step": 0, "samples_per_step": 4, "memory": "none"}
    run, explorer = start_runs(config, dir=dir, id=name, name=name, **cheap, **settings)
    fault, since = FAULTS.get(name, ("", None))
    with tempfile.TemporaryDirectory(dir=MEMORY) as states, single_threaded(), run, explorer:
        trainer = Trainer(config, run, explorer, Path(states))
        for step in range(config.steps):
            if step == since:
                trainer.config = sick_config(config, fault)
            trainer.step(step)


def shared_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the sweep, which is trained once for all processes of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (folder / "demo-sweep.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "demo-sweep").exists():
            unfinished = tempfile.mkdtemp(dir=folder)
            train_sweep(Path(unfinished))
            Path(unfinished).rename(folder / "demo-sweep")
    return folder / "demo-sweep"
