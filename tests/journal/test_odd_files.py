"""Run directories with files that are not regular ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import barograph
from barograph.delivery.processes import take_lock
from barograph.delivery.relay.state import lock_path

COMMANDS = (
    ["ls"],
    ["ls", "--json"],
    ["show", "@last"],
    ["du"],
    ["tail", "@last"],
    ["samples", "@last"],
    ["show", "innocent"],
)
CALLER = """
import contextlib, io, json, sys
from barograph.apps.cli import main

results = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = main(command)
    results.append([code, output.getvalue()])
print(json.dumps(results))
"""


@pytest.mark.parametrize("name", ["run.json", "trainer.0.2.0.seg", "relay/tracker.json"])
@pytest.mark.parametrize("kind", ["fifo", "directory", "link to a fifo", "loop"])
def test_an_odd_file_hangs_no_command(name: str, kind: str):
    """A FIFO, a directory or a link in place of a file is skipped, and the other run is listed."""
    with barograph.init(project="p", name="innocent") as innocent:
        innocent.log({"x": 1.0}, step=1)
    with barograph.init(project="p", name="odd") as odd:
        odd.log({"x": 1.0}, step=1)
    (odd.path / name).unlink(missing_ok=True)
    (odd.path / name).parent.mkdir(exist_ok=True)
    _make(odd.path / name, kind)
    done = subprocess.run(
        [sys.executable, "-c", CALLER, json.dumps(COMMANDS)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    for command, (code, output) in zip(COMMANDS, json.loads(done.stdout), strict=True):
        assert code == 0, (command, done.stderr)
        if command[0] in ("ls", "du"):
            assert innocent.id in output
            assert odd.id in output


def _make(path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/null")
    elif kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        os.mkfifo(path.parent / "pipe")
        path.symlink_to("pipe")


@pytest.mark.parametrize("tracker", [None, "tensorboard"])
@pytest.mark.parametrize("kind", ["fifo", "directory", "link to a fifo", "loop", "device"])
def test_an_odd_file_in_place_of_a_lock_does_not_block(tmp_path: Path, tracker: str | None, kind: str):
    """The relay cannot start, which is an error that its caller reports."""
    path = lock_path(tmp_path, tracker)
    path.parent.mkdir()
    _make(path, kind)
    ask = (
        f"import pathlib; from barograph.delivery.relay.state import take_lock; take_lock(pathlib.Path({str(path)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=20)
    assert "OSError" in done.stderr or "IsADirectoryError" in done.stderr


def test_a_lock_is_taken_by_one_process(tmp_path: Path):
    """A second one gets None until the first closes its file."""
    first = take_lock(tmp_path / "relay" / "lock")
    assert first is not None
    assert take_lock(tmp_path / "relay" / "lock") is None
    first.close()
    second = take_lock(tmp_path / "relay" / "lock")
    assert second is not None
    second.close()
