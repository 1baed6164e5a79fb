"""Logs of other programs on the page: listed, opened, and followed as another process writes them."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing import CURVE, Open, drawn
from serving_runs import Serve, eventually, serving

from barograph.answers.runs.listing import RunDirectory
from barograph.importers import imported

JSON_WRITER = """
import json, sys
for step in range(10**6):
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps({"step": step, "reward": step / 10}) + "\\n")
    print(step, flush=True)
    sys.stdin.readline()
"""
CONSOLE_WRITER = """
import sys
print("starting the trainer", file=open(sys.argv[1], "a"))
for step in range(1, 10**6):
    with open(sys.argv[1], "a") as file:
        file.write(f"(TaskRunner pid=7) step:{step} - critic/score/mean:{step / 10} - actor/pg_loss:np.float64(0.5)\\n")
    print(step, flush=True)
    sys.stdin.readline()
"""


class Process:
    """A program that logs one step per call."""

    def __init__(self, code: str, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", code, str(log)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.last = self._read()

    def step(self) -> int:
        """Log the next step; return it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.last = self._read()
        return self.last

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _read(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def write(path: Path, steps: range = range(30)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": step, "reward": step / 10}) + "\n" for step in steps))
    minute_ago = time.time() - 60
    os.utime(path, (minute_ago, minute_ago))  # one that changed just now is looked at again
    return path


def fetch(client: httpx.Client, path: str, **query: Any) -> Any:
    response = client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def listed(client: httpx.Client) -> list[dict[str, Any]]:
    """Return the rows of the list when all logs were read."""
    found: list[dict[str, Any]] = eventually(lambda: (t := fetch(client, "/api/runs"))["pending"] == 0 and t["runs"])
    return found


def last_step(client: httpx.Client, key: str, name: str) -> float:
    [one] = fetch(client, f"/api/runs/{key}/series", name=name, format="json", points=0)["series"]
    return float(one["x"][-1])


def test_a_log_is_a_run_of_the_list(serve: Serve, tmp_path: Path):
    """With the facts of its import; every part of the page has an answer, and nothing is written beside it."""
    write(tmp_path / "logs" / "lab" / "grpo.jsonl")
    client = serve(tmp_path / "logs")
    [run] = listed(client)
    assert (run["name"], run["project"], run["last_step"]) == ("grpo", "lab", 29)
    assert (run["status"], run["reason"]) == ("finished", "the log does not tell how it ended")
    assert run["reward"]["name"] == "reward"
    key = run["key"]
    assert fetch(client, f"/api/runs/{key}/overview")["run"]["kind"] == "log"
    for part in ("names", "phases", "timeline", "memory", "evaluation", "samples", "details", "events", "texts"):
        fetch(client, f"/api/runs/{key}/{part}")
    details = fetch(client, f"/api/runs/{key}/details")
    assert details["path"] == details["origin"]["path"] == str(tmp_path / "logs" / "lab" / "grpo.jsonl")
    assert details["origin"]["title"] == "JSON lines"
    assert details["origin"]["notes"] == ["steps are read from 'step'"]
    assert fetch(client, f"/api/runs/{key}/report")["details"]["origin"] == details["origin"]
    assert os.listdir(tmp_path / "logs") == ["lab"]


def test_before_it_is_read_a_log_has_name_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The list does not wait for imports."""
    log = write(tmp_path / "logs" / "lab" / "grpo.jsonl")
    directory = RunDirectory(tmp_path / "logs")
    monkeypatch.setattr(directory.listing, "_start_reading", lambda: None)
    found = directory.listing.view()
    [run] = found["runs"]
    assert found["pending"] == 1
    assert (run["name"], run["status"], run["bytes"]) == ("grpo", "unknown", log.stat().st_size)
    assert abs(run["began"] - log.stat().st_mtime) < 1
    directory.close()


def test_keys_stay_when_the_directory_is_moved(tmp_path: Path):
    """A link to a log is then still valid."""
    write(tmp_path / "logs" / "lab" / "grpo.jsonl")
    with serving(tmp_path / "logs") as client:
        [before] = listed(client)
    shutil.move(tmp_path / "logs", tmp_path / "moved")
    with serving(tmp_path / "moved") as client:
        [after] = listed(client)
    assert after["key"] == before["key"]


def test_the_next_server_reads_no_log_that_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Facts and rewards are in the cache."""
    for number in range(3):
        write(tmp_path / "logs" / f"{number}.jsonl")
    with serving(tmp_path / "logs") as client:
        before = listed(client)
        eventually(lambda: list(Path(os.environ["BAROGRAPH_CACHE"]).glob("lists/*/.page/rewards.index")))
    monkeypatch.setattr(imported.ImportedLog, "update", lambda self: pytest.fail("a log was read"))
    with serving(tmp_path / "logs") as client:
        after = listed(client)
    assert sorted(run["reward"]["last"] for run in after) == sorted(run["reward"]["last"] for run in before)
    assert {run["last_step"] for run in after} == {29}


def test_a_log_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And the others as usual."""
    for name in ("good", "bad"):
        write(tmp_path / "logs" / f"{name}.jsonl")
    update = imported.ImportedLog.update

    def fails(self: imported.ImportedLog) -> bool:
        if self.log.path.stem == "bad":
            raise RuntimeError("boom")
        return update(self)

    monkeypatch.setattr(imported.ImportedLog, "update", fails)
    with serving(tmp_path / "logs") as client:
        found = {run["name"]: (run["status"], run["reason"]) for run in listed(client)}
    assert found == {
        "bad": ("unreadable", "RuntimeError: boom"),
        "good": ("finished", "the log does not tell how it ended"),
    }


def test_one_log_is_served_alone(tmp_path: Path):
    """By its own path."""
    for name in ("one", "two"):
        write(tmp_path / f"{name}.jsonl")
    with serving(tmp_path / "one.jsonl") as client:
        assert [run["name"] for run in listed(client)] == ["one"]
        assert fetch(client, "/api/about")["directory"] == str(tmp_path / "one.jsonl")


def test_a_log_that_is_written_anew_is_shown_anew(tmp_path: Path):
    """Not as one run with the rows of both."""
    log = write(tmp_path / "logs" / "a.jsonl")
    with serving(tmp_path / "logs") as client:
        [run] = listed(client)
        assert last_step(client, run["key"], "reward") == 29
        write(log, range(100, 103))
        eventually(lambda: last_step(client, run["key"], "reward") == 102)
        [one] = fetch(client, f"/api/runs/{run['key']}/series", name="reward", format="json", points=0)["series"]
        assert one["x"] == [100, 101, 102]


@pytest.mark.parametrize(
    ("code", "file", "metric"),
    [(JSON_WRITER, "train.jsonl", "reward"), (CONSOLE_WRITER, "train.log", "critic/score/mean")],
)
def test_new_steps_are_shown_within_two_seconds(code: str, file: str, metric: str, tmp_path: Path):
    """Another process writes; the event comes, and the series has the step."""
    training = Process(code, tmp_path / "logs" / "run" / file)
    for _ in range(4):
        training.step()
    with serving(tmp_path / "logs") as client:
        [run] = listed(client)
        key = run["key"]
        assert last_step(client, key, metric) == training.last
        with httpx.stream("GET", f"{client.base_url}/api/live?run={key}&list=1", timeout=60) as stream:
            lines, seconds = stream.iter_lines(), []
            while not next(lines).startswith("data: "):  # the state before the next step
                pass
            for _ in range(3):
                step, began = training.step(), time.monotonic()
                while True:
                    line = next(lines)
                    if line.startswith("data: ") and json.loads(line.removeprefix("data: ")).get("last_step") == step:
                        break
                seconds.append(time.monotonic() - began)
                assert last_step(client, key, metric) == step
            assert min(seconds) < 2.0  # not all: the machine may be busy
        eventually(lambda: fetch(client, "/api/runs")["runs"][0]["status"] == "running")
    training.end()


def test_a_log_that_appears_is_listed(serve: Serve, tmp_path: Path):
    """While the page is open."""
    (tmp_path / "logs").mkdir()
    client = serve(tmp_path / "logs")
    assert fetch(client, "/api/runs")["runs"] == []
    write(tmp_path / "logs" / "new" / "grpo.jsonl")
    eventually(lambda: fetch(client, "/api/runs")["runs"])


def test_the_page_draws_new_steps_of_a_log(tmp_path: Path, visit: Open):
    """In a browser, within two seconds; the tab of the config says where the run comes from."""
    training = Process(JSON_WRITER, tmp_path / "logs" / "lab" / "grpo.jsonl")
    for _ in range(4):
        training.step()
    with serving(tmp_path / "logs") as client:
        [run] = listed(client)
        page = visit(f"{client.base_url}/?run={run['key']}&tab=charts")
        assert drawn(page, "reward")["x"][-1] == training.last
        seconds = []
        for _ in range(3):
            step, began = training.step(), time.monotonic()
            page.wait_for_function(f"step => ({CURVE})('reward').x.at(-1) === step", arg=step)
            seconds.append(time.monotonic() - began)
        assert min(seconds) < 2.0  # not all: the machine may be busy
        page = visit(f"{client.base_url}/?run={run['key']}&tab=config")
        page.locator(".kv", has_text="grpo.jsonl").first.wait_for()
        page.locator(".kv", has_text="JSON lines").first.wait_for()
        page.locator(".kv", has_text="steps are read from 'step'").first.wait_for()
    training.end()
