"""``barograph import``: runs that are kept, added to, and followed as their logs grow."""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barograph.apps.cli import main, storage
from barograph.base.files import directory_watch
from barograph.importers import imported
from barograph.importers.opening import open_run
from barograph.journal.format.folder import run_folders
from barograph.journal.view import View


def write(path: Path, steps: range = range(20), mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.writelines(json.dumps({"step": s, "reward": s / 4}) + "\n" for s in steps)
    return path


def called(*arguments: str | Path) -> int:
    return main([str(one) for one in arguments])


def only_run(dir: Path) -> View:
    [folder] = run_folders(dir)
    return View(folder)


def test_an_imported_run_stays_when_its_log_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """It is a run like any other: commands find it by its id and by its name."""
    log = write(tmp_path / "lab" / "grpo.jsonl")
    assert called("import", log) == 0
    told = capsys.readouterr().out
    for text in ("JSON lines", "20 rows", "1 metric,", "steps 0 – 19", "steps are read from 'step'", "barograph show"):
        assert text in told
    shutil.rmtree(tmp_path / "lab")
    view = only_run(tmp_path / "runs")
    assert (view.name, view.info.project) == ("grpo", "lab")
    assert view.series("reward").values.tolist() == [s / 4 for s in range(20)]
    for command in (("show", "grpo"), ("show", view.id), ("ls",), ("tail", view.id), ("rm", view.id, "--yes")):
        assert called(*command) == 0, command


def test_importing_again_adds_what_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """And reads nothing twice; a log that was written anew is imported anew."""
    log = write(tmp_path / "lab" / "grpo.jsonl")
    assert called("import", log) == 0
    write(log, range(20, 25), "a")
    capsys.readouterr()
    assert called("import", log) == 0
    assert "25 rows (5 new)" in capsys.readouterr().out
    assert only_run(tmp_path / "runs").series("reward").steps.tolist() == list(range(25))
    assert called("import", log) == 0
    assert "25 rows (0 new)" in capsys.readouterr().out
    write(log, range(3))
    assert called("import", log) == 0
    assert only_run(tmp_path / "runs").series("reward").steps.tolist() == [0, 1, 2]


def test_what_a_person_says_about_a_run_is_kept(tmp_path: Path):
    """Project, name, and the source of the names."""
    log = write(tmp_path / "lab" / "grpo.jsonl")
    to = tmp_path / "kept"
    assert called("import", log, "--to", to, "--project", "math", "--name", "mine", "--source", "trl/grpo") == 0
    view = only_run(to)
    assert view.path.parent == to / "math"
    assert (view.info.project, view.name, view.source) == ("math", "mine", "trl/grpo")
    assert called("import", log, "--to", to, "--project", "math") == 0
    assert only_run(to).name == "mine"


def test_the_logs_of_a_directory_are_imported_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """One that is given and is none is reported, and the others are imported."""
    for name in ("a", "b"):
        write(tmp_path / "lab" / f"{name}.jsonl")
    (tmp_path / "notes.txt").write_text("nothing\n")
    assert called("import", tmp_path / "lab", tmp_path / "notes.txt", tmp_path / "absent.log") == 1
    assert {open_run(folder).name for folder in run_folders(tmp_path / "runs")} == {"a", "b"}
    errors = capsys.readouterr().err
    assert "notes.txt is text without metrics" in errors
    assert "absent.log does not exist" in errors
    assert called("import", tmp_path / "lab", "--name", "both") == 1
    assert "--name is for one run" in capsys.readouterr().err
    assert called("import", tmp_path / "lab", "--source", "nonsense") == 1


def test_the_examples_of_the_help_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """All three, on logs with the names that they have."""
    with pytest.raises(SystemExit):
        main(["import", "--help"])
    help = capsys.readouterr().out
    examples = [line.strip() for line in help.partition("examples:")[2].splitlines() if line.strip()]
    assert len(examples) == 3
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "train.log")
    write(tmp_path / "outputs" / "a" / "metrics.jsonl")
    write(tmp_path / "outputs" / "b" / "metrics.jsonl")
    monkeypatch.setattr(storage.Importing, "follow", lambda self, paths: None)
    for example in examples:
        program, *arguments = shlex.split(example)
        assert program == "barograph"
        assert main(arguments) == 0, example
    assert len(list(run_folders(tmp_path / "runs"))) == 1
    assert {view.info.project for view in map(open_run, run_folders(tmp_path / "kept"))} == {"math"}


class Following:
    """``barograph import --follow`` in another process."""

    def __init__(self, log: Path) -> None:
        command = [sys.executable, "-m", "barograph", "import", str(log), "--follow"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._until("following")

    def _until(self, text: str) -> None:
        assert self._process.stdout is not None
        while text not in self._process.stdout.readline():
            assert self._process.poll() is None

    def interrupt(self) -> tuple[str, int]:
        """Send Ctrl-C; return what was printed and the exit code."""
        self._process.send_signal(signal.SIGINT)
        out, _ = self._process.communicate(timeout=20)
        return out, self._process.returncode


def seen_steps(dir: Path, count: int) -> list[int]:
    """Wait for a number of steps of the only run."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        folders = list(run_folders(dir))
        if folders and "reward" in (view := View(folders[0])).names():
            steps: list[int] = view.series("reward").steps.tolist()
            if len(steps) >= count:
                return steps
        time.sleep(0.05)
    raise AssertionError("the steps did not come")


def test_a_growing_log_is_followed_until_ctrl_c(tmp_path: Path):
    """What another process writes is in the run; the end is clean."""
    log = write(tmp_path / "lab" / "grpo.jsonl", range(3))
    following = Following(log)
    for step in range(3, 6):
        write(log, range(step, step + 1), "a")
        assert seen_steps(tmp_path / "runs", step + 1) == list(range(step + 1))
    assert only_run(tmp_path / "runs").status.word == "running"
    out, code = following.interrupt()
    assert code == 0
    assert "stopped; what was read is in" in out


def test_a_log_that_does_not_exist_yet_is_waited_for(tmp_path: Path):
    """The training opens it later, and writes its first step later still."""
    (tmp_path / "lab").mkdir()
    log = tmp_path / "lab" / "grpo.jsonl"
    following = Following(log)
    log.touch()
    time.sleep(0.3)
    write(log, range(2))
    assert seen_steps(tmp_path / "runs", 2) == [0, 1]
    assert following.interrupt()[1] == 0


def test_where_nothing_is_told_a_log_is_looked_at_twice_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As on a network file system."""
    monkeypatch.setattr(directory_watch, "mount_kind", lambda directory: "nfs")
    log = write(tmp_path / "grpo.jsonl", range(3))
    importing = storage.Importing(tmp_path / "kept", imported.Given())
    importing.take([str(log)])
    write(log, range(3, 5), "a")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(importing._watch, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        importing.follow([str(log)])
    assert waits == [0.5, 0.5]
    assert only_run(tmp_path / "kept").steps == (0, 4)
