"""The thread that packs and writes samples with measured tokens: compressing them takes longer than a commit may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

MAX_WAITING = 4
"""Calls that may wait for the thread; a further one is made at once, by the thread that asks for it."""
SECONDS_AT_END = 30.0
SECONDS_BEFORE = 0.02
"""How long the thread waits with a call: until the commit is over, which would share the interpreter with it."""

Call = Callable[[], None]


class TokenWriter:
    """Makes calls in a thread of its own, one after the other. The calls must not raise.

    It may be used from a signal handler: ``put`` of a SimpleQueue is re-entrant, and nothing else is locked.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()

    def put(self, call: Call) -> None:
        """Make a call soon."""
        if self._calls.qsize() >= MAX_WAITING:
            call()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="windsock-tokens", daemon=True)
            self._thread.start()
        self._calls.put(call)

    def finish(self) -> None:
        """Wait until all calls were made."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ends.set()
            self._calls.put(None)
            thread.join(SECONDS_AT_END)
            self._ends.clear()

    def _loop(self) -> None:
        while (call := self._calls.get()) is not None:
            self._ends.wait(SECONDS_BEFORE)
            call()
