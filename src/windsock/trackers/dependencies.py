"""Check for the optional packages that trackers need."""

from __future__ import annotations

import importlib.util

from windsock.errors import TrackerError


def require_package(tracker: str, package: str | None = None) -> None:
    """Raise ``TrackerError`` with the install command where a tracker's package is missing; import nothing."""
    found = importlib.util.find_spec(package or tracker)
    # A folder ./wandb or ./mlflow of earlier runs is found as a namespace package, which has no origin.
    if found is None or found.origin is None:
        raise TrackerError(f"tracker {tracker!r} is not installed: pip install 'windsock[{tracker}]'")
