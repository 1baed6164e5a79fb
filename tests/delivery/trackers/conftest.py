"""Fixtures for tracker tests: offline, in temporary directories."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _at_home(home: Path) -> None:
    """Work in a fresh home directory."""
