"""What a tracker is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from windsock.model import Row, RunInfo, Status


@runtime_checkable
class Tracker(Protocol):
    """A place where rows are shown or kept.

    It is constructed with its keyword arguments (the parameters of ``__init__`` are what users may configure; a
    wrong value raises ``TrackerError`` there), started once, given rows in the order in which their steps were
    committed, and finished. It is never called by the training loop itself, so it may block and it may raise: rows
    that it raised for are offered again.
    """

    in_process: ClassVar[bool]
    """Whether it lives in the training process (it shows something there) or behind the relay."""

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Begin, or go on with, the run that ``info`` names; ``config`` holds no secrets."""

    def log(self, rows: Sequence[Row]) -> None:
        """Show or keep these rows."""

    def finish(self, status: Status) -> None:
        """End: everything was delivered, and this is how the run ended."""
