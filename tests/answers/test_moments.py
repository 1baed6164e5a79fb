"""What explains a bend in the curves of a run: annotations, restarts, checkpoints and changes of the config."""

import pytest

import barograph
from barograph.answers.moments import Moment, moments
from barograph.apps.cli import main


def record(run: barograph.Run, steps: range) -> None:
    for step in steps:
        run.log({"loss": 1.0})
        run.commit(step)


def test_annotations_are_at_the_open_step():
    """Or at the one that is given; without any commit, at the step that was logged last."""
    run = barograph.init(id="noted")
    run.annotate("begin")
    record(run, range(3))
    run.annotate("new data mix")
    run.annotate("seen late", step=1)
    run.annotate("x" * 5000)
    run.finish()
    found = [moment for moment in moments(barograph.open("noted")) if moment.kind == "annotation"]
    assert [(moment.step, moment.text[:12]) for moment in found] == [
        (0, "begin"), (1, "seen late"), (3, "new data mix"[:12]), (3, "x" * 12),
    ]  # fmt: skip
    assert len(found[-1].text) == 1000
    logged = barograph.init(id="logged")
    logged.log({"loss": 1.0}, step=70)
    logged.annotate("here")
    logged.finish()
    assert moments(barograph.open("logged")) == [Moment("annotation", 70, "here")]


def test_restarts_are_marked():
    """With the number of the attempt, at its first step."""
    for steps in (range(5), range(3, 8)):
        run = barograph.init(id="again")
        record(run, steps)
        run.finish()
    assert moments(barograph.open("again")) == [Moment("restart", 3, "attempt 2")]


def test_changes_of_the_config_and_checkpoints_are_marked():
    """The config before the first step is no change; a phase that saves is a checkpoint."""
    run = barograph.init(id="changed", config={"actor": {"lr": 1e-6}, "seed": 1})
    run.update_config({"seed": 2})
    record(run, range(4))
    run.update_config({"actor": {"lr": 5e-7}, "note": "added"})
    with run.phase("save_checkpoint"):
        pass
    record(run, range(4, 6))
    run.finish()
    assert moments(barograph.open("changed")) == [
        Moment("checkpoint", 4, ""),
        Moment("config", 4, "actor.lr: 1e-06 → 5e-07"),
    ]


def test_checkpoints_of_other_programs_are_marked():
    """VeRL logs the time of saving at the steps at which it saves."""
    run = barograph.init(id="verl")
    for step in range(6):
        run.log({"actor/loss": 1.0, **({"timing_s/save_checkpoint": 2.0} if step % 3 == 2 else {})}, step=step)
        run.log({"timing_s/update_actor": 1.0, "rewards/saved": 1.0}, step=step)
    run.finish()
    assert moments(barograph.open("verl")) == [Moment("checkpoint", 2, ""), Moment("checkpoint", 5, "")]


def test_show_lists_moments(capsys: pytest.CaptureFixture[str]):
    """With their steps; checkpoints are counted."""
    run = barograph.init(id="shown")
    with run.phase("save_checkpoint"):
        pass
    record(run, range(2))
    run.annotate("new data mix")
    run.finish()
    capsys.readouterr()
    assert main(["show", "shown", "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "step 2: new data mix" in out
    assert "checkpoints  1, the last at step 0" in out
