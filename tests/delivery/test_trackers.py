"""Trackers in a run: jsonl, stdout, entry points, failures."""

import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.base.model import Row, RunInfo, Status, Writer
from barograph.delivery.trackers import registry
from barograph.delivery.trackers.text import json_line, text_block

ROW = Row(
    12,
    1.5,
    {"critic/score/mean": 0.41, "actor/lr": 1e-6, "actor/clipfrac": math.nan, "loss": 3.0},
    Writer("trainer", 0, 1),
)


def train(**settings: Any) -> barograph.Run:
    """Log four steps with two calls each, and an uncommitted one."""
    run = barograph.init(**settings)
    for step in range(4):
        run.log({"loss": step / 2})
        run.log({"actor/lr": 1e-6})
        run.commit(step)
    run.log({"loss": 9.0})
    run.finish()
    return run


def test_jsonl_has_a_line_for_each_step():
    """The values of a step are merged; uncommitted values are last, as the next step."""
    run = train(track_with="jsonl")
    lines = [json.loads(text) for text in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in lines] == [0, 1, 2, 3, 4]
    assert lines[3]["metrics"] == {"loss": 1.5, "actor/lr": 1e-6}
    assert lines[4]["metrics"] == {"loss": 9}


def test_jsonl_writes_to_its_path(tmp_path: Path):
    """Missing directories are created."""
    train(track_with="jsonl", tracker_kwargs={"path": str(tmp_path / "a" / "b.jsonl")})
    assert len((tmp_path / "a" / "b.jsonl").read_text().splitlines()) == 5


def test_stdout_prints_strict_json_in_a_pipe(capsys: pytest.CaptureFixture[str]):
    """One object per line, with NaN and infinities as strings."""
    train(track_with="stdout")
    records = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert [record["step"] for record in records] == [0, 1, 2, 3, 4]
    values = {"nan": math.nan, "inf": math.inf, "ninf": -math.inf, "one": 1.0, "name \ud800": 0.5}
    text = json_line(Row(0, 0.0, values, ROW.writer))
    assert json.loads(text)["metrics"] == {
        "nan": "NaN",
        "inf": "Infinity",
        "ninf": "-Infinity",
        "one": 1,
        "name \ud800": 0.5,
    }


def test_a_text_block_groups_names_by_family():
    """A heading, then a paragraph per family, wrapped to the terminal."""
    assert text_block(ROW, title="frozen_lake").splitlines() == [
        "step 12 · frozen_lake",
        "          loss 3",
        "  actor   clipfrac NaN  lr 1e-06",
        "  critic  score/mean 0.41",
    ]
    narrow = text_block(Row(0, 0.0, {f"a/metric{n}": n / 3 for n in range(9)}, ROW.writer), width=50)
    assert max(len(text) for text in narrow.splitlines()) <= 50
    assert "\x1b[" in text_block(ROW, colour=True)


def test_unknown_trackers_and_arguments_are_errors_at_start():
    """The error has the nearest name, and nothing is recorded."""
    with pytest.raises(barograph.TrackerError, match=r"unknown tracker 'stdot': did you mean 'stdout'\?"):
        barograph.init(track_with="stdot")
    with pytest.raises(barograph.TrackerError, match=r"tracker 'jsonl': unknown argument 'pth'; did you mean 'path'\?"):
        barograph.init(track_with="jsonl", tracker_kwargs={"pth": "x"})
    with pytest.raises(barograph.TrackerError, match="format must be auto, text or json; got 'xml'"):
        barograph.init(track_with="stdout", tracker_kwargs={"format": "xml"})
    with pytest.raises(barograph.TrackerError, match="is a directory; expected a file"):
        barograph.init(track_with="jsonl", tracker_kwargs={"path": "/"})
    with pytest.raises(barograph.RunNotFoundError):
        barograph.open("@last")


