"""Detection of how the process ends: normally, by an uncaught exception, an exit code, Ctrl-C, or SIGTERM.

``call_on_exit`` registers a callback that is called once with the status. Earlier exception hooks are still called, and
a SIGTERM handler of the user stays in place.

Python calls signal handlers in the main thread, between two bytecodes. A training step inside a C call would delay
the end of the process for as long as the call takes. So a thread is told of SIGTERM too (``signal.set_wakeup_fd``),
records the end if the main thread does not begin with it, and ends the process within ``END_SECONDS`` in any case.
"""

from __future__ import annotations

import atexit
import builtins
import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

from barograph.base.formatting import describe_error
from barograph.base.model import Status

Callback = Callable[[Status, bool], object]

MAIN_THREAD_SECONDS = 0.02  # for the main thread to begin with the end; inside a C call it cannot
END_SECONDS = 3.0  # from SIGTERM to the end of the process, whatever the callbacks wait for
CREDENTIALS = struct.Struct("3i")  # process, user and group of the sender of a message, on Linux

_callbacks: list[tuple[int, Callback]] = []  # with the id of their process: a forked child inherits the list
_crash: Status | None = None  # of an uncaught exception
_exit_code: Any = None  # of the main thread's last sys.exit, exit or quit
_installed = False
_child = 0  # the id of this process, if it is a child of multiprocessing whose end is handled
_is_script = False  # the process runs a file, not a module or a command line
_previous_hook: Any = None
_previous_exit: Any = None


class _Sigterm:
    """The state of SIGTERM in this process; a forked child begins with a new one."""

    def __init__(self) -> None:
        self.received = False  # also where the user has a handler
        self.receiver: socket.socket | None = None
        self.begun = threading.Lock()  # taken once, by whoever records the end; a signal handler may ask
        self.recorded = threading.Event()
        self._lock = threading.RLock()

    def read(self) -> bool:
        """Read the signals that have arrived; return whether SIGTERM is or was among them."""
        with self._lock:
            while self.receiver is not None and (number := _receive(self.receiver)) is not None:
                self.received = self.received or number == signal.SIGTERM
            return self.received


_sigterm = _Sigterm()


def call_on_exit(callback: Callback) -> None:
    """Register a callback for the end of the process.

    It is called with the status, and with True if it must be quick because the process was told to end.
    """
    _install()
    _install_in_child()
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
        return Status("killed", "SIGTERM") if _sigterm.read() else _exit_status(getattr(problem, "code", None))
    if issubclass(kind, GeneratorExit):
        return Status("finished")
    return Status("crashed", kind.__name__ if problem is None else describe_error(problem))


def _exit_status(code: Any) -> Status:
    succeeded = code is None or (isinstance(code, int) and code == 0)
    return Status("finished") if succeeded else Status("crashed", describe_error(SystemExit(code)))


def _install() -> None:
    global _installed, _is_script, _previous_exit, _previous_hook
    if not _installed:
        _installed = True
        main = sys.modules.get("__main__")
        _is_script = hasattr(main, "__file__") and getattr(main, "__spec__", None) is None
        atexit.register(_at_exit)
        _previous_hook, sys.excepthook = sys.excepthook, _on_exception
        _previous_exit, sys.exit = sys.exit, _on_sys_exit
        _remember_quit()
    if _sigterm.receiver is None and threading.current_thread() is threading.main_thread():
        _watch_sigterm()


def _install_in_child() -> None:
    """Handle the end of a child of ``multiprocessing``, which calls no exit handlers of Python if it was forked."""
    global _child
    library = sys.modules.get("multiprocessing")
    if _child == os.getpid() or library is None or library.parent_process() is None:
        return
    from multiprocessing.util import Finalize

    _child = os.getpid()
    Finalize(None, _at_child_exit, exitpriority=0)


def _at_child_exit() -> None:
    """Record the end; multiprocessing shows the exception later, without the hook for exceptions."""
    global _crash
    kind, problem, _ = sys.exc_info()
    if kind is not None and _crash is None:
        _crash = crash_status(kind, problem)
    _at_exit()


