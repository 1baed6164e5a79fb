"""A clock, devices and a run with known readings, for tests of the probe."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import barograph
from barograph.recording.probe.devices import Accelerators, AllocatorStats, HostReading
from barograph.recording.probe.phases import HostClock
from barograph.recording.probe.recorder import Probe


class Time:
    """A clock that stands still until a test advances it; with a tick, every reading advances it."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now = 100.0
        self.tick = tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now

    def passes(self, seconds: float) -> Callable[[], None]:
        """Return a function that advances the clock."""

        def wait() -> None:
            self.now += seconds

        return wait


class KnownDevice:
    """An allocator whose memory the test sets."""

    def __init__(self, index: int = 0, total: int | None = 1000, peaks: bool = True) -> None:
        self.index, self.total, self.name, self.uuid = index, total, "NVIDIA H200", f"GPU-{index}"
        self.held = self.peak = 0
        self.peaks = peaks
        self.calls: list[str] = []

    def hold(self, size: int) -> None:
        self.held = size
        self.peak = max(self.peak, size)

    def read(self) -> AllocatorStats:
        self.calls.append("read")
        if not self.peaks:
            return AllocatorStats(self.held, 2 * self.held)
        return AllocatorStats(self.held, 2 * self.held, self.peak, 2 * self.peak)

    def reset_peaks(self) -> None:
        self.calls.append("reset")
        self.peak = self.held


class KnownEvent:
    """A device event that is reached when the test sets it so."""

    def __init__(self, queue: "KnownQueue") -> None:
        self.queue = queue
        self.at = queue.time

    def reached(self) -> bool:
        return self.queue.done

    def wait(self) -> None:
        self.queue.waited += 1

    def seconds_since(self, earlier: "KnownEvent") -> float:
        return self.at - earlier.at


class KnownQueue:
    """The time and state of a device's queue, set by the test."""

    def __init__(self) -> None:
        self.time = 0.0
        self.done = False
        self.waited = 0


class KnownAccelerators(Accelerators):
    """The devices of a test."""

    def __init__(self, devices: Sequence[Any] = (), queue: KnownQueue | None = None) -> None:
        super().__init__()
        self._devices = list(devices)
        self._queue = queue

    def refresh(self) -> Sequence[Any]:
        return self._devices

    def record_event(self) -> Any:
        return None if self._queue is None else KnownEvent(self._queue)


def known_run(
    time: Callable[[], float] | None = None,
    devices: Sequence[Any] = (),
    queue: KnownQueue | None = None,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> barograph.Run:
    """Start a run whose probe has these readings."""
    run = barograph.init(**(settings or {}))
    options.setdefault("read_host", lambda: HostReading(2**30, 2**31))
    options.setdefault("read_host_used", lambda: 2**32)
    phases, recording = run._collectors.phases, run._recording
    phases.probe = Probe(
        recording.journal,
        phases._report,
        run.info.vocabulary,
        clock=HostClock(time) if time is not None else None,
        accelerators=KnownAccelerators(devices, queue),
        **options,
    )
    return run


def values(run: barograph.Run, step: int | None = None) -> dict[str, float]:
    """Return the journal's values: the last of each name, or those of a step."""
    view = barograph.open(Path(run.path))
    found = {}
    for name in view.names():
        series = view.series(name)
        at = dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
        if step is None:
            found[name] = series.last
        elif step in at:
            found[name] = at[step]
    return found
