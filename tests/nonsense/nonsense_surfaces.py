"""Everything that reads a run, called on a directory with a run of nonsense beside an innocent one.

    python nonsense_surfaces.py DIR SEED FIRST STOP

checks the cases from FIRST up to STOP and prints what went wrong, one JSON object per line. It is a process of its
own: a reader that hangs or takes all memory costs this process, and its trace is printed.
"""

import asyncio
import contextlib
import faulthandler
import io
import json
import random
import resource
import shutil
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from nonsense_runs import Files, handmade, mutated, recorded

import barograph
from barograph.apps.cli import main
from barograph.apps.page.http.app import GuardMiddleware, page_app
from barograph.apps.page.http.guard import Guard
from barograph.base.errors import BarographError, MetricNotFoundError
from barograph.importers.summary import run_warnings
from barograph.journal.read.follower import RunFollower
from barograph.journal.read.status import glance
from barograph.journal.view import View
from pace import slowness

MAX_SECONDS = 3.0  # of a usual processor, for each reader: many times what one takes
MAX_BYTES = 200 << 20
HANG_SECONDS = 30  # then the process ends with a trace
MAX_ADDRESS_SPACE = 6 << 30  # a bomb raises MemoryError before it takes the machine
SERVER_SHARE, COMMAND_SHARE = 12, 6  # one run in so many is given to the slow readers
FOLLOW_SHARE = 4  # and to a follower, and read as a data frame
TURNS = 4  # one in so many of the commands is called on a run, the next one on the next
PATHS = (
    "overview", "names", "details", "events", "texts", "phases", "timeline", "memory", "evaluation", "samples",
    "series?name=critic/score/mean&name=time/step&branches=true&format=json",
    "series?name=x&x=relative&points=2&format=json",
    "histograms?name=h",
)  # fmt: skip
COMMANDS = (
    ["ls", "--json"], ["show", "BAD"], ["show", "BAD", "--json", "--all"], ["phases", "BAD"],
    ["phases", "BAD", "--json"], ["export", "BAD", "--to", "csv"], ["export", "BAD", "--to", "jsonl"],
    ["export", "BAD", "--to", "perfetto"],
    ["report", "BAD", "-o", "OUT"], ["samples", "BAD"], ["tail", "BAD", "--no-follow"], ["du"], ["show", "innocent"],
    ["query", "BAD", "step > 0", "--json"], ["compare", "BAD", "innocent", "--json"], ["doctor", "BAD", "--json"],
)  # fmt: skip


