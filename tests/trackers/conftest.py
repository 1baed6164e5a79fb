"""Fixtures for the tests of trackers: everything stays offline and in temporary directories."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _at_home(home: Path) -> None:
    """Work in a home of the test's own."""
