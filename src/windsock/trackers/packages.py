"""The packages of other projects that trackers hand rows to."""

from __future__ import annotations

import importlib.util

from windsock.errors import TrackerError


def require(tracker: str, package: str | None = None) -> None:
    """Raise, saying what to install, unless a tracker's package is there; it is not imported."""
    found = importlib.util.find_spec(package or tracker)
    if found is None or found.origin is None:  # a folder ./wandb or ./mlflow of earlier runs is no package
        raise TrackerError(f"tracker {tracker!r} is not installed: pip install 'windsock[{tracker}]'")
