"""Trainings that several tests look at. A process trains several times: importing a framework takes long."""

import importlib.util

import pytest
from framework_trainings import TORCHRUN, Trained


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return trainings of six trainers of TRL, and some without barograph or with a broken one."""
    if importlib.util.find_spec("trl") is None:
        pytest.skip("trl is not installed")
    trained = Trained(tmp_path_factory.mktemp("watched"))
    own = ["grpo", "rloo", "sft:report", "dpo", "kto", "reward"]
    others = ["grpo:broken", "sft:unbegun", "grpo:plain", "dpo:plain", "sft:plain"]
    trained.train("watched_trl.py", trained.folder, 25, *own, *others)
    return trained


@pytest.fixture(scope="session")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return trainings of six trainers of TRL under torchrun, with two processes."""
    if importlib.util.find_spec("trl") is None:
        pytest.skip("trl is not installed")
    trained = Trained(tmp_path_factory.mktemp("ranks"))
    trainings = ["grpo", "rloo", "sft:report", "dpo", "kto", "reward"]
    trained.train("watched_trl.py", trained.folder, 3, *trainings, launcher=TORCHRUN)
    return trained


@pytest.fixture(scope="session")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return loops of Accelerate and Lightning, of which one fails."""
    if importlib.util.find_spec("accelerate") is None or importlib.util.find_spec("lightning") is None:
        pytest.skip("accelerate or lightning is not installed")
    trained = Trained(tmp_path_factory.mktemp("loops"))
    trained.train("tiny_loops.py", "accelerate", "lightning", "failing")
    return trained