class Recorder:
    """A tracker of another package."""

    in_process = True
    seen: list[Row]
    ended: Status | None = None

    def __init__(self, fail: int = 0, hang: float = 0.0) -> None:
        type(self).seen = []
        type(self).ended = None
        self._fail, self._hang = fail, hang

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        if config.get("lr") != 1:
            raise barograph.TrackerError("the server says no")

    def log(self, rows: Sequence[Row]) -> None:
        time.sleep(self._hang)
        if self._fail:
            self._fail -= 1
            raise ConnectionError("the server is down")
        type(self).seen += rows

    def finish(self, status: Status) -> None:
        type(self).ended = status


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    """Register Recorder as an entry point, as an installed package does."""
    distribution = tmp_path / "site" / "recorder-1.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: recorder\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text(f"[barograph.trackers]\nrecorder = {__name__}:Recorder\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Recorder.__module__])
    return Recorder


def test_a_tracker_of_another_package_is_found_by_its_entry_point(recorder: type[Recorder]):
    """It receives every step in order, and the final status."""
    assert "recorder" in registry.names()
    train(track_with="recorder", config={"lr": 1})
    assert [(row.step, row.values["loss"]) for row in recorder.seen] == [
        (0, 0.0),
        (1, 0.5),
        (2, 1.0),
        (3, 1.5),
        (4, 9.0),
    ]
    assert recorder.ended == Status("finished")


def test_a_tracker_that_does_not_start_fails_init(recorder: type[Recorder]):
    """The run is recorded as crashed."""
    with pytest.raises(barograph.TrackerError, match="the server says no"):
        barograph.init(track_with="recorder", name="n")
    assert barograph.open("n").status.word == "crashed"


def test_an_error_about_a_tracker_does_not_show_its_key(recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch):
    """Neither in the message nor in the cause."""

    def refuse(self: Recorder, api_key: str) -> None:
        raise ValueError(f"bad key {api_key}")

    monkeypatch.setattr(Recorder, "__init__", refuse)
    with pytest.raises(barograph.TrackerError, match=r"bad key \*\*\*") as caught:
        barograph.init(track_with="recorder", tracker_kwargs={"api_key": "s3cr3t-key"})
    assert caught.value.__cause__ is None


def test_rows_for_which_a_tracker_raised_are_delivered_again(
    recorder: type[Recorder], capsys: pytest.CaptureFixture[str]
):
    """A failure is reported once, and no row is lost."""
    train(track_with="recorder", tracker_kwargs={"fail": 1}, config={"lr": 1})
    assert [row.step for row in recorder.seen] == [0, 1, 2, 3, 4]
    assert capsys.readouterr().err.count("tracker 'recorder': ConnectionError: the server is down") == 1


def test_a_tracker_that_hangs_does_not_block_the_training(recorder: type[Recorder], capsys: pytest.CaptureFixture[str]):
    """Log and commit return at once; finish waits at most for its timeout."""
    run = barograph.init(track_with="recorder", tracker_kwargs={"hang": 30.0}, config={"lr": 1})
    began = time.monotonic()
    for step in range(100):
        run.log({"x": 1.0})
        run.commit(step)
    run.finish(timeout=0.5)
    assert time.monotonic() - began < 10
    assert re.search(r"tracker 'recorder': (rows|\S+ k?B of the journal) not delivered yet", capsys.readouterr().err)
    assert any(thread.name == "barograph-recorder" for thread in threading.enumerate())


def test_only_rank_zero_delivers_to_trackers(capsys: pytest.CaptureFixture[str]):
    """Of several ranks one prints."""
    train(track_with="stdout", rank=3)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk", "utf-8"])
@pytest.mark.parametrize("format", ["text", "json"])
def test_stdout_prints_any_text_in_any_encoding(encoding: str, format: str):
    """No escape of a run reaches the terminal, and no character stops the tracker."""
    program = f"""
import barograph
title = "\\x1b]0;title\\x07 \\u202e 中文 · ▶ \\ud800"
with barograph.init(project="p", name=title, track_with="stdout", tracker_kwargs={{"format": {format!r}}}) as run:
    run.log({{"loss/\\x1b[2J·ß中": 1.0}}, step=1)
    run.text("t\\x9b", "a … \\x1b[31m " * 40, step=1)
"""
    environment = {**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert "loss" in text
    assert not [char for char in text if char != "\n" and (ord(char) < 32 or 126 < ord(char) < 160)]
    assert b"UnicodeEncodeError" not in done.stderr
    assert b"stdout" not in done.stderr
