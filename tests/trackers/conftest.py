"""Fixtures for the tests of trackers: everything stays offline and in temporary directories."""

import os
from pathlib import Path

import pytest

OFFLINE = {
    "DO_NOT_TRACK": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
}
FOREIGN = ("HF_", "MLFLOW_", "SWANLAB_", "TRACKIO_", "WANDB_")


@pytest.fixture(scope="session", autouse=True)
def _trackio_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Trackio reads where its database is when it is imported, so this is set once."""
    os.environ["TRACKIO_DIR"] = str(tmp_path_factory.mktemp("trackio"))


@pytest.fixture(autouse=True)
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
