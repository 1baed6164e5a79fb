"""Interface of a run to those who show it: views of journals, and importers of other formats."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from windsock.journal.series import Series
from windsock.journal.spans import SpanTable
from windsock.model import Histogram, LoggedText, MissingRank, PhaseSpan, Problem, RunInfo, Status, Writer


class Readable(Protocol):
    """A run that can be read. What a format does not have is empty."""

    path: Path
    source: str | None  # the framework that wrote the names, where it is stated

    @property
    def info(self) -> RunInfo:
        """Id, name and project."""
        ...

    @property
    def status(self) -> Status:
        """The status, with the reason."""
        ...

    @property
    def config(self) -> dict[str, Any]:
        """The config, without secrets."""
        ...

    @property
    def environment(self) -> dict[str, Any]:
        """Host, command, commit and packages."""
        ...

    @property
    def steps(self) -> tuple[int, int] | None:
        """The first and the last step."""
        ...

    @property
    def span(self) -> tuple[float, float]:
        """The times of the start and of the last row or event."""
        ...

    def refresh(self) -> bool:
        """Read what is new; return whether there was anything."""
        ...

    def writers(self) -> list[Writer]:
        """Return all writers, attempt by attempt."""
        ...

    def writer_statuses(self) -> dict[Writer, Status]:
        """Return the status of the newest attempt of each role and rank."""
        ...

    def events(self) -> list[dict[str, Any]]:
        """Return the events, by time."""
        ...

    def skipped(self) -> dict[str, tuple[str, int]]:
        """Return the values that could not be logged: name to reason and count."""
        ...

    def problems(self) -> list[Problem]:
        """Return the calls of the training loop that failed."""
        ...

    def missing_ranks(self) -> list[MissingRank]:
        """Return the ranks that steps lack."""
        ...

    def damage(self) -> list[str]:
        """Return a message for each part that could not be read."""
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
        """Return the logged texts."""
        ...

    def phases(self, step: int | None = None) -> list[PhaseSpan]:
        """Return the spans of phases, in the order in which they began."""
        ...

    def span_table(self) -> SpanTable:
        """Return the spans of phases as columns."""
        ...

    def step_windows(self) -> dict[Writer, dict[int, tuple[float, float]]]:
        """Return start and end of each step of each writer."""
        ...