def _on_exception(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    global _crash
    _crash = crash_status(kind, problem)
    _previous_hook(kind, problem, trace)


def _on_sys_exit(code: Any = None, /) -> NoReturn:
    """Remember the exit code: Python tells it neither to exception hooks nor at exit."""
    _remember_exit_code(code)
    _previous_exit(code)
    raise AssertionError  # sys.exit does not return


def _remember_exit_code(code: Any) -> None:
    global _exit_code
    if threading.current_thread() is threading.main_thread():
        _exit_code = code


def _remember_quit() -> None:
    """Remember the exit code of ``exit`` and ``quit`` too, which do not call ``sys.exit``."""
    quitter: Any = type(getattr(builtins, "exit", None))
    if quitter.__module__ != "_sitebuiltins":  # python -S has none, and IPython others
        return
    call = quitter.__call__

    def remember_and_call(self: object, code: Any = None) -> None:
        _remember_exit_code(code)
        call(self, code)

    quitter.__call__ = remember_and_call


def _at_exit() -> None:
    if not _sigterm.begun.acquire(blocking=False):
        _sigterm.recorded.wait(END_SECONDS)  # another thread records the end after SIGTERM
        return
    _run_callbacks(_ending(), False)


def _ending() -> Status:
    """Return how the process ends."""
    if _crash is not None:
        return _crash
    if _sigterm.read():
        return Status("killed", "SIGTERM")
    # CPython removes __file__ when a script has run to its end or has raised, but not after SystemExit.
    caught = _is_script and not hasattr(sys.modules.get("__main__"), "__file__")
    return Status("finished") if caught else _exit_status(_exit_code)


def _run_callbacks(status: Status, hurry: bool) -> None:
    while _callbacks:
        process, callback = _callbacks.pop()
        if process == os.getpid():
            callback(status, hurry)
    _sigterm.recorded.set()


def _watch_sigterm() -> None:
    """Handle SIGTERM unless the user does, and start the thread that is told of it."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.setblocking(False)
    sender.setblocking(False)
    if hasattr(socket, "SO_PASSCRED"):
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    another = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    if another != -1:  # an event loop's: then the handler in the main thread must do
        signal.set_wakeup_fd(another)
        receiver.close()
        sender.close()
        return
    sender.detach()  # open as long as the process
    _sigterm.receiver = receiver
    threading.Thread(target=_watch, args=(_sigterm,), name="barograph-sigterm", daemon=True).start()


def _receive(receiver: socket.socket) -> int | None:
    """Return the number of the next signal; None if there is none. 0 is a signal of another process.

    A child shares the socket from its fork until it closes it: its signals are not this process's.
    """
    try:
        data, extra, _, _ = receiver.recvmsg(1, socket.CMSG_SPACE(CREDENTIALS.size))
    except OSError:
        return None
    for _, kind, content in extra:
        is_credentials = kind == getattr(socket, "SCM_CREDENTIALS", None) and len(content) >= CREDENTIALS.size
        if is_credentials and CREDENTIALS.unpack_from(content)[0] != os.getpid():
            return 0
    return data[0] if data else 0


def _watch(sigterm: _Sigterm) -> None:
    """Record the end and end the process if the main thread cannot."""
    assert sigterm.receiver is not None
    poll = select.poll()
    poll.register(sigterm.receiver, select.POLLIN)
    while True:
        poll.poll()
        if sigterm.read() and signal.getsignal(signal.SIGTERM) is _on_sigterm:
            break
    if not sigterm.recorded.wait(MAIN_THREAD_SECONDS) and sigterm.begun.acquire(blocking=False):
        with suppress(RuntimeError):  # no thread can be started: the interpreter exits, which records the end
            threading.Thread(target=_run_callbacks, args=(Status("killed", "SIGTERM"), True), daemon=True).start()
    _exit_in_time(sigterm)


def _exit_in_time(sigterm: _Sigterm) -> None:
    """End the process when the end is recorded, and in ``END_SECONDS`` in any case."""
    import ctypes

    sigterm.recorded.wait(END_SECONDS)
    with suppress(Exception):  # signal.signal works in the main thread only
        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
    _exit_by_sigterm()


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    """Record the end and exit, unless that has begun: a second SIGTERM must not cut it short."""
    if _sigterm.begun.acquire(blocking=False):
        with suppress(RuntimeError):  # no thread can be started: the interpreter exits
            # The other thread is not told of the signal where an event loop has taken the wakeup descriptor.
            threading.Thread(target=_exit_in_time, args=(_sigterm,), daemon=True).start()
        _run_callbacks(Status("killed", "SIGTERM"), True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _exit_by_sigterm()


def _exit_by_sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(128 + signal.SIGTERM)  # only where the signal is blocked


class _Forking(threading.local):
    """The fork that this thread makes."""

    mask: set[int | signal.Signals] | None = None  # of blocked signals, before it


_forking = _Forking()


def _before_fork() -> None:
    """Hold SIGTERM back: a child that it reached before its default action is restored would lose it."""
    if _installed:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    if _forking.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)
        _forking.mask = None


def _after_fork_in_child() -> None:
    """Leave SIGTERM to its default action in a forked child, and forget what its parent has caught before."""
    global _crash, _exit_code, _sigterm
    _crash = _exit_code = None
    if _sigterm.receiver is not None:
        signal.set_wakeup_fd(-1)
    if _installed and signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _sigterm = _Sigterm()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
