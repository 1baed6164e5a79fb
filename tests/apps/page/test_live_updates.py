"""Server-sent events while a real process writes."""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from serving_runs import Serve, eventually, serving

import barograph
from barograph.answers.runs.listing import RunDirectory
from barograph.apps.page.http.live import Hub

WRITER = """
import sys, time, barograph
run = barograph.init(id="live", dir=sys.argv[1])
for step in range(1000):
    run.log({"critic/score/mean": step / 1000})
    run.commit(step)
    print(step, flush=True)
    if sys.stdin.readline().strip() == "end":
        break
run.finish()
"""


class Process:
    """A training process that logs one step per call."""

    def __init__(self, dir: Path) -> None:
        command = [sys.executable, "-c", WRITER, str(dir)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.step()

    def step(self, command: str = "") -> int:
        """Log the next step, unless it is the first; return the logged step."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if command:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        return int(self._process.stdout.readline() or -1)

    def end(self) -> None:
        """Finish the run and wait for the process."""
        self._process.communicate("end\n")


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Decode a stream of server-sent events."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def first(stream: Iterator[tuple[str, Any]], name: str) -> Any:
    """Return the next event of a name."""
    return next(data for event, data in stream if event == name)


def test_a_new_step_is_an_event_while_a_process_writes(serve: Serve, tmp_path: Path):
    """Then the status when the run ends, and the list; every page has its own stream."""
    client = serve()
    training = Process(tmp_path / "runs")
    with (
        client.stream("GET", "/api/live?run=live&list=1") as one,
        httpx.stream("GET", f"{client.base_url}/api/live?run=live", timeout=60) as two,
    ):
        assert one.headers["content-type"].startswith("text/event-stream")
        first_page, second_page = events(one.iter_lines()), events(two.iter_lines())
        assert first(first_page, "hello")["run"]["status"] == "running"
        assert first(second_page, "hello")["run"]["last_step"] == 0
        for expected in (1, 2):
            assert training.step("on") == expected
            for page in (first_page, second_page):
                assert any(event == "data" and data["last_step"] == expected for event, data in page)
        training.end()
        assert first(first_page, "status") == {"run": "live", "status": "finished", "reason": ""}
        assert first(first_page, "runs")["cursor"]


def test_polling_stops_with_the_last_page(tmp_path: Path):
    """Two pages share one task per run; none is left when the last page disconnects."""
    run = barograph.init(id="idle")
    run.log({"a": 1.0}, step=0)
    directory = RunDirectory(tmp_path / "runs")

    async def watch() -> None:
        hub = Hub(directory)
        pages = [hub.stream(["idle"], listed=True), hub.stream(["idle"], listed=False)]
        for page in pages:
            assert (await anext(page)).startswith(b"event: hello")
        assert hub.watched == ["idle", ""]
        for page in pages:
            await page.aclose()  # type: ignore[attr-defined]
        assert hub.watched == []
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(watch())
    directory.close()
    run.finish()


def test_several_runs_are_watched_and_only_those_that_change_are_read(tmp_path: Path, monkeypatch: Any):
    """One task looks for changes, and a poll of a run that has none costs nothing."""
    monkeypatch.setattr("barograph.apps.page.http.live.LOOKS_PER_STATUS", 10**9)
    monkeypatch.setattr("barograph.apps.page.http.live.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("barograph.recording.run.HEARTBEAT_SECONDS", 600.0)
    runs = [barograph.init(id=f"r{number}", concurrent=True) for number in range(5)]
    for run in runs:
        run.log({"a": 1.0}, step=0)
    directory = RunDirectory(tmp_path / "runs")
    polled: list[str] = []

    async def watch() -> None:
        hub = Hub(directory)
        state = hub._run_state
        monkeypatch.setattr(hub, "_run_state", lambda key: [polled.append(key), state(key)][1])
        page = hub.stream([run.id for run in runs], listed=False)
        text = (await anext(page)).decode()
        while text.count("event: data") < 4:  # of the runs behind the first
            text += (await anext(page)).decode()
        assert set(polled) == {"r0", "r1", "r2", "r3", "r4"}
        while polled:  # until nothing is polled in thirty looks
            del polled[:]
            await asyncio.sleep(0.3)
        runs[3].log({"a": 2.0}, step=1)
        text = ""
        while '"last_step":1' not in text:
            text = (await anext(page)).decode()
        assert [data["run"] for _, data in events(iter(text.splitlines()))] == ["r3"]
        assert set(polled) == {"r3"}
        assert len(asyncio.all_tasks()) <= 4  # this one, the look, and the poll with its thread
        await page.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        assert hub.watched == []

    asyncio.run(watch())
    directory.close()
    for run in runs:
        run.finish()


def test_an_unknown_run_cannot_be_watched(serve: Serve):
    """The request fails with 404, and one for too many runs with 413."""
    client = serve()
    assert client.get("/api/live?run=nobody").status_code == 404
    assert client.get("/api/live", params={"run": [f"r{number}" for number in range(65)]}).status_code == 413


def test_a_server_ends_its_streams_before_it_stops(tmp_path: Path):
    """With a ``bye`` event; a connected page does not delay the end."""
    run = barograph.init(id="idle")
    run.log({"a": 1.0}, step=0)
    seen: list[str] = []
    with serving(tmp_path / "runs") as client:
        address = f"{client.base_url}/api/live"

        def listen() -> None:
            with httpx.stream("GET", address, timeout=60) as stream:
                for name, _ in events(stream.iter_lines()):
                    seen.append(name)

        listener = threading.Thread(target=listen)
        listener.start()
        eventually(lambda: seen)
    listener.join(20)
    assert not listener.is_alive()
    assert seen[-1] == "bye"
    run.finish()


def test_a_page_that_disconnects_while_its_run_opens_does_not_affect_others(tmp_path: Path, monkeypatch: Any):
    """The list is still polled for the other page."""
    run = barograph.init(id="slow")
    run.log({"a": 1.0}, step=0)
    directory = RunDirectory(tmp_path / "runs")
    opening, leave = threading.Event(), threading.Event()

    def slow(*given: Any) -> dict[str, Any]:
        opening.set()
        leave.wait(20)
        return {}

    async def watch() -> None:
        hub = Hub(directory)
        monkeypatch.setattr(hub, "_run_state", slow)
        listing = hub.stream([], listed=True)
        await anext(listing)
        leaving = asyncio.create_task(anext(hub.stream(["slow"], listed=True)))  # type: ignore[arg-type]
        await asyncio.to_thread(opening.wait, 20)
        leaving.cancel()
        leave.set()
        await asyncio.wait([leaving])
        assert hub.watched == [""]
        await listing.aclose()  # type: ignore[attr-defined]
        assert hub.watched == []

    asyncio.run(watch())
    directory.close()
    run.finish()


def test_a_removed_run_has_no_status_event(serve: Serve, tmp_path: Path):
    """The event of the list reports it."""
    run = barograph.init(id="short")
    run.log({"a": 1.0}, step=0)
    run.finish()
    with serve().stream("GET", "/api/live?run=short&list=1") as stream:
        received = events(stream.iter_lines())
        assert first(received, "hello")["run"]["status"] == "finished"
        shutil.rmtree(run.path)
        statuses = []
        for name, data in received:
            statuses.append((name, data.get("status", "")))
            if name == "runs":
                break
        assert not any(status is None for _, status in statuses)
