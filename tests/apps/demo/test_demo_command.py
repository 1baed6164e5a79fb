"""``barograph demo``: its output, its run, and its end on Ctrl-C."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import barograph
from barograph.apps.cli import main

SECTION = "demo: {tasks: 8, hidden: 16, maps: 32, validation_maps: 8, validate_every: 2}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a YAML file with a small training."""
    path = tmp_path / "small.yaml"
    path.write_text(SECTION)
    return path


def test_a_piped_demo_prints_plain_lines_and_commands(config: Path, capsys: pytest.CaptureFixture[str]):
    """Output has a line every few steps, no escape codes, and commands that work."""
    assert main(["demo", "--steps", "3", "--config", str(config), "--name", "mine"]) == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output
    lines = output.splitlines()
    assert re.match(r"step 1/3  val/score/mean [\d.e-]+  critic/score/mean", lines[0])
    assert lines[1].startswith("step 3/3")
    view = barograph.open("@last")
    assert view.name == "mine"
    assert view.config["demo"]["tasks"] == 8
    page, *others = lines[lines.index("inspect it with") + 1 :]
    assert page == f"  barograph up {view.path.parent.parent} --open"  # not run here: it serves until it is stopped
    for line in others:
        assert main(line.replace(f"-o {view.id}.csv", f"-o {config.parent / 'out.csv'}").split()[1:]) == 0, line


def test_a_quiet_demo_prints_only_its_run(config: Path, capsys: pytest.CaptureFixture[str]):
    """Output is one line; vocabulary, seed and trackers are options of the command."""
    arguments = ["--quiet", "--seed", "4", "--vocabulary", "trl", "--track-with", "jsonl"]
    assert main(["demo", "--steps", "2", "--config", str(config), *arguments]) == 0
    assert re.fullmatch(r"done: run \w+ in .*\n", capsys.readouterr().out)
    view = barograph.open("@last")
    assert view.info.vocabulary == "trl"
    assert view.config["demo"]["seed"] == 4
    rows = [json.loads(line) for file in view.path.rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert any("objective/scores" in str(row) for row in rows)


def test_sick_runs_are_listed_and_tagged(config: Path, capsys: pytest.CaptureFixture[str]):
    """``--sick list`` prints all; a wrong name is rejected with the nearest one."""
    assert main(["demo", "--sick", "list"]) == 0
    assert "kl-blowup" in capsys.readouterr().out
    assert main(["demo", "--sick", "kl-blow", "--config", str(config)]) == 1
    assert "did you mean kl-blowup" in capsys.readouterr().err
    assert main(["demo", "--steps", "1", "--sick", "kl-blowup", "--config", str(config), "--quiet"]) == 0
    view = barograph.open("@last")
    assert view.info.tags == ("kl-blowup",)
    assert view.config["demo"]["kl_coef"] == -0.3


def test_an_unknown_hyperparameter_in_the_yaml_is_rejected(config: Path, capsys: pytest.CaptureFixture[str]):
    """The error names the nearest hyperparameter, and nothing is recorded."""
    config.write_text("demo: {task: 8}\n")
    assert main(["demo", "--config", str(config)]) == 1
    assert "unknown hyperparameter 'task'; did you mean 'tasks'?" in capsys.readouterr().err


def test_without_gymnasium_the_demo_prints_the_install_command(tmp_path: Path):
    """Nothing is recorded."""
    code = "import sys; sys.modules['gymnasium'] = None; from barograph.apps.cli import main; sys.exit(main(['demo']))"
    environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path / "none")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert re.search(r"pip install '.*\[demo\]'", done.stderr)
    assert not (tmp_path / "none").exists()


def test_ctrl_c_ends_the_demo_cleanly_with_a_usable_run(config: Path, tmp_path: Path):
    """The exit code is 130, there is no traceback, and the recorded steps are readable."""
    environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path / "stopped"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "barograph", "demo", "--steps", "100000", "--config", str(config)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert demo.stdout is not None
    while not demo.stdout.readline().startswith("step 11/"):
        assert demo.poll() is None
    demo.send_signal(signal.SIGINT)
    output, errors = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert errors == ""
    assert "interrupted: run " in output
    view = barograph.open(next((tmp_path / "stopped" / "demo").iterdir()))
    assert (view.status.word, view.status.reason) == ("killed", "interrupted (Ctrl-C)")
    assert len(view.series("critic/score/mean")) >= 11


def test_on_a_terminal_the_demo_draws_a_live_display(config: Path, tmp_path: Path):
    """The display has progress, vital signs with sparklines, and phase shares."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "BAROGRAPH_DIR": str(tmp_path), "COLUMNS": "110", "LINES": "60", "TERM": "xterm"}
    command = [sys.executable, "-m", "barograph", "demo", "--steps", "4", "--config", str(config)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as demo:
        os.close(theirs)
        drawn = read_all(ours)
        assert demo.wait(timeout=60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)
    assert "step 4 of 4" in text
    for name in ("val/score/mean", "critic/entropy/mean", "actor_train/train_step", "▁", "█", "inspect it with"):
        assert name in text, name


def read_all(terminal: int) -> str:
    """Read a terminal until its other end is closed."""
    output, until = b"", time.monotonic() + 120
    while time.monotonic() < until:
        if select.select([terminal], [], [], 1.0)[0]:
            try:
                more = os.read(terminal, 65536)
            except OSError:
                break
            if not more:
                break
            output += more
    os.close(terminal)
    return output.decode()