class Checker:
    """Calls readers one by one and prints what went wrong."""

    def __init__(self, dir: Path) -> None:
        self.dir = dir
        self.calls = self.cases = 0
        self._case = ""
        self._turn = 0
        threading.excepthook = lambda failed: self.note(
            "a thread", f"{failed.exc_type.__name__}: {failed.exc_value}"[:200]
        )

    @contextlib.contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Note an exception, more than a second, or more than 200 MB."""
        began, size = time.process_time(), _peak()
        self.calls += 1
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        try:
            yield
        except BarographError:
            pass  # a message to the user, such as "run bad has no phases"
        except BaseException as error:  # noqa: BLE001 - every one is a finding
            last = [
                f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
                for frame in traceback.extract_tb(error.__traceback__)
            ]
            self.note(what, f"{type(error).__name__}: {error}"[:200], " ".join(last[-4:]))
            del error
        finally:
            faulthandler.cancel_dump_traceback_later()
        seconds, extra = time.process_time() - began, _peak() - size
        if seconds > MAX_SECONDS and seconds > MAX_SECONDS * slowness():
            self.note(what, f"took {seconds:.1f} s")
        if extra > MAX_BYTES:
            self.note(what, f"took {extra >> 20} MB")

    def note(self, what: str, problem: str, where: str = "") -> None:
        """Add a problem."""
        found = {"case": self._case, "reader": what, "problem": problem, "where": where}
        print(json.dumps(found), file=sys.__stdout__, flush=True)

    def case(self, id: str, files: Files, server: bool = True, commands: bool = True) -> None:
        """Write a run and read it; the server and the commands are slower than the rest."""
        self.cases += 1
        self._case = id
        folder = self.dir / "p" / "bad"
        shutil.rmtree(folder, ignore_errors=True)
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self._views(folder)
        if server:
            self._server()
        if commands:
            self._commands(folder)

    def _views(self, folder: Path) -> None:
        with self.reading("glance"):
            glance(folder)
        if self.cases % FOLLOW_SHARE == 0:
            with self.reading("follow"):
                follower = RunFollower(folder, patience=0.0)
                for _ in range(3):
                    follower.new_rows()
                follower.take_unfinished()
        view: View | None = None
        with self.reading("view"):
            view = View(folder)
        if view is None:
            return
        for what, read in _readers(view).items():
            if what == "frame" and self.cases % FOLLOW_SHARE:
                continue
            with self.reading(what):
                read()

    def _commands(self, folder: Path) -> None:
        self._turn += 1
        for command in [["ls"], *COMMANDS[self._turn % TURNS :: TURNS]]:
            output = io.StringIO()
            words = [str(folder) if w == "BAD" else str(self.dir / "report.html") if w == "OUT" else w for w in command]
            with self.reading(f"barograph {' '.join(command)}"), contextlib.redirect_stdout(output):
                with contextlib.redirect_stderr(io.StringIO()):
                    code = main([*words, "--dir", str(self.dir)])
                about_innocent = "innocent" in command and "BAD" not in command
                if code and (command[0] in ("ls", "du") or about_innocent):
                    self.note(f"barograph {command[0]}", f"exit code {code}")
            if command[0] in ("ls", "du") and "innocent" not in output.getvalue():
                self.note(f"barograph {command[0]}", "the innocent run is not listed")
            if command[0] == "ls" and output.getvalue().count("\n") < 3:
                self.note(f"barograph {command[0]}", "the run of nonsense is not listed")

    def _server(self) -> None:
        asyncio.run(self._requests())

    async def _requests(self) -> None:
        page = page_app(self.dir)
        app = GuardMiddleware(page, Guard())
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            with self.reading("/api/runs"):
                listed = (await client.get("/api/runs")).json()["runs"]
                keys = {run["key"]: run for run in listed}
                if len(keys) != 2 or keys.get("innocent", {}).get("last_step") != 4:
                    self.note("/api/runs", f"lists {list(keys)}")
            bad = next((key for key in keys if key != "innocent"), "bad")
            for path in PATHS:
                with self.reading(f"/api/runs/bad/{path}"):
                    response = await client.get(f"/api/runs/{bad}/{path}")
                    if response.status_code not in (200, 400, 404):
                        self.note(path, f"status {response.status_code}: {response.text[:100]}")
            with self.reading("/api/live"):
                await self._live(page, bad)
            with self.reading("rewards"):
                await self._rewards(page, client)
            with self.reading("/api/runs/innocent/overview"):
                assert (await client.get("/api/runs/innocent/overview")).status_code == 200
        page.state.directory.close()

    async def _live(self, app: Any, bad: str) -> None:
        """Read the first event of the stream of the run and the list."""
        stream = app.state.hub.stream([bad], True)
        first = await asyncio.wait_for(anext(stream), 20)
        assert first.startswith(b"event: hello")
        assert b"cursor" in first
        await stream.aclose()

    async def _rewards(self, app: Any, client: httpx.AsyncClient) -> None:
        """Wait until the background thread has read both runs."""
        for _ in range(2000):
            found = (await client.get("/api/runs")).json()
            if not found["pending"]:
                [innocent] = [run for run in found["runs"] if run["key"] == "innocent"]
                assert len(innocent["reward"]["spark"]["min"]) == 5
                return
            await asyncio.sleep(0.01)
        raise TimeoutError("the rewards were not read")


def _readers(view: View) -> dict[str, Callable[[], Any]]:
    """Return what a view is asked for."""
    names: list[str] = []

    def series() -> None:
        for name in names[:30]:
            with contextlib.suppress(MetricNotFoundError):
                view.series(name).zoom(max_points=10)

    return {
        "status": lambda: (view.status, view.writer_statuses(), view.steps, view.span),
        "names": lambda: names.extend(view.names()),
        "series": series,
        "frame": lambda: view.frame(names[:100]),
        "phases": lambda: (view.phases(), view.step_windows()),
        "samples": lambda: (view.samples(limit=20), view.sample_census()),
        "events": lambda: (view.events(), view.config, view.environment, view.skipped(), view.problems()),
        "records": lambda: (view.texts(), [view.histograms(name) for name in view.histogram_names()]),
        "warnings": lambda: run_warnings(view),
        "repr": lambda: repr(view),
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def record_innocent(dir: Path) -> None:
    """Record the run that must be unharmed."""
    run = barograph.init(dir=dir, project="p", id="innocent", name="innocent")
    for step in range(5):
        with run.phase("a"):
            run.log({"critic/score/mean": float(step)})
        run.sample("prompt", "completion", reward=1.0)
        run.commit(step)
    run.finish()


def cases(seed: int) -> Iterator[tuple[str, Callable[[], Files]]]:
    """Yield the cases made by hand, then mutations without end."""
    yield from handmade().items()
    run = recorded()
    number = 0
    while True:
        yield f"seed {seed} number {number}", lambda number=number: mutated(run, random.Random(f"{seed} {number}"))
        number += 1


def check(dir: Path, seed: int, first: int, stop: int, only: str | None = None) -> Checker:
    """Check the cases from one number up to another."""
    warnings.simplefilter("error")
    checker = Checker(dir)
    record_innocent(dir)
    by_hand = list(handmade())
    for number, (id, make) in enumerate(cases(seed)):
        if number >= stop:
            break
        if number < first or only not in (None, id):
            continue
        # Cases that end in a number are many of one kind; of the others each is given to one of the slow readers.
        single = number < len(by_hand) and not id[-1].isdecimal()
        server = number % 2 == 0 if single else number % SERVER_SHARE == 0
        commands = number % 2 == 1 if single else number % COMMAND_SHARE == 0
        checker.case(id, make(), server or only is not None, commands or only is not None)
    return checker


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))
    only = sys.argv[5] if len(sys.argv) > 5 else None
    done = check(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), only)
    counts = {"cases": done.cases, "calls": done.calls, "seconds": round(time.process_time(), 1)}
    print(json.dumps(counts), flush=True)
