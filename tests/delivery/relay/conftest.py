"""Fixtures for the tests of the relay."""

import os
from pathlib import Path

import pytest
from kept import offer


@pytest.fixture
def trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make trackers that write rows to a file available to this process and its children."""
    offer(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}")
    return tmp_path
