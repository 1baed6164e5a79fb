"""Phases and spans: a phase is a context manager or decorator, a span is one entry into it, timed by the host's clock
or the device's and encoded as two frames.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from barograph.base.scalars import Deferred
from barograph.journal.format import frames
from barograph.journal.format.fields import OPEN_STEP
from barograph.journal.format.frames import FAILED, TIMER, phase_text
from barograph.recording.probe.devices import DeviceMemory, HostReading, MemoryPeaks, TorchEvent

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

    def __init__(self, make_event: Callable[[], TorchEvent | None]) -> None:
        self._make = make_event
        self._events: list[tuple[str, TorchEvent]] = []

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


Function = TypeVar("Function", bound=Callable[..., Any])

Amount = Any
"""A number, a mapping of kind to number, or a function that returns either and is called when the phase ends."""

# A context variable, not a thread-local: tasks of asyncio alternate in one thread and must not nest in each other.
current_span: ContextVar[Span | None] = ContextVar("barograph_span", default=None)


class Span:
    """One entry into a phase. The body may set ``tokens``, as an alternative to the phase's ``tokens=``."""

    __slots__ = (
        "clock", "deferred", "device_memory", "entered", "execute", "failed", "flops", "host", "id", "lane", "left",
        "nested_overhead", "offload", "onload", "open", "outer", "own_overhead", "owner", "parent", "parent_id",
        "peaks", "phase", "stage", "stage_overhead", "stage_start", "step", "thread", "tokens", "tokens_by_kind",
    )  # fmt: skip

    def __init__(self, phase: Phase, owner: object = None, entered: float = 0.0) -> None:
        self.phase = phase
        self.owner = owner  # identifies the probe and process that record the span; None: not recorded
        self.entered = entered
        self.left = entered
        self.stage_start = entered  # when the current stage began
        self.stage = "onload" if phase.onload is not None else "execute"
        self.onload: float | None = None
        self.execute: float | None = None
        self.offload: float | None = None
        self.stage_overhead = 0.0  # seconds that the probe spent on nested spans in the current stage
        self.nested_overhead = 0.0  # the same over all stages
        self.own_overhead = 0.0  # seconds that the probe spent on this span
        self.open = True
        self.failed = False
        self.id = 0
        self.outer: Span | None = None  # current span at entry
        self.parent: Span | None = None  # nearest outer span that is open and belongs to the same run
        self.parent_id = 0
        self.lane = ""
        self.thread = 0
        self.step: Any = None
        self.tokens: Any = phase.tokens
        self.tokens_by_kind: dict[str, float] = {}
        self.flops: dict[str, float] = {}  # by model
        self.deferred: tuple[tuple[str, ...], Deferred] | None = None  # token counts that are still on a device
        self.clock: DeviceClock | None = None
        self.peaks: MemoryPeaks | None = None
        self.device_memory: dict[str, dict[int, DeviceMemory]] = {}
        self.host: dict[str, HostReading] = {}

    @property
    def seconds(self) -> float:
        """Sum of onload, execute and offload."""
        return (self.onload or 0.0) + (self.execute or 0.0) + (self.offload or 0.0)


class SpanRecorder:
    """What records spans. This one is of a disabled run: it records nothing. The methods of none raise."""

    def open(self, phase: Phase) -> Span:
        """Begin a span. Its first stage begins when this returns."""
        return Span(phase)

    def switch_stage(self, span: Span, stage: str) -> None:
        """End the current stage. The next one begins when this returns."""

    def close(self, span: Span, failed: bool) -> None:
        """End the current stage and the span."""


