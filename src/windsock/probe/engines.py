"""The inference engines that a run watches."""

from __future__ import annotations

import itertools
import time
from typing import Any
from urllib.parse import parse_qsl

from windsock.probe.engine_endpoint import Endpoint, host_and_port
from windsock.probe.engine_watcher import EngineWatcher
from windsock.probe.probe import Probe
from windsock.recording import Recording
from windsock.settings import engine_url

MAX_ENGINES = 256
MAX_NAME = 100  # characters
END_SECONDS = 0.2  # to wait for requests in flight when the run ends; their threads are daemons


class Engines:
    """The threads of a run that read engines, by the engine's name."""

    def __init__(self, recording: Recording, probe: Probe) -> None:
        self._recording = recording
        self._probe = probe
        self._watchers: dict[str, EngineWatcher] = {}

    def watch(self, url: Any, name: Any = None) -> None:
        """Start to read an engine. A known name at another address has moved there.

        Only the first process of a role reads engines: all processes of a training run the same script, and each engine
        must count once.
        """
        recording, parts = self._recording, engine_url(url)
        recording.redactor.redact({"password": parts.password, **dict(parse_qsl(parts.query))})  # learns them
        if recording.writer.rank > 0 or recording.settings.engine_seconds <= 0:
            return
        endpoint = Endpoint(parts)
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
            self._probe.engines,
            self._probe.open_names,
            recording.settings.engine_seconds,
            recording.problems,
        )

    def _refusal(self, endpoint: Endpoint, name: str) -> str | None:
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
