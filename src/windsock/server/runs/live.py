"""Live updates as server-sent events: one polling task per watched run or list, shared by all pages that watch it.

A task compares file sizes a few times a second, in a worker thread, and refreshes the run when they change. Events
report that something is new, without the data: pages fetch what they show, from their cursors. A task ends with its
last page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread

from windsock import __version__
from windsock.errors import WindsockError
from windsock.formatting import describe_error
from windsock.server.responses import RequestError, encode
from windsock.server.runs.directory import RunDirectory
from windsock.server.runs.open_runs import OpenRun

RUN_SECONDS = 0.25
LIST_SECONDS = 1.0
KEEPALIVE_SECONDS = 15.0
POLLS_PER_STATUS = 8  # an unchanged run's status is computed at every eighth poll
THREADS = 4  # for polls only: a directory that hangs does not take the threads of requests
LIST = ""  # the list's topic; the other topics are keys of runs


class Topic:
    """A watched run or the list: its last known state and the number of pages that watch it."""

    def __init__(self, poll: Callable[[int, dict[str, Any]], dict[str, Any]], seconds: float) -> None:
        self.poll = poll
        self.seconds = seconds
        self.state: dict[str, Any] = {}
        self.watchers = 0
        self.task: asyncio.Task[None] | None = None


class Hub:
    """The topics that pages watch now."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._topics: dict[str, Topic] = {}
        self._changed: asyncio.Condition | None = None
        self._limiter: anyio.CapacityLimiter | None = None
        self._closed = False

    async def stream(self, run: str | None, listed: bool) -> AsyncIterator[bytes]:
        """Yield events for one page until it disconnects or the server stops."""
        keys = [*([run] if run is not None else []), *([LIST] if listed or run is None else [])]
        async with self._watching(keys) as topics:
            seen = {key: topic.state for key, topic in topics.items()}
            yield _event("hello", _hello(seen, run))
            while not self._closed:
                changed = await self._wait(topics, seen)
                if not changed and not self._closed:
                    yield b": keep-alive\n\n"
                for key in changed:
                    before, seen[key] = seen[key], topics[key].state
                    for name, data in _events(key, before, seen[key]):
                        yield _event(name, data)
            yield _event("bye", {})

    @property
    def watched(self) -> list[str]:
        """The watched topics: keys of runs, and an empty string for the list."""
        return list(self._topics)

    async def close(self) -> None:
        """End all streams with a ``bye`` event and stop polling."""
        self._closed = True
        for topic in self._topics.values():
            if topic.task is not None:
                topic.task.cancel()
        if self._changed is not None:
            async with self._changed:
                self._changed.notify_all()

    @asynccontextmanager
    async def _watching(self, keys: list[str]) -> AsyncIterator[dict[str, Topic]]:
        # Count this page before the first await: another page that leaves meanwhile must not remove the topic.
        topics = {key: self._topics.setdefault(key, self._topic(key)) for key in keys}
        for topic in topics.values():
            topic.watchers += 1
        try:
            for topic in topics.values():
                if topic.task is None:
                    await self._poll(topic, 0)
                    # During the await another page may have created the task.
                    topic.task = topic.task or asyncio.create_task(self._watch(topic))
            yield topics
        finally:
            for key, topic in topics.items():
                topic.watchers -= 1
                if topic.watchers == 0:
                    self._topics.pop(key, None)
                    if topic.task is not None:
                        topic.task.cancel()

    def _topic(self, key: str) -> Topic:
        if key == LIST:
            return Topic(lambda turn, before: {"cursor": self._directory.listing.cursor()}, LIST_SECONDS)
        return Topic(lambda turn, before: self._run_state(key, turn, before), RUN_SECONDS)

    async def _watch(self, topic: Topic) -> None:
        turn = 0
        while True:
            await asyncio.sleep(topic.seconds)
            turn += 1
            await self._poll(topic, turn)

    async def _poll(self, topic: Topic, turn: int) -> None:
        # Not in __init__, which runs before there is an event loop.
        if self._limiter is None or self._changed is None:
            self._limiter, self._changed = anyio.CapacityLimiter(THREADS), asyncio.Condition()
        try:
            state = await anyio.to_thread.run_sync(topic.poll, turn, topic.state, limiter=self._limiter)
        except (RequestError, WindsockError, OSError):  # the run was removed; it may appear again
            state = {"gone": True}
        except Exception as problem:  # noqa: BLE001 - a stream that ends silently would show old data for ever
            state = {"status": "unreadable", "reason": describe_error(problem)}
        if state != topic.state:
            topic.state = state
            async with self._changed:
                self._changed.notify_all()

    async def _wait(self, topics: dict[str, Topic], seen: dict[str, dict[str, Any]]) -> list[str]:
        """Wait for changes; return the changed topics, or nothing when a keep-alive comment is due."""
        assert self._changed is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEPALIVE_SECONDS), self._changed:
                while not self._closed:
                    # A state is replaced and never changed, so another object is a change.
                    changed = [key for key, topic in topics.items() if topic.state is not seen[key]]
                    if changed:
                        return changed
                    await self._changed.wait()
        return []

    def _run_state(self, key: str, turn: int, before: dict[str, Any]) -> dict[str, Any]:
        """Return a run's state. Its status also depends on the clock, so it is computed again now and then."""
        with self._directory.open_runs.use(key) as opened:
            if before.get("version") == opened.version and turn % POLLS_PER_STATUS:
                return before
            return _run_state_record(opened)


def _run_state_record(opened: OpenRun) -> dict[str, Any]:
    view = opened.view
    steps, status = view.steps, view.status
    return {
        "version": opened.version,
        "last_step": steps[1] if steps else None,
        "names": len(view.names()),
        "last_heard": view.span[1],
        "status": status.word,
        "reason": status.reason,
    }


def _hello(seen: dict[str, dict[str, Any]], run: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {"version": __version__}
    if run is not None:
        data["run"] = {"key": run, **seen[run]}
    return {**data, **seen.get(LIST, {})}


def _events(key: str, before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    if key == LIST:
        return [("runs", now)]
    if now.get("gone"):  # the list's event reports it
        return []
    status = {name: now.get(name) for name in ("status", "reason")}
    data = {name: value for name, value in now.items() if name not in status}
    found = []
    if data != {name: value for name, value in before.items() if name not in status}:
        found.append(("data", {"run": key, **data}))
    if status != {name: before.get(name) for name in status}:
        found.append(("status", {"run": key, **status}))
    return found


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"
