"""Commands read logs of other programs in place: a file, a directory with one, and a directory with many."""

import csv
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import barograph
from barograph.apps.cli import main
from barograph.importers import imported


def write(path: Path, steps: range = range(20), mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.writelines(json.dumps({"step": s, "reward": s / 4, "kl": 0.1}) + "\n" for s in steps)
    minute_ago = time.time() - 60
    os.utime(path, (minute_ago, minute_ago))  # one that changed just now is looked at again
    return path


def called(*arguments: str | Path) -> int:
    return main([str(one) for one in arguments])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log of twenty steps."""
    return write(tmp_path / "lab" / "grpo.jsonl")


@pytest.mark.parametrize("place", ["lab/grpo.jsonl", "lab"])
def test_every_command_reads_a_log(place: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """By its own path, and by that of a directory that has no other; none says that something went wrong."""
    path = tmp_path / place
    for command in (
        ("show", path), ("show", path, "--json"), ("ls", path), ("ls", path, "--json"), ("phases", path),
        ("samples", path), ("samples", path, "--json"), ("names", path), ("names", path, "--json"),
        ("explain", "reward", "--run", path), ("tail", path, "--no-follow"), ("tail", path, "--no-follow", "--json"),
        ("export", path, "--to", "csv"), ("export", path, "--to", "jsonl"), ("export", path, "--to", "perfetto"),
        ("report", path, "-o", tmp_path / "report.html"), ("import", path),
    ):  # fmt: skip
        assert called(*command) == 0, command
    assert "Traceback" not in capsys.readouterr().err
    assert sorted(path.name for path in log.parent.iterdir()) == ["grpo.jsonl"]  # nothing is written beside it


def test_show_says_where_a_run_comes_from(log: Path, capsys: pytest.CaptureFixture[str]):
    """The path is that of the log, not of the cache; what was not understood is listed."""
    with log.open("a") as file:
        file.write("{broken\n")
    assert called("show", log) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "path" in shown
    assert "grpo.jsonl" in shown
    assert "format JSON lines" in shown
    assert "steps are read from 'step'" in shown
    assert "line 21: not a JSON object" in shown
    assert called("show", log, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["path"] == str(log)
    assert record["origin"]["path"] == str(log)
    assert record["origin"]["format"] == "json_lines"
    assert record["origin"]["unread"] == [{"where": "line 21", "reason": "not a JSON object", "count": 1}]


def test_a_directory_of_many_logs_is_a_list(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]):
    """Together with runs that barograph has recorded, by --dir or as an argument."""
    write(tmp_path / "lab" / "other.jsonl")
    run = barograph.init(id="own", project="p", dir=tmp_path / "lab")
    run.log({"reward": 1.0}, step=0)
    run.finish()
    listed = {}
    for arguments in (("ls", tmp_path / "lab"), ("ls", "--dir", tmp_path / "lab")):
        assert called(*arguments, "--json") == 0
        listed = {record["path"]: record for record in json.loads(capsys.readouterr().out)}
        assert set(listed) == {str(log), str(tmp_path / "lab" / "other.jsonl"), str(run.path)}
    record = listed[str(log)]
    assert (record["name"], record["project"], record["status"], record["last_step"]) == (
        "grpo",
        "lab",
        "finished",
        19,
    )
    assert record["bytes"] == log.stat().st_size
    assert called("ls", log, "--json") == 0
    assert [one["path"] for one in json.loads(capsys.readouterr().out)] == [str(log)]
    assert called("show", tmp_path / "lab") == 1
    assert "barograph ls" in capsys.readouterr().err
    assert called("ls", tmp_path / "nowhere") == 1
    assert "does not exist" in capsys.readouterr().err


def test_the_second_list_reads_no_log(log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """An index in the cache has the facts of those that have not changed."""
    other = write(log.with_name("other.jsonl"))
    assert called("ls", log.parent, "--json") == 0
    first = capsys.readouterr().out
    updated: list[Path] = []
    update = imported.ImportedLog.update
    monkeypatch.setattr(imported.ImportedLog, "update", lambda self: updated.append(self.log.path) or update(self))
    assert called("ls", log.parent, "--json") == 0
    assert capsys.readouterr().out == first
    assert updated == []
    write(other, range(20, 25), "a")
    assert called("ls", log.parent, "--json") == 0
    assert {one["last_step"] for one in json.loads(capsys.readouterr().out)} == {19, 24}
    assert updated == [other]


def test_a_log_that_cannot_be_imported_is_listed(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """With the reason; the others are listed as usual."""
    write(log.with_name("other.jsonl"))
    update = imported.ImportedLog.update

    def fails(self: imported.ImportedLog) -> bool:
        if self.log.path == log:
            raise RuntimeError("boom")
        return update(self)

    monkeypatch.setattr(imported.ImportedLog, "update", fails)
    assert called("ls", log.parent, "--json") == 0
    found = {one["name"]: (one["status"], one["reason"]) for one in json.loads(capsys.readouterr().out)}
    assert found["grpo"] == ("unreadable", "RuntimeError: boom")
    assert found["other"][0] == "finished"


def test_exported_values_are_those_of_the_log(log: Path, tmp_path: Path):
    """Digit by digit."""
    assert called("export", log, "--to", "csv", "-o", tmp_path / "out.csv") == 0
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["step"]), float(row["reward"])) for row in rows] == [(s, s / 4) for s in range(20)]


@pytest.mark.parametrize("command", [("rm", "--yes"), ("archive",), ("sync", "--to", "jsonl"), ("tensorboard",)])
def test_commands_that_change_a_run_leave_a_log_alone(
    command: tuple[str, ...], log: Path, capsys: pytest.CaptureFixture[str]
):
    """They say that barograph did not record it, and how to keep a copy."""
    name, *options = command
    for path in (log, log.parent):
        assert called(name, path, *options) == 1
        message = capsys.readouterr().err
        assert "barograph did not record" in message
        assert f"barograph import {log}" in message
    assert log.exists()


def test_a_directory_with_one_run_is_not_removed_as_that_run(tmp_path: Path):
    """To read it is a convenience; to delete it would be a mistake."""
    run = barograph.init(id="own", project="p", dir=tmp_path / "dir")
    run.log({"reward": 1.0}, step=0)
    run.finish()
    assert called("rm", tmp_path / "dir", "--yes") == 1
    assert Path(run.path).exists()


def test_tail_follows_a_log(tmp_path: Path):
    """New steps are printed as another process writes them, until the log tells its end or is interrupted."""
    log = write(tmp_path / "grpo.jsonl", range(3))
    command = [sys.executable, "-m", "barograph", "tail", str(log), "--json", "-n", "1"]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert tail.stdout is not None
    assert json.loads(tail.stdout.readline())["step"] == 2
    writing = threading.Thread(target=write, args=(log, range(3, 6), "a"))
    writing.start()
    writing.join()
    assert [json.loads(tail.stdout.readline())["step"] for _ in range(3)] == [3, 4, 5]
    write(log, range(2))  # it begins anew
    assert [json.loads(tail.stdout.readline())["step"] for _ in range(2)] == [0, 1]
    tail.kill()
    tail.communicate()


def test_tail_of_an_old_log_ends(log: Path, capsys: pytest.CaptureFixture[str]):
    """It has not been written to for long, and does not tell how it ended."""
    passed = time.time() - 1000
    os.utime(log, (passed, passed))
    assert called("tail", log, "-n", "1") == 0
    assert "the log does not tell how it ended" in capsys.readouterr().out
