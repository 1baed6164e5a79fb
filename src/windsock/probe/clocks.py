"""The two clocks of a phase: the host's, which nobody sets, and the device's own, read without waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from windsock.probe.devices import Mark

CLOCKS = ("host", "device")


class HostClock:
    """Monotonic seconds, and what they are in Unix time as it was when the clock was made."""

    def __init__(self, now: Callable[[], float] = time.perf_counter, wall: Callable[[], float] = time.time) -> None:
        self.now = now
        self._offset = wall() - now()

    def unix(self, moment: float) -> float:
        """Return a moment of this clock in Unix time."""
        return self._offset + moment


class DeviceClock:
    """Marks in a device's queue at the boundaries of a span's stretches.

    Between two marks lies the time from when the device came to the first to when it came to the second: its work, and
    its waiting for the host. Work queued before the span is not in it.
    """

    __slots__ = ("_make", "_marks")

    def __init__(self, make: Callable[[], Mark | None]) -> None:
        self._make = make
        self._marks: list[tuple[str, Mark]] = []

    def mark(self, ended: str = "") -> None:
        """Put a mark where a stretch ended (the first one: where all began)."""
        mark = self._make()
        if mark is not None:
            self._marks.append((ended, mark))

    @property
    def usable(self) -> bool:
        """Whether there is a device that was marked."""
        return len(self._marks) > 1

    def ready(self) -> bool:
        """Tell whether the device has passed all marks, without waiting."""
        return all(mark.reached() for _, mark in reversed(self._marks))

    def seconds(self) -> dict[str, float]:
        """Return the device's seconds of each stretch, waiting for it where it has not got there."""
        self._marks[-1][1].wait()
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return {ended: mark.seconds_since(before) for (_, before), (ended, mark) in pairs}
