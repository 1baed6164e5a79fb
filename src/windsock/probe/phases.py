"""What a training loop enters and leaves: a phase (``with``, ``async with`` or a decorator) and one passage."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, TypeVar

from windsock.journal.frames import phase_text
from windsock.probe.clocks import DeviceClock
from windsock.probe.memory import Held, HostReading, Watch
from windsock.scalars import Deferred

Function = TypeVar("Function", bound=Callable[..., Any])
Amount = Any
"""A number, a mapping of what is counted to a number, or a function that returns one of them when the work is done."""

current_span: ContextVar[Span | None] = ContextVar("windsock_span", default=None)


class Span:
    """One passage through a phase. ``tokens`` may be set in the body, as an alternative to ``tokens=`` of the phase."""

    __slots__ = (
        "clock", "deferred", "entered", "execute", "failed", "flops", "held", "host", "id", "kinds", "lane", "left",
        "mark", "nested", "offload", "onload", "open", "outer", "own", "owner", "parent", "parent_id", "phase", "spent",
        "step", "stretch", "thread", "tokens", "watch",
    )  # fmt: skip

    def __init__(self, phase: Phase, owner: object = None, entered: float = 0.0) -> None:
        self.phase = phase
        self.owner = owner  # who records it, and in which process: nobody, where it is None
        self.entered = entered
        self.left = entered
        self.mark = entered  # where the present stretch began
        self.stretch = "onload" if phase.onload is not None else "execute"
        self.onload: float | None = None
        self.execute: float | None = None
        self.offload: float | None = None
        self.spent = 0.0  # on probing inside the present stretch, by spans within this one
        self.nested = 0.0  # the same, over all stretches
        self.own = 0.0  # on probing this span
        self.open = True
        self.failed = False
        self.id = 0
        self.outer: Span | None = None  # what was current at the entry
        self.parent: Span | None = None  # the nearest of those that is open and of the same run
        self.parent_id = 0
        self.lane = ""
        self.thread = 0
        self.step: Any = None
        self.tokens: Any = phase.tokens
        self.kinds: dict[str, float] = {}  # tokens by what they are
        self.flops: dict[str, float] = {}  # by model
        self.deferred: tuple[tuple[str, ...], Deferred] | None = None  # tokens that are still on a device
        self.clock: DeviceClock | None = None
        self.watch: Watch | None = None
        self.held: dict[str, dict[int, Held]] = {}
        self.host: dict[str, HostReading] = {}

    @property
    def seconds(self) -> float:
        """Onload, execute and offload together."""
        return (self.onload or 0.0) + (self.execute or 0.0) + (self.offload or 0.0)


class Timekeeper(Protocol):
    """Who writes spans down. None of this raises."""

    def open(self, phase: Phase) -> Span:
        """Begin a span; its first stretch begins as this returns."""

    def turn(self, span: Span, stretch: str) -> None:
        """End the present stretch; the next one begins as this returns."""

    def close(self, span: Span, failed: bool) -> None:
        """End the present stretch and the span."""


class Unrecorded:
    """Records nothing, for a run that is disabled: what the phases do for the caller is still done."""

    def open(self, phase: Phase) -> Span:
        """Return a span that is of no use."""
        return Span(phase)

    def turn(self, span: Span, stretch: str) -> None:
        """Do nothing."""

    def close(self, span: Span, failed: bool) -> None:
        """Do nothing."""


class Phase:
    """A named stretch of a step. It may be entered again and again, inside itself, from threads and from tasks.

    ``onload`` and ``offload`` are the caller's: what they do is timed apart from the body. An exception of the body
    still offloads, is recorded, and goes on its way; so do those of ``onload`` and ``offload`` themselves.
    """

    def __init__(
        self,
        timekeeper: Timekeeper,
        name: str,
        timer: bool = False,
        onload: Callable[[], Any] | None = None,
        offload: Callable[[], Any] | None = None,
        tokens: Amount = None,
        flops: Amount = None,
        clock: str = "host",
    ) -> None:
        self.name = str(name)
        self.text = phase_text(self.name)
        self.timer = timer
        self.onload = onload
        self.offload = offload
        self.tokens = tokens
        self.flops = flops
        self.clock = clock
        self._timekeeper = timekeeper
        self._entered: list[Span] = []

    def __repr__(self) -> str:
        return f"<windsock {'timer' if self.timer else 'phase'} {self.name!r}>"

    def __enter__(self) -> Span:
        span = self._timekeeper.open(self)
        self._entered.append(span)
        if self.onload is not None:
            try:
                self.onload()
            except BaseException:
                self._close(span, failed=True)
                raise
            self._timekeeper.turn(span, "execute")
        return span

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        span, failed = self._leaving(), _failed(kind)
        if self.offload is None:
            self._close(span, failed)
            return
        self._timekeeper.turn(span, "offload")
        try:
            self.offload()
        except BaseException:
            failed = True
            raise
        finally:
            self._close(span, failed)

    async def __aenter__(self) -> Span:
        span = self._timekeeper.open(self)
        self._entered.append(span)
        if self.onload is not None:
            try:
                await _awaited(self.onload())
            except BaseException:
                self._close(span, failed=True)
                raise
            self._timekeeper.turn(span, "execute")
        return span

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        span, failed = self._leaving(), _failed(kind)
        if self.offload is None:
            self._close(span, failed)
            return
        self._timekeeper.turn(span, "offload")
        try:
            await _awaited(self.offload())
        except BaseException:
            failed = True
            raise
        finally:
            self._close(span, failed)

    def __call__(self, function: Function) -> Function:
        """Decorate a function or a coroutine function: every call is a passage."""
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"{function.__qualname__} is a generator: enter the phase inside of it instead")
        wrap = _around_coroutine if inspect.iscoroutinefunction(function) else _around
        return wrap(self, function)  # type: ignore[no-any-return]

    def _leaving(self) -> Span:
        """Return the span that is left: this context's innermost of this phase, else the newest of all."""
        span = current_span.get()
        while span is not None and not (span.phase is self and span.open):
            span = span.outer
        if span is None:
            span = self._entered[-1] if self._entered else Span(self)
        return span

    def _close(self, span: Span, failed: bool) -> None:
        if span in self._entered:
            self._entered.remove(span)
        self._timekeeper.close(span, failed)


def _failed(kind: type[BaseException] | None) -> bool:
    return kind is not None and not issubclass(kind, GeneratorExit)


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


def lane() -> str:
    """Name what runs at this moment: a task of asyncio, else a thread."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        task = asyncio.current_task()
        if task is not None:
            return str(task.get_name())
    thread = threading.current_thread()
    return "main" if thread is threading.main_thread() else thread.name


def amounts(given: Amount) -> dict[str, Any]:
    """Return an amount by what it counts; a bare number counts "tokens"."""
    value = given() if callable(given) else given
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else {"tokens": value}