class Phase:
    """A named section of a step. It is re-entrant and may be entered from several threads and tasks.

    The ``onload`` and ``offload`` callables are timed apart from the body. ``offload`` is also called after an
    exception in the body. Exceptions of all three are recorded and raised again.
    """

    def __init__(
        self,
        recorder: SpanRecorder,
        name: str,
        timer: bool = False,
        onload: Callable[[], Any] | None = None,
        offload: Callable[[], Any] | None = None,
        tokens: Amount = None,
        flops: Amount = None,
        clock: str = "host",
    ) -> None:
        self.name = str(name)
        # Encoded once: both frames of every span contain it.
        self.text = phase_text(self.name)
        self.timer = timer
        self.onload = onload
        self.offload = offload
        self.tokens = tokens
        self.flops = flops
        self.clock = clock
        self._recorder = recorder
        # All open spans, for an exit in a context that does not have the entry, such as another thread.
        self._entered: list[Span] = []

    def __repr__(self) -> str:
        return f"<barograph {'timer' if self.timer else 'phase'} {self.name!r}>"

    def __enter__(self) -> Span:
        span = self._open()
        if self.onload is not None:
            with self._closed_on_failure(span):
                self.onload()
            self._recorder.switch_stage(span, "execute")
        return span

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        span, failed = self._start_leaving(kind)
        if self.offload is not None:
            with self._closed_on_failure(span):
                self.offload()
        self._close(span, failed)

    async def __aenter__(self) -> Span:
        span = self._open()
        if self.onload is not None:
            with self._closed_on_failure(span):
                await _awaited(self.onload())
            self._recorder.switch_stage(span, "execute")
        return span

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        span, failed = self._start_leaving(kind)
        if self.offload is not None:
            with self._closed_on_failure(span):
                await _awaited(self.offload())
        self._close(span, failed)

    def __call__(self, function: Function) -> Function:
        """Decorate a function or a coroutine function, so that each call is a span."""
        # The call of a generator function only makes the generator: the span would end before the first item.
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"{function.__qualname__} is a generator: enter the phase inside it instead")
        wrap = _around_coroutine if inspect.iscoroutinefunction(function) else _around
        return wrap(self, function)  # type: ignore[no-any-return]

    def _open(self) -> Span:
        span = self._recorder.open(self)
        self._entered.append(span)
        return span

    def _start_leaving(self, kind: type[BaseException] | None) -> tuple[Span, bool]:
        """Return the span to close, in its offload stage where there is one, and whether it failed."""
        span = self._leaving()
        if self.offload is not None:
            self._recorder.switch_stage(span, "offload")
        return span, kind is not None and not issubclass(kind, GeneratorExit)  # closing a generator is not a failure

    def _leaving(self) -> Span:
        """Return the span to close: this context's innermost one of this phase, else the newest of all."""
        # Phases may be left out of order or in another thread, so the current span need not be this phase's.
        span = current_span.get()
        while span is not None and not (span.phase is self and span.open):
            span = span.outer
        if span is None:
            span = self._entered[-1] if self._entered else Span(self)
        return span

    @contextmanager
    def _closed_on_failure(self, span: Span) -> Iterator[None]:
        """Close the span as failed after an exception."""
        try:
            yield
        except BaseException:
            self._close(span, failed=True)
            raise

    def _close(self, span: Span, failed: bool) -> None:
        if span in self._entered:
            self._entered.remove(span)
        self._recorder.close(span, failed)


async def _awaited(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


def _around(phase: Phase, function: Any) -> Any:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with phase:
            return function(*args, **kwargs)

    return timed


def _around_coroutine(phase: Phase, function: Any) -> Any:
    @functools.wraps(function)
    async def timed(*args: Any, **kwargs: Any) -> Any:
        async with phase:
            return await function(*args, **kwargs)

    return timed


def current_lane() -> str:
    """Return the name of the running asyncio task, or else of the thread."""
    # A task exists only where asyncio is loaded: do not import it for the others.
    asyncio = sys.modules.get("asyncio")
    # ``current_task`` raises where no loop is running; this function returns None.
    if asyncio is not None and asyncio._get_running_loop() is not None:
        task = asyncio.current_task()
        if task is not None:
            return str(task.get_name())
    thread = threading.current_thread()
    return "main" if thread is threading.main_thread() else thread.name


def amounts(given: Amount) -> dict[str, Any]:
    """Return an amount by kind; a bare number is of kind "tokens"."""
    value = given() if callable(given) else given
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else {"tokens": value}


def encode_open(span: Span, start: float) -> bytes:
    """Encode the start of a span; ``start`` is in Unix time."""
    return frames.phase_open_payload(*_head(span, start, OPEN_STEP))


def encode_close(span: Span, start: float, step: int | None, flags: int = 0) -> bytes:
    """Encode the end of a span; ``step`` is None while its step is not committed."""
    # The frame has the highest peak of all devices; the peak of each device is a metric.
    peaks = [peak for peak, _ in span.peaks.by_device.values()] if span.peaks is not None else ()
    # NaN means that there is no value: a stage that did not happen did not take 0 s.
    durations = (
        span.left - span.entered,
        math.nan if span.onload is None else span.onload,
        span.execute or 0.0,
        math.nan if span.offload is None else span.offload,
        sum(span.tokens_by_kind.values()) if span.tokens_by_kind else math.nan,
        max(peaks, default=math.nan),
        span.host["end"].rss if "end" in span.host else math.nan,
    )
    # The close frame repeats the fields of the open frame, so that a reader can do without either.
    head = _head(span, start, OPEN_STEP if step is None else step, flags | (FAILED if span.failed else 0))
    return frames.phase_close_payload(*head, durations, phase_text("+".join(span.tokens_by_kind)))


def _head(span: Span, start: float, step: int, flags: int = 0) -> tuple[int, int, int, float, int, bytes, bytes]:
    """Return the fields that both frames of a span have."""
    flags |= TIMER if span.phase.timer else 0
    return span.id, span.parent_id, step, start, flags, span.phase.text, phase_text(span.lane)
