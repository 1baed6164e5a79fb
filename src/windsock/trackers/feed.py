"""Feeding the trackers that live in the training process, each from a thread of its own.

The thread follows the journal like everyone else, so that the loop hands nothing over and a tracker that blocks or
raises costs it nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from windsock.journal.follow import Follower
from windsock.journal.segment import SegmentWriter
from windsock.model import Row, Status
from windsock.trackers.protocol import Tracker

LOOK_SECONDS = 0.25
TRIES = 3


class Feed:
    """Carries rows from a segment to one tracker until it is closed."""

    def __init__(self, name: str, tracker: Tracker, segment: SegmentWriter, say: Callable[[str], None]) -> None:
        self.name = name
        self.errors = 0
        self._say = say
        self._tracker = tracker
        self._segment = segment
        self._follower: Follower | None = None
        self._waiting: list[Row] = []
        self._tries = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=f"windsock-{name}", daemon=True)
        self._status = Status("finished")
        self._thread.start()

    def close(self, status: Status, timeout: float = 10.0) -> bool:
        """Deliver what is left and finish the tracker; False where it was not done in time."""
        self._status = status
        self._stop.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._deliver()
        for _ in range(TRIES):
            self._deliver(last=True)
        try:
            self._tracker.finish(self._status)
        except Exception as problem:  # noqa: BLE001 - a tracker may do anything
            self._complain(problem)

    def _deliver(self, last: bool = False) -> None:
        try:
            self._waiting += self._new_rows(last)
            if self._waiting:
                self._tracker.log(self._waiting)
                self._waiting, self._tries = [], 0
        except Exception as problem:  # noqa: BLE001 - a tracker may do anything
            self._complain(problem)

    def _new_rows(self, last: bool) -> list[Row]:
        """Read on, also in the further part where the segment had to be begun anew."""
        path = self._segment.path
        rows = self._follower.new_rows() if self._follower else []
        if path is not None and (self._follower is None or self._follower.path != path):
            self._follower = Follower(path, self._segment.writer)
            rows += self._follower.new_rows()
        if last and self._follower and (row := self._follower.take_unfinished()):
            rows.append(row)
        return rows

    def _complain(self, problem: Exception) -> None:
        """Count a failure, tell of the first, and give rows up that failed too often."""
        self.errors += 1
        self._tries += 1
        if self.errors == 1:
            self._say(f"tracker {self.name!r}: {type(problem).__name__}: {problem}")
        if self._tries >= TRIES:
            self._waiting, self._tries = [], 0
