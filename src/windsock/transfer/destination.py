"""The interface of a place that takes copies of a run's segments: a folder, a server, an actor on another node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from windsock.errors import WindsockError

Reason = Literal["access", "beyond", "broken", "busy", "differs", "limit", "name", "unreachable"]
"""Why a destination does not take a piece.

``beyond``: it begins after the bytes that are held; ``differs``: other bytes are held; ``broken``: it is not made of
complete frames, or was damaged on its way; ``name``: the run or the segment cannot have that name.
"""


class DestinationError(WindsockError):
    """A destination did not take a piece, or could not be asked.

    ``permanent``: the same call fails again; ``retry_after``: the seconds to wait before the next one; ``held``: the
    bytes of the segment that are held, where sending can go on.
    """

    def __init__(
        self,
        message: str,
        reason: Reason,
        *,
        permanent: bool = False,
        retry_after: float | None = None,
        held: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.permanent = permanent
        self.retry_after = retry_after
        self.held = held


class Destination(Protocol):
    """A place that holds copies of the segments of one run. Every call may block, and raises DestinationError."""

    def held(self) -> Mapping[str, int]:
        """Return how many bytes of each segment are held, by file name."""
        ...

    def append(self, segment: str, offset: int, data: bytes, last: bool = False) -> int:
        """Append a piece of a segment; return how many bytes of it are held then.

        A piece that is held already changes nothing. With ``last`` the writer has ended, and the piece may end with
        any bytes. ``held`` lies within a frame where a write was interrupted: a piece may begin before it.
        """
        ...

    def describe(self, info: bytes) -> None:
        """Store the run's ``run.json``; the first one counts."""
        ...

    def read(self, segment: str, offset: int, length: int) -> bytes:
        """Return bytes of a segment or of ``run.json``; fewer than asked at its end and where a piece has fewer."""
        ...
