"""States of the last steps in memory, for as long as it is unknown whether another process records the same steps."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

State = TypeVar("State")

MAX_STEPS = 64
MAX_BYTES = 16 << 20


class Sharing(Protocol):
    """What a buffer asks of the recording."""

    settings: Any
    journal: Any

    @property
    def shared(self) -> bool:
        """Whether other processes record the same steps."""

    @property
    def known_to_be_shared(self) -> bool:
        """The same as of the last time that it was asked for: nothing is looked at."""


class StateBuffer(Generic[State]):
    """States that are written at once in a run of several processes, and kept while there may be others.

    A process that is alone for certain keeps and writes none. ``write`` is called with the step, the state and its
    time. ``kind`` names the states in the event that a process writes when another one joins it.
    """

    def __init__(self, recording: Sharing, kind: str, write: Callable[[int, State, float], object]) -> None:
        self._recording = recording
        self._kind = kind
        self._write = write
        self.after_fork()

    def after_fork(self) -> None:
        """Drop the states: the parent writes them."""
        self._lock = threading.RLock()  # re-entrant: SIGTERM may end the run anywhere
        self._kept: deque[tuple[int, State, float, int]] = deque()
        self._states_of: Counter[int] = Counter()  # how many are kept, by step
        self._bytes = 0
        self._dropped = 0  # states
        self._alone: set[tuple[str, str]] = set()  # kinds of states that were not written because of that

    def wants(self, kind: str, taskset: str = "") -> bool:
        """Return whether states are written, or may be later; if not now, the journal says so for that kind."""
        if self._recording.shared:
            return True
        if (kind, taskset) not in self._alone:
            self._alone.add((kind, taskset))
            self._recording.journal.event("alone", kind=kind, taskset=taskset)
        return self._recording.settings.alone is None

    def add(self, step: int, state: State, size: int) -> None:
        """Write a state of ``size`` bytes, or keep it. ``wants`` has looked for other processes before."""
        if self._recording.known_to_be_shared:
            self.flush(step)
            self._write(step, state, time.time())
        elif self._recording.settings.alone is None:
            with self._lock:
                self._kept.append((step, state, time.time(), size))
                self._states_of[step] += 1
                self._bytes += size
                self._limit()

    def flush(self, next_step: int | None = None) -> None:
        """Write the states that were kept, if another process has joined meanwhile; ``next_step`` has the next one."""
        if not self._alone or not self._recording.shared:
            return
        with self._lock:
            kept, self._kept, self._bytes = self._kept, deque(), 0
            self._states_of.clear()
            steps = [step for step, *_ in kept] + ([] if next_step is None else [next_step])
            if not steps:
                return
            self._alone.clear()
        # Readers know from this event that earlier steps of this process have no states, rather than nothing to add.
        gone = self._dropped if self._recording.settings.alone is None else 1
        self._recording.journal.event("shared", kind=self._kind, since=min(steps), dropped=gone)
        for step, state, at, _ in kept:
            self._write(step, state, at)

    def _limit(self) -> None:
        while len(self._kept) > 1 and (len(self._states_of) > MAX_STEPS or self._bytes > MAX_BYTES):
            step, _, _, size = self._kept.popleft()
            self._bytes -= size
            self._dropped += 1
            self._states_of[step] -= 1
            if not self._states_of[step]:
                del self._states_of[step]
