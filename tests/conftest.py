"""Fixtures that several tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import windsock.session


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
