"""What a tracker is, and what one offers whose rows shall arrive exactly once."""

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
    that it raised for are offered again. ``TrackerError`` out of ``start`` means that the configuration is wrong;
    any other exception, that the place is out of reach for now.

    Two attributes are shown to users where a tracker has them: ``url``, where to look at the result, and
    ``skipped``, how many values the place refused. One that has a true ``own_rows`` shows what its process does: it
    gets the rows of that writer alone.
    """

    in_process: ClassVar[bool]
    """Whether it lives in the training process (it shows something there) or behind the relay."""

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Begin, or go on with, the run that ``info`` names; ``config`` holds no secrets."""

    def log(self, rows: Sequence[Row]) -> None:
        """Show or keep these rows."""

    def finish(self, status: Status) -> None:
        """End: everything was delivered, and this is how the run ended."""


@runtime_checkable
class Rewindable(Protocol):
    """What a tracker may offer besides, so that a row that is offered again is not there twice.

    Rows come from the journal by a cursor that survives its carrier. Whoever carries them saves the cursor together
    with a mark of the tracker, and after a crash goes on from the last pair that was saved::

        start(...) → rewind(saved mark, or {}) → mark() → log(...) → mark() → … → finish(...) → mark()

    A tracker without these two methods has its cursor saved after every ``log``: its rows arrive at least once, which
    is enough where the same row twice is the same as once.
    """

    def mark(self) -> dict[str, Any] | None:
        """Make safe what was logged so far and say where that is, as plain JSON.

        None where it cannot be known to be safe yet: the cursor then stays at the mark before. Asked for between
        calls of ``log`` and once more after ``finish``.
        """

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Be as at this mark: what came after it is offered again. An empty mark is the beginning of the run."""


class Link(Protocol):
    """What a run holds of whoever carries its rows on: to trackers, in its process or outside, or from a spool."""

    def start(self) -> None:
        """Begin; raises ``TrackerError`` where a tracker's configuration is wrong."""

    def tend(self) -> None:
        """See that the carrying goes on; called now and then, never by the training loop."""

    def values(self) -> dict[str, float]:
        """Return how the trackers are doing, to be logged."""

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all is delivered; say of each tracker that has something left how much, and what to do."""

    def after_fork_in_child(self) -> None:
        """Let go of what is the parent's."""
