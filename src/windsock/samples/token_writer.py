"""The thread that packs and writes samples with measured tokens: compressing them takes longer than a commit may.

It looks for work from time to time. To wake it would cost the commit more than the work: it would have to wait until
the thread is asleep again, because only one thread has the interpreter.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

MAX_WAITING = 8
"""Calls that may wait for the thread; a further one is made at once, by the thread that asks for it."""
SECONDS_BETWEEN = 0.05
SECONDS_AT_END = 30.0

Call = Callable[[], None]


class TokenWriter:
    """Makes calls in a thread of its own, one after the other. The calls must not raise.

    It may be used from a signal handler: to append to a deque and to take from it is atomic.
    """

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()

    def put(self, call: Call) -> None:
        """Make a call soon."""
        if len(self._calls) >= MAX_WAITING:
            call()
            return
        self._calls.append(call)
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="windsock-tokens", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait until all calls were made."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ends.set()
            thread.join(SECONDS_AT_END)
            self._ends.clear()

    def _loop(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._ends.wait(SECONDS_BETWEEN)
            while self._calls:
                self._calls.popleft()()
