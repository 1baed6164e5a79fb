"""``Accelerator(log_with="barograph")`` and Lightning's ``Trainer(logger=BarographLogger())``."""

import importlib.util
import json
import math
from pathlib import Path

import pytest
from framework_trainings import TORCHRUN, Trained

from barograph.answers.reports.embedded import report_data

needs_accelerate = pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is missing")
needs_lightning = pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is missing")


def assert_secret_nowhere(folder: Path) -> None:
    """No file of a run has the planted secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    assert not any(b"planted-secret" in path.read_bytes() for path in files)


@needs_accelerate
def test_a_loop_of_accelerate_is_a_run(loops: Trained):
    """Values, texts, phases, config, project and name; the page has its steps, its end and its phase."""
    view = loops.view("loop")
    assert view.series("loss").values.tolist() == loops.log("accelerate")
    assert view.series("loss").steps.tolist() == view.series("time/backward/total").steps.tolist() == [0, 1, 2, 3, 4]
    assert (view.info.project, view.status.word, view.config["lr"]) == ("tiny", "finished", 0.1)
    assert [text.text for text in view.texts()] == [f"step {step}" for step in range(5)]
    overview = report_data(view)["overview"]
    assert overview["steps"] == [0, 4]
    assert [writer["status"] for writer in overview["writers"]] == ["finished"]
    assert "backward" in json.dumps(overview["time"])
    assert_secret_nowhere(view.path)


@needs_accelerate
def test_two_processes_of_accelerate_are_one_run(tmp_path: Path):
    """Accelerate calls its trackers in the main process; the run waits for no other."""
    trained = Trained(tmp_path)
    trained.train("tiny_loops.py", "accelerate", launcher=TORCHRUN)
    view = trained.view("loop")
    assert [writer.rank for writer in view.writers()] == [0]
    assert (view.missing_ranks(), view.status.word) == ([], "finished")
    assert view.series("loss").values.tolist() == trained.log("accelerate")


@needs_accelerate
def test_a_loop_of_accelerate_that_raises_has_crashed(tmp_path: Path):
    """The run ends with the exception, and has the steps before it."""
    trained = Trained(tmp_path)
    assert trained.run("tiny_loops.py", "crash").returncode == 1
    view = trained.view("loop")
    assert (view.status.word, view.status.reason) == ("crashed", "RuntimeError: out of data")
    assert view.series("loss").steps.tolist() == [0, 1, 2]


@needs_lightning
def test_a_fit_of_lightning_is_a_run(loops: Trained):
    """Training and test are one run, with the model's hyperparameters as config."""
    view = loops.view("fitted")
    assert view.series("loss").values.tolist() == loops.log("lightning")
    assert view.series("loss").steps.tolist() == [0, 1, 2, 3, 4]
    assert view.series("test_loss").steps.tolist() == [5]
    assert math.isfinite(view.series("test_loss").values[0])
    assert (view.status.word, view.config["lr"]) == ("finished", 0.1)
    overview = report_data(view)["overview"]
    assert [writer["status"] for writer in overview["writers"]] == ["finished"]
    assert overview["steps"] == [0, 5]
    assert_secret_nowhere(view.path)


@needs_lightning
def test_a_fit_of_lightning_that_raises_has_crashed(loops: Trained):
    """The run ends with the exception of the training, also where the program goes on."""
    view = loops.view("failed")
    assert (view.status.word, view.status.reason) == ("crashed", "RuntimeError: out of data")
    assert view.series("loss").steps.tolist() == [0, 1, 2]
