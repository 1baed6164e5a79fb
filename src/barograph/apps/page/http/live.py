"""Live updates as server-sent events: one task for all watched runs and one for the list, shared by all pages.

The task asks several times a second, in a worker thread, which watched runs have changed, and only those are refreshed.
Events report that something is new, without the data: pages fetch what they show, from their cursors. A task ends with
its last page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread

from barograph.answers.open_run import OpenRun, RunLocation
from barograph.answers.responses import encode
from barograph.answers.runs.listing import RunDirectory
from barograph.base import __version__
from barograph.base.errors import BarographError, RequestError
from barograph.base.formatting import describe_error

LOOK_SECONDS = 0.07  # between looks for runs that have changed
LOOKS_PER_POLL = 3  # of a run of whose changes the kernel does not tell
LOOKS_PER_STATUS = 25  # the status of an unchanged run depends on the clock
LIST_SECONDS = 2.0
MAX_LIST_SECONDS = 10.0
LIST_SHARE = 0.02  # of the time that is spent on the list: where thousands of runs go on, it is polled less often
KEEPALIVE_SECONDS = 15.0
THREADS = 4  # for polls only: a directory that hangs does not take the threads of requests
LIST = ""  # the list's topic; the other topics are keys of runs


class Topic:
    """A watched run or the list: its last known state and the number of pages that watch it."""

    def __init__(self, poll: Callable[[], dict[str, Any]]) -> None:
        self.poll = poll
        self.state: dict[str, Any] = {}
        self.watchers = 0
        self.turn = 0  # the look at which it was polled last
        self.is_due = False
        self.task: asyncio.Task[None] | None = None  # that polls it


class Hub:
    """The topics that pages watch now."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._topics: dict[str, Topic] = {}
        self._looking: asyncio.Task[None] | None = None
        self._changes = -1  # of files, as of the last look
        self._changed = asyncio.Condition()
        self._limiter = anyio.CapacityLimiter(THREADS)
        self._closed = False

    async def stream(self, runs: Sequence[str], listed: bool) -> AsyncIterator[bytes]:
        """Yield events for one page until it disconnects or the server stops."""
        keys = [*dict.fromkeys(runs), *([LIST] if listed or not runs else [])]
        async with self._watching(keys) as topics:
            seen = {key: topic.state for key, topic in topics.items()}
            yield _event("hello", _hello(seen, runs[0] if runs else None))
            while not self._closed:
                changed = await self._wait(topics, seen)
                if not changed and not self._closed:
                    yield b": keep-alive\n\n"
                found = []
                for key in changed:
                    before, seen[key] = seen[key], topics[key].state
                    found += [_event(name, data) for name, data in _events(key, before, seen[key])]
                if found:
                    yield b"".join(found)
            yield _event("bye", {})

    @property
    def watched(self) -> list[str]:
        """The watched topics: keys of runs, and an empty string for the list."""
        return list(self._topics)

    async def close(self) -> None:
        """End all streams with a ``bye`` event and stop polling."""
        self._closed = True
        for topic in self._topics.values():
            _cancel(topic.task)
        _cancel(self._looking)
        async with self._changed:
            self._changed.notify_all()

    @asynccontextmanager
    async def _watching(self, keys: list[str]) -> AsyncIterator[dict[str, Topic]]:
        # Count this page before the first await: another page that leaves meanwhile must not remove the topic.
        topics = {key: self._topics.setdefault(key, self._topic(key)) for key in keys}
        for topic in topics.values():
            topic.watchers += 1
        try:
            # The first run and the list are in the first event. Opening the other runs may take long.
            for key in dict.fromkeys((keys[0], keys[-1])):
                if not topics[key].state:
                    await self._poll(topics[key])
            for key, topic in topics.items():
                self._follow(key, topic)
            yield topics
        finally:
            for key, topic in topics.items():
                topic.watchers -= 1
                if topic.watchers == 0:
                    self._topics.pop(key, None)
                    _cancel(topic.task)
            if not any(self._topics):  # the key of the list is empty
                _cancel(self._looking)
                self._looking = None

    def _topic(self, key: str) -> Topic:
        if key == LIST:
            return Topic(lambda: {"cursor": self._directory.listing.cursor()})
        return Topic(lambda: self._run_state(key))

    def _follow(self, key: str, topic: Topic) -> None:
        """Begin to poll a topic, unless another page watches it already."""
        if key == LIST:
            topic.task = topic.task or asyncio.create_task(self._poll_list(topic))
            return
        if not topic.state:
            self._poll_soon(topic)
        self._looking = self._looking or asyncio.create_task(self._look())

    async def _poll_list(self, topic: Topic) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(min(max(LIST_SECONDS, took / LIST_SHARE), MAX_LIST_SECONDS))
            began = time.monotonic()
            await self._poll(topic)
            took = time.monotonic() - began

    async def _look(self) -> None:
        """Poll the watched runs that have changed."""
        turn = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            turn += 1
            topics = {key: topic for key, topic in self._topics.items() if key != LIST}
            try:
                due = await anyio.to_thread.run_sync(self._due, topics, turn, limiter=self._limiter)
            except (BarographError, OSError):
                due = list(topics)
            for key in due:
                topics[key].turn = turn
                if topics[key].watchers:
                    self._poll_soon(topics[key])

    def _due(self, topics: dict[str, Topic], turn: int) -> list[str]:
        """Return the runs to poll: those that have changed, and now and then those that may have."""
        locations = self._directory.open_runs.locations()
        folders = self._directory.open_runs.folders
        self._changes, changed = folders.changed_since(self._changes)
        may_have = turn % LOOKS_PER_POLL == 0

        def is_due(topic: Topic, location: RunLocation | None) -> bool:
            if location is None:  # it was removed, and may appear again
                return may_have
            is_old = turn - topic.turn >= LOOKS_PER_STATUS
            return is_old or location.path in changed or (may_have and not folders.tells(location.path))

        return [key for key, topic in topics.items() if is_due(topic, locations.get(key))]

    def _poll_soon(self, topic: Topic) -> None:
        topic.is_due = True
        if topic.task is None or topic.task.done():
            topic.task = asyncio.create_task(self._poll_while_due(topic))

    async def _poll_while_due(self, topic: Topic) -> None:
        while topic.is_due:  # it may have changed again while it was polled
            topic.is_due = False
            await self._poll(topic)

    async def _poll(self, topic: Topic) -> None:
        try:
            state = await anyio.to_thread.run_sync(topic.poll, limiter=self._limiter)
        except (RequestError, BarographError, OSError):  # the run was removed; it may appear again
            state = {"gone": True}
        except Exception as problem:  # noqa: BLE001 - a stream that ends silently would show old data for ever
            state = {"status": "unreadable", "reason": describe_error(problem)}
        if state != topic.state:
            topic.state = state
            async with self._changed:
                self._changed.notify_all()

    async def _wait(self, topics: dict[str, Topic], seen: dict[str, dict[str, Any]]) -> list[str]:
        """Wait for changes; return the changed topics, or nothing when a keep-alive comment is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEPALIVE_SECONDS), self._changed:
                while not self._closed:
                    # A state is replaced and never changed, so another object is a change.
                    changed = [key for key, topic in topics.items() if topic.state is not seen[key]]
                    if changed:
                        return changed
                    await self._changed.wait()
        return []

    def _run_state(self, key: str) -> dict[str, Any]:
        with self._directory.open_runs.use(key) as opened:
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


def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()


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
