"""Interfaces of trackers: ``Tracker``, the optional ``Rewindable``, and the client that delivers a run's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from barograph.base.model import Row, RunInfo, Status


@runtime_checkable
class Tracker(Protocol):
    """A destination for rows, such as TensorBoard or W&B.

    The parameters of ``__init__`` are the tracker's settings; a wrong value raises ``TrackerError`` there. The tracker
    is started once, receives rows in the order in which their steps were committed, and is finished. The training loop
    never calls it, so it may block and it may raise: rows for which ``log`` raised are delivered again.
    ``TrackerError`` from ``start`` means that the configuration is wrong, any other exception that the destination is
    not reachable now.

    Optional attributes: ``url`` (address of the result) and ``skipped`` (number of values that the destination does not
    support) are shown to users. A tracker with a true ``own_rows`` receives only the rows of its own process.
    """

    in_process: ClassVar[bool]
    """Whether the tracker runs in the training process, or else in the relay process."""

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Start or continue the run of ``info``; ``config`` contains no secrets."""

    def log(self, rows: Sequence[Row]) -> None:
        """Show or store these rows."""

    def finish(self, status: Status) -> None:
        """End the run after all rows are delivered; ``status`` is its final state."""


@runtime_checkable
class Rewindable(Protocol):
    """Optional methods with which each row is stored exactly once, also after a crash.

    Rows are read from the journal with a cursor. The cursor is saved together with a mark of the tracker, and delivery
    resumes from the last saved pair::

        start(...) → rewind(saved mark, or {}) → mark() → log(...) → mark() → … → finish(...) → mark()

    For a tracker without these methods the cursor is saved after every ``log``. Its rows arrive at least once, which is
    enough where storing a row twice equals storing it once.
    """

    def mark(self) -> dict[str, Any] | None:
        """Make the rows so far durable and return their position as plain JSON.

        Return None where that is not possible yet: the cursor then stays at the previous mark. Called between calls of
        ``log`` and once after ``finish``.
        """

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Return to this mark; the rows after it are delivered again. An empty mark is the start of the run."""


class DeliveryClient:
    """Interface of a run to what delivers its rows to trackers, or copies them from a spool; by default it is idle."""

    def start(self) -> None:
        """Start the delivery; raise ``TrackerError`` where a tracker's configuration is wrong."""

    def maintain(self) -> None:
        """Check that the delivery is running, and restart it if not. Called by a background thread."""

    def values(self) -> dict[str, float]:
        """Return the delivery's metrics, such as rows behind and failures."""
        return {}

    def wait(self, status: Status, timeout: float) -> list[str]:
        """Wait until all rows are delivered; return a message for each tracker that has rows left."""
        return []

    def after_fork_in_child(self) -> None:
        """Drop the parent's connections and threads."""
