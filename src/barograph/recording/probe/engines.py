"""The inference engines that a run watches: one request to an engine, with limits for its time and its size, and a
thread for each that reads it every few seconds, beside the training.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote

from barograph.base.errors import EngineError
from barograph.base.formatting import describe_error, duration
from barograph.base.problems import Problems
from barograph.base.settings import checked_url
from barograph.recording.context import Recording
from barograph.recording.probe.engine_metrics import EngineAverages, Exposition, read, readings

TIMEOUT = 3.0  # seconds; a busy engine answers late

MAX_BYTES = 8 << 20  # 64 data-parallel engines of vLLM in one server have about 4 MiB

CHUNK = 1 << 16

HEADERS = {"Accept": "text/plain;version=0.0.4", "User-Agent": "barograph"}

HINT = "vLLM serves them unless it has --disable-log-stats, SGLang with --enable-metrics"


class EngineEndpoint:
    """An address from which metrics are read. Proxies are not used: an engine is near."""

    def __init__(self, url: SplitResult) -> None:
        self._url = url
        self.address = (url.scheme, url.hostname, url.port, metrics_path(url.path), url.query)
        query = f"?{url.query}" if url.query else ""
        self._target = metrics_path(url.path) + query
        self._headers = HEADERS | _authorization(url)

    @property
    def place(self) -> str:
        """The address as people see it. Path, query and password may contain secrets and are left out."""
        return f"{self._url.scheme}://{host_and_port(self._url)}"

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def fetch(self) -> str:
        """Return the text of an answer; raise EngineError or OSError if there is none in time."""
        deadline = time.monotonic() + TIMEOUT
        connection = self._connection()
        try:
            connection.request("GET", self._target, headers=self._headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                hint = f"; {HINT}" if answer.status == http.client.NOT_FOUND else ""
                raise EngineError(f"HTTP {answer.status}{hint}")
            return _body(answer, deadline)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT)


def _body(answer: http.client.HTTPResponse, deadline: float) -> str:
    """Read a body up to the limits. The socket's timeout is for one packet: an endless body ends here."""
    found = bytearray()
    while chunk := answer.read1(CHUNK):
        found += chunk
        if len(found) > MAX_BYTES:
            raise EngineError(f"the answer has more than {MAX_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError
    return found.decode("utf-8", "replace")


def metrics_path(path: str) -> str:
    """Return the path of the metrics for one that a user gave: with it, without it, or that of the OpenAI API."""
    path = path.rstrip("/")
    return path if path.endswith("/metrics") else f"{path.removesuffix('/v1')}/metrics"


def host_and_port(url: SplitResult) -> str:
    """Return host and port of a URL without the user's name and password."""
    return url.netloc.rpartition("@")[2]


def _authorization(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    user = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


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
        endpoint: EngineEndpoint,
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
        self._thread = threading.Thread(target=self._loop, name=f"barograph-engine-{name}", daemon=True)
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


MAX_ENGINES = 256

MAX_NAME = 100  # characters

END_SECONDS = 0.2  # to wait for requests in flight when the run ends; their threads are daemons


class Engines:
    """The threads of a run that read engines, by the engine's name."""

    def __init__(
        self, recording: Recording, averages: EngineAverages, open_phases: Callable[[], Iterable[str]]
    ) -> None:
        self._recording = recording
        self._averages = averages
        self._open_phases = open_phases
        self._watchers: dict[str, EngineWatcher] = {}

    def watch(self, url: Any, name: Any = None) -> None:
        """Start to read an engine. A known name at another address has moved there.

        Only the first process of a role reads engines: all processes of a training run the same script, and each engine
        must count once.
        """
        recording, parts = self._recording, checked_url("engines", url)
        recording.redactor.redact({"password": parts.password, **dict(parse_qsl(parts.query))})  # learns them
        if recording.writer.rank > 0 or recording.settings.engine_seconds <= 0:
            return
        endpoint = EngineEndpoint(parts)
        chosen = str(name).strip().replace("/", "-")[:MAX_NAME] if name is not None else ""
        refusal = self._refusal(endpoint, chosen)
        if refusal is not None:
            if refusal:
                recording.problems.warn(f"watch_engine: {refusal}")
            return
        chosen = chosen or self._free_name(host_and_port(parts))
        if chosen in self._watchers:
            self._watchers[chosen].stop()
        self._watchers[chosen] = EngineWatcher(
            chosen,
            endpoint,
            self._averages,
            self._open_phases,
            recording.settings.engine_seconds,
            recording.problems,
        )

    def _refusal(self, endpoint: EngineEndpoint, name: str) -> str | None:
        """Return why an engine is not read a second time; empty if nothing needs to be said."""
        for known, watcher in self._watchers.items():
            if watcher.endpoint.address == endpoint.address:
                return "" if name in ("", known) else f"{endpoint.place} is read already, as {known!r}; not as {name!r}"
        if len(self._watchers) >= MAX_ENGINES and name not in self._watchers:
            return f"{MAX_ENGINES} engines are read; {endpoint.place} is not"
        return None

    def _free_name(self, name: str) -> str:
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        return next(name for name in names if name not in self._watchers)

    def stop(self) -> None:
        """Stop all threads. One that waits for an answer ends later, and records nothing."""
        for watcher in self._watchers.values():
            watcher.stop()
        deadline = time.monotonic() + END_SECONDS
        for watcher in self._watchers.values():
            watcher.join(deadline - time.monotonic())
