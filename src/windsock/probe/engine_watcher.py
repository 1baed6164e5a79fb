"""The thread that reads an inference engine every few seconds, beside the training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from windsock.errors import EngineError
from windsock.formatting import describe_error, duration
from windsock.probe.engine_averages import EngineAverages
from windsock.probe.engine_endpoint import HINT, TIMEOUT, Endpoint
from windsock.probe.engine_metrics import Exposition, read, readings
from windsock.problems import Problems

CALL = "run.watch_engine"
FAILURES_OF_OUTAGE = 2  # a busy engine misses one request without harm
MAX_PAUSE = 60.0  # seconds between two requests to an engine that is down
MAX_OUTAGES_TOLD = 10
MAX_REASON = 200  # characters
SHORTEST_WAIT = 0.25  # of the interval: rates over a shorter time are noise


class EngineWatcher:
    """Thread that reads one engine. While it does not answer, the pauses grow."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        averages: EngineAverages,
        open_phases: Callable[[], Iterable[str]],
        seconds: float,
        problems: Problems,
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self._averages = averages
        self._open_phases = open_phases
        self._seconds = seconds
        self._problems = problems
        self._before: Exposition | None = None
        self._failures = 0  # in a row
        self._outages = 0
        self._told: set[str] = set()
        self._answered = time.monotonic()  # last time, or when the watch began
        self._stop = threading.Event()
        averages.add_engine(name)
        self._thread = threading.Thread(target=self._loop, name=f"windsock-engine-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to stop, without waiting for it."""
        self._stop.set()

    def join(self, timeout: float) -> None:
        """Wait for the thread; a request in flight may outlast the timeout, and its answer is ignored."""
        self._thread.join(max(timeout, 0.0))

    def _loop(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            self._problems.attempt(CALL, self._read)
            wait = self._wait(time.monotonic())

    def _wait(self, now: float) -> float:
        """Return the seconds until the next request; all engines are read at the same moments."""
        pause = self._seconds
        if self._failures >= FAILURES_OF_OUTAGE:
            pause = max(pause, min(pause * 2.0 ** min(self._failures - 1, 20), MAX_PAUSE))
        wait = pause - now % self._seconds
        return wait if wait >= SHORTEST_WAIT * self._seconds else wait + self._seconds

    def _read(self) -> None:
        try:
            text = self.endpoint.fetch()
            now = read(text, time.monotonic())
            if now is None:
                raise EngineError(f"the answer has no metrics of vLLM or SGLang; {HINT}")
            found = readings(now, self._before)
        except Exception as error:  # noqa: BLE001 - whatever a socket, TLS or a foreign server gives
            if not self._stop.is_set():
                self._fail(error)
            return
        if self._stop.is_set():
            return
        self._before = now
        self._averages.add(self.name, found, self._open_phases(), now.served())
        self._succeed(now.time)

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self._averages.add_failure(self.name, self._failures >= FAILURES_OF_OUTAGE)
        if self._failures != FAILURES_OF_OUTAGE:
            return
        self._outages += 1
        text = f"{self._shown} cannot be read: {_reason(error)}"
        self._problems.report(CALL, EngineError(f"{text}; it is asked again, after pauses of up to {MAX_PAUSE:.0f} s"))
        if text in self._told and self._outages <= MAX_OUTAGES_TOLD:  # of equal problems only the first is printed
            self._problems.warn(f"{text} (outage {self._outages})")
        self._told.add(text)

    def _succeed(self, moment: float) -> None:
        if self._failures >= FAILURES_OF_OUTAGE and self._outages <= MAX_OUTAGES_TOLD:
            number = f" (outage {self._outages})" if self._outages > 1 else ""  # equal texts are printed once
            silence = duration(moment - self._answered)
            self._problems.warn(f"{self._shown} answers now; it did not for {silence}{number}")
        self._failures, self._answered = 0, moment

    @property
    def _shown(self) -> str:
        return f"engine {self.name!r} at {self.endpoint.place}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:.0f} s"
    text = str(error) if isinstance(error, EngineError) else describe_error(error)
    return text[:MAX_REASON]  # the error may quote what the server sent
