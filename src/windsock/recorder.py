"""What a run lends to the rooms that give it its calls: who it is, its journal, and how things are told.

``Run`` is the sum of such parts: rollouts, samples and phases each bring a class with their own calls, and each is
imported with its first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from windsock.journal.writer import JournalWriter
from windsock.model import RunInfo, Writer
from windsock.settings import Settings


class Recorder(ABC):
    """One writer of a run that is being recorded."""

    info: RunInfo
    writer: Writer
    step: int | None
    _settings: Settings
    _journal: JournalWriter

    @property
    def shared(self) -> bool:
        """Whether other processes hold parts of the same steps, so that states are written beside values."""
        return self._settings.world_size > 1 or self.writer.rank > 0

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the run is over for this process."""

    @abstractmethod
    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Write values."""

    @abstractmethod
    def commit(self, step: int | None = None) -> None:
        """End a step."""

    @abstractmethod
    def notice(self, text: str) -> None:
        """Tell something once."""

    @abstractmethod
    def skip(self, refused: Mapping[str, str]) -> None:
        """Count values that cannot be recorded."""

    @abstractmethod
    def guard(self, problem: Exception) -> None:
        """Show a problem; the training goes on."""

    @abstractmethod
    def as_step(self, step: Any) -> int | None:
        """Return a step as an integer; None, and a word, where it is none."""
