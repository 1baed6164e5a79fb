"""Live updates: one task per thing that is watched, however many pages watch it, and none when nobody does.

A task looks at sizes of files a few times a second, in a thread, and reads on where they have grown. Pages are told
that there is something new, not what: they fetch what they show, from their cursors.
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
from windsock.server.responses import RequestError, encode
from windsock.server.runs.directory import Site
from windsock.server.runs.open_runs import Opened

RUN_SECONDS = 0.25
LIST_SECONDS = 1.0
BEAT_SECONDS = 15.0
STATUS_LOOKS = 8  # looks at an unchanged run between two at its status
THREADS = 4
LIST = ""  # the topic that is no run's


class Topic:
    """Something that is watched: what is known of it, and how many watch."""

    def __init__(self, look: Callable[[int, dict[str, Any]], dict[str, Any]], seconds: float) -> None:
        self.look = look
        self.seconds = seconds
        self.facts: dict[str, Any] = {}
        self.watchers = 0
        self.task: asyncio.Task[None] | None = None


class Hub:
    """Everything that is watched at the moment."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._topics: dict[str, Topic] = {}
        self._news: asyncio.Condition | None = None
        self._limiter: anyio.CapacityLimiter | None = None
        self._closed = False

    async def stream(self, run: str | None, listed: bool) -> AsyncIterator[bytes]:
        """Yield events for one page until it goes, or the server ends."""
        keys = [*([run] if run is not None else []), *([LIST] if listed or run is None else [])]
        async with self._watching(keys) as topics:
            seen = {key: topic.facts for key, topic in topics.items()}
            yield _event("hello", _hello(seen, run))
            while not self._closed:
                changed = await self._wait(topics, seen)
                if not changed and not self._closed:
                    yield b": still here\n\n"
                for key in changed:
                    before, seen[key] = seen[key], topics[key].facts
                    for name, data in _news(key, before, seen[key]):
                        yield _event(name, data)
            yield _event("bye", {})

    @property
    def watched(self) -> list[str]:
        """What is watched at the moment: keys of runs, and the list as an empty one."""
        return list(self._topics)

    async def close(self) -> None:
        """Say goodbye to all pages and stop watching."""
        self._closed = True
        for topic in self._topics.values():
            if topic.task is not None:
                topic.task.cancel()
        if self._news is not None:
            async with self._news:
                self._news.notify_all()

    @asynccontextmanager
    async def _watching(self, keys: list[str]) -> AsyncIterator[dict[str, Topic]]:
        topics = {key: self._topics.setdefault(key, self._topic(key)) for key in keys}
        for topic in topics.values():
            topic.watchers += 1
        try:
            for topic in topics.values():
                if topic.task is None:
                    await self._look(topic, 0)
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
            return Topic(lambda turn, before: {"cursor": self._site.listing.cursor()}, LIST_SECONDS)
        return Topic(lambda turn, before: self._run_facts(key, turn, before), RUN_SECONDS)

    async def _watch(self, topic: Topic) -> None:
        turn = 0
        while True:
            await asyncio.sleep(topic.seconds)
            turn += 1
            await self._look(topic, turn)

    async def _look(self, topic: Topic, turn: int) -> None:
        if self._limiter is None or self._news is None:
            self._limiter, self._news = anyio.CapacityLimiter(THREADS), asyncio.Condition()
        try:
            facts = await anyio.to_thread.run_sync(topic.look, turn, topic.facts, limiter=self._limiter)
        except (RequestError, WindsockError, OSError):  # it vanished; it may come back
            facts = {"gone": True}
        if facts != topic.facts:
            topic.facts = facts
            async with self._news:
                self._news.notify_all()

    async def _wait(self, topics: dict[str, Topic], seen: dict[str, dict[str, Any]]) -> list[str]:
        """Wait until something is new; return what, or nothing when it is time for a sign of life."""
        assert self._news is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_SECONDS), self._news:
                while not self._closed:
                    changed = [key for key, topic in topics.items() if topic.facts is not seen[key]]
                    if changed:
                        return changed
                    await self._news.wait()
        return []

    def _run_facts(self, key: str, turn: int, before: dict[str, Any]) -> dict[str, Any]:
        """Look at a run; at its status, which the clock changes too, only now and then."""
        with self._site.library.use(key) as opened:
            if before.get("version") == opened.version and turn % STATUS_LOOKS:
                return before
            return _of_run(opened)


def _of_run(opened: Opened) -> dict[str, Any]:
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
    told: dict[str, Any] = {"version": __version__}
    if run is not None:
        told["run"] = {"key": run, **seen[run]}
    return {**told, **seen.get(LIST, {})}


def _news(key: str, before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    if key == LIST:
        return [("runs", now)]
    if now.get("gone"):  # the list tells that
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
