"""The two clocks of a phase: the host's monotonic clock, and the device's, read without synchronising."""

from __future__ import annotations

import time
from collections.abc import Callable

from windsock.probe.devices import DeviceEvent

CLOCKS = ("host", "device")


class HostClock:
    """Monotonic clock, with its offset to Unix time taken once, at construction."""

    def __init__(self, now: Callable[[], float] = time.perf_counter, wall: Callable[[], float] = time.time) -> None:
        self.now = now
        # Once: NTP may set the wall clock during a run, and spans must not jump with it.
        self._offset = wall() - now()

    def unix(self, moment: float) -> float:
        """Convert a reading of this clock to Unix time."""
        return self._offset + moment


class DeviceClock:
    """Device times of a span's stages, from events recorded in the device's queue at their boundaries.

    The time between two events is the device's work and its waiting for the host. Work queued before the span is not
    included.
    """

    __slots__ = ("_events", "_make")

    def __init__(self, make_event: Callable[[], DeviceEvent | None]) -> None:
        self._make = make_event
        self._events: list[tuple[str, DeviceEvent]] = []

    def record(self, ended_stage: str = "") -> None:
        """Record an event at the end of a stage; the first event is the start of the span."""
        event = self._make()
        if event is not None:
            self._events.append((ended_stage, event))

    @property
    def usable(self) -> bool:
        """Whether a device recorded events."""
        # A training may initialise its device inside its first span, which then has an end and no start.
        return len(self._events) > 1

    def ready(self) -> bool:
        """Return whether the device has reached all events, without waiting."""
        # Last event first: in one stream it is reached after the others, so one query answers while the device is busy.
        return all(event.reached() for _, event in reversed(self._events))

    def seconds(self) -> dict[str, float]:
        """Return the device's seconds per stage; wait for the device where it is not done."""
        self._events[-1][1].wait()
        pairs = zip(self._events, self._events[1:], strict=False)
        return {stage: event.seconds_since(before) for (_, before), (stage, event) in pairs}
