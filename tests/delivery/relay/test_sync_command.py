"""``barograph sync``, ``barograph tensorboard`` and the trackers in ``barograph show``."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from kept import lines

import barograph
from barograph.apps.cli import main


def recorded(steps: int = 20, **settings: object) -> barograph.Run:
    run = barograph.init(project="p", name="lake", config={"actor": {"lr": 1e-6}}, **settings)  # type: ignore[arg-type]
    for step in range(steps):
        run.log({"critic/score/mean": step / 10, "a b@c": step}, step=step)
    run.text("note", "hello", step=3)
    run.finish()
    return run


def test_a_finished_run_is_delivered_to_a_tracker_it_never_had(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """All rows, once; --again delivers them all once more."""
    run = recorded()
    path = tmp_path / "late.jsonl"
    sync = ["sync", run.id, "--to", "jsonl", "--arg", f"path={path}"]
    assert main(sync) == 0
    assert "jsonl: 21 rows delivered" in capsys.readouterr().out
    assert [line["step"] for line in lines(path)] == [*range(20), 3]
    assert main(sync) == 0
    assert "jsonl: 0 rows delivered" in capsys.readouterr().out
    assert len(lines(path)) == 21
    assert main([*sync, "--again"]) == 0
    assert len(lines(path)) == 42


def test_another_target_is_another_delivery(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A tracker of the same name with other arguments gets everything, and the first target keeps its rows."""
    run = recorded()
    for name, delivered in (("one", 21), ("two", 21), ("one", 0), ("two", 0)):
        assert main(["sync", run.id, "--to", "jsonl", "--arg", f"path={tmp_path / name}"]) == 0
        assert f"jsonl: {delivered} rows delivered" in capsys.readouterr().out
    assert len(lines(tmp_path / "one")) == len(lines(tmp_path / "two")) == 21


def test_a_run_goes_by_default_to_the_trackers_it_was_configured_with(tmp_path: Path):
    """Rows that were delivered are not delivered again."""
    run = recorded(track_with="jsonl", tracker_kwargs={"path": str(tmp_path / "kept.jsonl")})
    before = (tmp_path / "kept.jsonl").read_text()
    assert main(["sync", run.id]) == 0
    assert (tmp_path / "kept.jsonl").read_text() == before


def test_a_recorded_path_is_relative_to_the_directory_of_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A path of the command line is relative to the current directory."""
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    monkeypatch.chdir(there)
    run = recorded(track_with="jsonl", tracker_kwargs={"path": "kept.jsonl"})
    (there / "kept.jsonl").unlink()
    monkeypatch.chdir(here)
    assert main(["sync", run.id, "--again"]) == 0
    assert len(lines(there / "kept.jsonl")) == 21
    assert main(["sync", run.id, "--to", "jsonl", "--arg", "path=other.jsonl"]) == 0
    assert len(lines(here / "other.jsonl")) == 21
    assert Path.cwd() == here


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the run has no tracker: give one with --to"),
        (["--arg", "a=1"], "--arg needs --to"),
        (["--to", "jsonl", "--arg", "path"], "expected KEY=VALUE"),
    ],
)
def test_wrong_arguments_are_reported(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    """With what to do."""
    run = recorded(1)
    assert main(["sync", run.id, *arguments]) == 1
    assert words in capsys.readouterr().err


def test_an_unknown_tracker_is_named(capsys: pytest.CaptureFixture[str]):
    """With the nearest one, and an exit code."""
    run = recorded(1)
    assert main(["sync", run.id, "--to", "tensorbord"]) == 1
    assert "did you mean 'tensorboard'?" in capsys.readouterr().err


def test_show_has_the_state_of_each_tracker(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """State, rows and address, as text and as JSON."""
    run = recorded(track_with="tensorboard", tracker_kwargs={"log_dir": str(tmp_path / "tb")})
    main(["show", run.id])
    said = capsys.readouterr().out
    assert "tracker tensorboard" in said
    assert "done, 21 rows" in said
    main(["show", run.id, "--json"])
    (tracker,) = json.loads(capsys.readouterr().out)["trackers"]
    assert tracker["state"] == "done"
    assert str(tmp_path / "tb") in tracker["url"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_tensorboard_shows_a_run_that_was_not_tracked_with_it():
    """It is written first; then the real TensorBoard serves its scalars."""
    run = recorded()
    port = free_port()
    command = [sys.executable, "-m", "barograph", "tensorboard", run.id, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        tags = wait_for(f"http://127.0.0.1:{port}/data/plugin/scalars/tags")
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert "critic/score/mean" in next(iter(tags.values()))


def wait_for(url: str) -> dict[str, dict[str, object]]:
    end = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                found: dict[str, dict[str, object]] = json.load(answer)
                if found:
                    return found
        except OSError:
            pass
        assert time.monotonic() < end
        time.sleep(0.3)
