"""Tests of a run at its limits: the highest step, many processes of one rank, deep recursion, long texts."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import barograph
from barograph.apps.cli import main
from barograph.journal.format.folder import segments


def test_the_highest_step_can_be_shown_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Rows and commits without a step after it belong to it: there is no higher one."""
    run = barograph.init(id="high")
    run.log({"x": 1.0}, step=sys.maxsize)
    run.log({"x": 2.0})
    assert barograph.open(run.path).series("x").steps.tolist() == [sys.maxsize]
    run.commit(sys.maxsize)
    run.log({"x": 3.0})
    run.commit()
    run.finish()
    view = barograph.open(run.path)
    assert (view.series("x").steps.tolist(), view.series("x").last) == ([sys.maxsize], 3.0)
    assert not view.problems()
    assert len(view.frame()) == 1
    for command in (["show", "high"], ["export", "high", "--to", "csv", "-o", str(tmp_path / "x.csv")], ["ls"]):
        assert main(command) == 0, capsys.readouterr()


def test_one_rank_started_six_times_at_once(tmp_path: Path):
    """Each process has an attempt of its own, and all but one warn."""
    code = "import sys, barograph; sys.stdin.readline(); barograph.init(id='six'); print('in', flush=True); input()"
    environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path / "runs")}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    started = [subprocess.Popen([sys.executable, "-c", code], text=True, env=environment, **pipes) for _ in range(6)]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
    told = [process.communicate("\n", timeout=60)[1] for process in started]
    found = segments(tmp_path / "runs" / "default" / "six")
    assert [(s.writer.attempt, s.index) for s in found] == [(attempt, 0) for attempt in range(1, 7)]
    assert sum(bool(re.search("still being written by another process", text)) for text in told) == 5


def test_log_does_not_raise_near_the_recursion_limit():
    """What is too deep to be recorded is counted."""
    run = barograph.init()
    raised: list[int] = []

    def descend() -> None:
        with contextlib.suppress(RecursionError):
            descend()
        try:
            run.log({"x": None})
        except RecursionError:
            raised.append(1)

    descend()
    assert len(raised) <= 1  # a call for which there is no room at all


class SilentError(ValueError):
    """An exception without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unconvertible:
    """A value whose conversion fails with such an exception."""

    def __float__(self) -> float:
        raise SilentError


def test_an_exception_without_a_text_costs_only_its_value():
    """The values beside it are written, and the end of the run has a status."""
    with pytest.raises(SilentError), barograph.init() as run:
        run.log({"bad": Unconvertible(), "good": 1.0}, step=0)
        raise SilentError
    view = barograph.open(run.path)
    assert view.series("good").last == 1.0
    assert view.status == barograph.Status("crashed", "SilentError")


def test_a_long_text_is_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The first characters are kept, and a warning says so."""
    monkeypatch.setattr("barograph.recording.run.MAX_TEXT", 10)
    run = barograph.init()
    run.text("t", "abcdefghijklmnop", step=0)
    assert "text 't' has 16 characters; the first 10 are kept" in capsys.readouterr().err
    assert b'abcdefghij"' in segments(run.path)[0].path.read_bytes()


@pytest.mark.parametrize("later", [False, True])
def test_a_config_that_is_too_large_is_written_without_its_largest_entries(
    later: bool, capsys: pytest.CaptureFixture[str]
):
    """Nothing is written that readers do not take, and what is left out is told."""
    config = {"lr": 0.5, "texts": ["x" * 15_000] * 2000, "numbers": [1] * 1_000_000, "model": {"layers": 4}}
    run = barograph.init(id="large", config={} if later else config)
    if later:
        run.update_config(config)
    run.log({"x": 1.0}, step=1)
    run.finish()
    view = barograph.open(run.path)
    assert view.config == {"lr": 0.5, "model": {"layers": 4}} == dict(run.config)
    assert set(view.skipped()) == {"config.texts", "config.numbers"}
    assert "skipped 'config.texts': value has" in capsys.readouterr().err
    assert sum(segment.path.stat().st_size for segment in segments(run.path)) < 5 << 20


def test_texts_of_a_run_are_cut_to_what_readers_take(capsys: pytest.CaptureFixture[str]):
    """Of its name, notes, group and tags."""
    long = "x" * 5_000_000
    tags = [f"{number}{'x' * 30_000}" for number in range(1000)]
    with barograph.init(id="long", name=long, notes=long, group=long, tags=tags) as run:
        run.log({"x": 1.0}, step=1)
    info = barograph.open(run.path).info
    assert {len(text) for text in (info.name, info.notes, info.group, *info.tags)} == {20_000}
    assert len(info.tags) == 200
    assert (run.path / "run.json").stat().st_size < 5 << 20
    err = capsys.readouterr().err
    assert "notes: the text has 5,000,000 characters, the first 20,000 are kept" in err
    assert "tags: 1,000 were given" in err


def test_a_record_that_is_too_large_is_not_written(capsys: pytest.CaptureFixture[str]):
    """It costs itself, and is a problem of the run."""
    run = barograph.init(id="record")
    run.text("name" * 20_000_000, "text", step=1)
    run.text("other", "text", step=1)
    run.finish()
    view = barograph.open(run.path)
    assert [text.name for text in view.texts()] == ["other"]
    assert any("is not written: at most" in problem.error for problem in view.problems())
