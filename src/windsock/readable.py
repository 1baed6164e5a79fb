"""What can be read of a run, wherever it was recorded: the seam between those who keep runs and those who show them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from windsock.journal.series import Series
from windsock.model import Histogram, LoggedText, PhaseSpan, Problem, RunInfo, Status, Writer


class Readable(Protocol):
    """A run as ``windsock.open`` gives it, and as importers give those of others. What it lacks is empty."""

    path: Path

    @property
    def info(self) -> RunInfo:
        """Who the run is."""
        ...

    @property
    def status(self) -> Status:
        """How it is doing."""
        ...

    @property
    def config(self) -> dict[str, Any]:
        """Its config, with secrets blank."""
        ...

    @property
    def environment(self) -> dict[str, Any]:
        """Where and with what it ran."""
        ...

    @property
    def steps(self) -> tuple[int, int] | None:
        """Its first and its last step."""
        ...

    @property
    def span(self) -> tuple[float, float]:
        """When it began and when it was last heard of."""
        ...

    def refresh(self) -> bool:
        """Read what is new; True where there was anything."""
        ...

    def writers(self) -> list[Writer]:
        """Return all writers, attempt by attempt."""
        ...

    def writer_statuses(self) -> dict[Writer, Status]:
        """Tell how the newest attempt of each role and rank is doing."""
        ...

    def events(self) -> list[dict[str, Any]]:
        """Return what happened, by time."""
        ...

    def skipped(self) -> dict[str, tuple[str, int]]:
        """Return the values that could not be logged: name to reason and count."""
        ...

    def problems(self) -> list[Problem]:
        """Return the calls of the training loop that failed."""
        ...

    def damage(self) -> list[str]:
        """Say what could not be read."""
        ...

    def names(self, pattern: str | Iterable[str] = "*") -> list[str]:
        """Return the names of the metrics, in the order logged."""
        ...

    def series(self, name: str, role: str | None = None, rank: int | None = None, attempt: int | None = None) -> Series:
        """Return one metric over steps."""
        ...

    def histogram_names(self) -> list[str]:
        """Return the names under which histograms were logged."""
        ...

    def histograms(self, name: str) -> list[tuple[int | None, Histogram]]:
        """Return the histograms logged under a name, with their steps."""
        ...

    def texts(self) -> list[LoggedText]:
        """Return what was logged as text."""
        ...

    def phases(self, step: int | None = None) -> list[PhaseSpan]:
        """Return the passages through phases, in the order in which they began."""
        ...

    def step_windows(self) -> dict[Writer, dict[int, tuple[float, float]]]:
        """Return from when to when each step of each writer went."""
        ...
