"""Detection of how the process ends: normally, by an uncaught exception, by Ctrl-C, or by SIGTERM.

``call_on_exit`` registers a callback that is called once with the status. Earlier exception hooks are still called, and
a SIGTERM handler of the user stays in place.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from windsock.model import Status

Callback = Callable[[Status], object]

_callbacks: list[tuple[int, Callback]] = []  # with the id of their process: a forked child inherits the list
_ending = Status("finished")
_installed = False
_previous_hook: Any = None


def call_on_exit(callback: Callback) -> None:
    """Register a callback for the end of the process."""
    _install()
    _callbacks.append((os.getpid(), callback))


def cancel_on_exit(callback: Callback) -> None:
    """Remove a callback."""
    with suppress(ValueError):
        _callbacks.remove((os.getpid(), callback))


def crash_status(kind: type[BaseException], problem: BaseException | None) -> Status:
    """Return the status of a run that ends with an exception."""
    if issubclass(kind, KeyboardInterrupt):
        return Status("killed", "interrupted (Ctrl-C)")
    if issubclass(kind, SystemExit):
        code = getattr(problem, "code", None)
        return Status("finished") if code in (None, 0) else Status("crashed", f"SystemExit: {code}")
    if issubclass(kind, GeneratorExit):
        return Status("finished")
    return Status("crashed", f"{kind.__name__}: {problem}".removesuffix(": "))


def _install() -> None:
    global _installed, _previous_hook
    if _installed:
        return
    _installed = True
    atexit.register(_run_callbacks)
    _previous_hook, sys.excepthook = sys.excepthook, _on_exception
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_exception(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    global _ending
    _ending = crash_status(kind, problem)
    _previous_hook(kind, problem, trace)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    global _ending
    _ending = Status("killed", "SIGTERM")
    _run_callbacks()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTERM)


def _run_callbacks() -> None:
    while _callbacks:
        process, callback = _callbacks.pop()
        if process == os.getpid():
            callback(_ending)
