"""The steps that calls of a tracker's log get are the tracker's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from log_calls import SEQUENCES

import barograph
from barograph.importers.logs import logs_at
from barograph.importers.opening import ImportedView
from barograph.journal.format.folder import run_folders
from barograph.journal.view import View

SCRIPT = Path(__file__).with_name("log_calls.py")
Points = dict[str, list[tuple[int, float]]]


def make_calls(module: str, tracker: str, folder: Path) -> None:
    """Run the script with a module; whatever it writes is in the folder."""
    folder.mkdir()
    env = {**os.environ, "TRACKIO_DIR": str(folder), "BAROGRAPH_DIR": str(folder)}
    command = [sys.executable, str(SCRIPT), module, tracker]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]


def points(view: View) -> Points:
    """Return steps and values of every name."""
    found = {name: view.series(name) for name in view.names()}
    return {name: [*zip(s.steps.tolist(), s.values.tolist(), strict=True)] for name, s in sorted(found.items())}


@pytest.mark.parametrize("tracker", SEQUENCES)
def test_steps_are_those_of_the_tracker(tracker: str, home: Path):
    """Every sequence of calls gives the points that a log of the real package has."""
    theirs, ours = home / "theirs", home / "ours"
    make_calls(tracker, tracker, theirs)
    make_calls(f"barograph.{tracker}", tracker, ours)
    expected = {(view := ImportedView(log)).name: points(view) for log in logs_at(theirs)}
    found = {(view := View(folder)).name: view for folder in run_folders(ours)}
    assert expected.keys() == found.keys() == SEQUENCES[tracker].keys()
    assert {name: points(view) for name, view in found.items()} == expected
    assert all(view.status.word == "finished" and view.config == {"lr": 0.1} for view in found.values())
    assert barograph.open("plain", ours).info.project == "p"
