"""Fixtures that several tests share."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import windsock.session

OFFLINE = {
    "DO_NOT_TRACK": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
}
FOREIGN = ("HF_", "MLFLOW_", "SWANLAB_", "TRACKIO_", "WANDB_")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let somebody look at what the page shows in its tests."""
    parser.addoption("--screenshots", type=Path, help="a folder for pictures of the page")


def pytest_configure(config: pytest.Config) -> None:
    """Say where Trackio's database is before anybody imports Trackio, which is when it reads that."""
    folder = tempfile.TemporaryDirectory(prefix="trackio-")
    os.environ["TRACKIO_DIR"] = folder.name
    config.add_cleanup(folder.cleanup)


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Keep variables of the machine out, runs in a temporary directory, and no run open afterwards."""
    for name in list(os.environ):
        if name.startswith(("WINDSOCK_", "SLURM_", "TORCHELASTIC_")) or name in (
            "RANK",
            "WORLD_SIZE",
            "LOCAL_WORLD_SIZE",
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WINDSOCK_DIR", str(tmp_path / "runs"))
    yield
    for run in list(windsock.session._runs):
        run.finish()


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep out what the machine's user has set or logged in to; work in a directory of the test's own."""
    for name in list(os.environ):
        if name.startswith(FOREIGN) and name != "TRACKIO_DIR":
            monkeypatch.delenv(name)
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    return folder
