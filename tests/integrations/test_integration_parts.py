"""The parts of integrations that need no framework."""

from pathlib import Path
from unittest.mock import patch

import pytest

import barograph
from barograph.integrations.frameworks.run import begin_configured, record
from barograph.journal.write.writer import JournalWriter
from barograph.session import current_run


def test_a_step_is_committed_when_it_is_logged():
    """The phases before a step's first row are of that step, further rows are added to it, and texts are texts."""
    run = barograph.init()
    for step in (3, 4):
        with run.phase("work"):
            pass
        record(run, {"loss": float(step)}, step)
        record(run, {"accuracy": 0.5, "note": f"after {step}"}, step)
        assert run.step == step
    run.finish()
    view = barograph.open(run.id)
    assert view.series("loss").values.tolist() == [3.0, 4.0]
    assert view.series("time/work/total").steps.tolist() == view.series("accuracy").steps.tolist() == [3, 4]
    assert [(text.name, text.text, text.step) for text in view.texts()] == [
        ("note", "after 3", 3), ("note", "after 4", 4)
    ]  # fmt: skip


def test_without_a_number_every_call_is_a_step():
    """As in trackers that count their steps themselves."""
    run = barograph.init()
    for loss in (2.0, 1.0):
        record(run, {"loss": loss}, None)
    run.finish()
    assert barograph.open(run.id).series("loss").steps.tolist() == [0, 1]


def test_a_framework_gives_less_than_the_environment_and_the_user(monkeypatch: pytest.MonkeyPatch):
    """A name of the framework is a default; entries without a value count as not given."""
    monkeypatch.setenv("BAROGRAPH_PROJECT", "mine")
    run = begin_configured({"project": "theirs", "name": "theirs", "group": None}, {"name": "chosen"})
    assert (run.project, run.name, run.info.group) == ("mine", "chosen", None)
    run.finish()


def test_a_run_that_cannot_begin_is_disabled_and_a_wrong_setting_raises(capsys: pytest.CaptureFixture[str]):
    """A failure of ours costs the record; a mistake of the user is told before the training."""
    with patch.object(JournalWriter, "event", side_effect=RuntimeError("no journal")):
        run = begin_configured({}, {})
    assert "not recorded: RuntimeError: no journal" in capsys.readouterr().err
    run.log({"loss": 1.0}, step=1)
    assert run.id == "disabled"
    run.finish()
    with pytest.raises(barograph.SettingsError, match="source"):
        begin_configured({"source": "nobody"}, {})


def test_a_failing_journal_does_not_break_the_guard():
    """A call whose failure cannot be written either does not raise."""
    run = barograph.init()
    with patch.object(JournalWriter, "record", side_effect=RuntimeError("no journal")):
        run.text("note", "lost")
    run.finish()
    assert barograph.open(run.id).status.word == "finished"


def test_a_continued_run_ends_after_the_steps_of_its_checkpoint():
    """What is collected when a process ends in its first step has the number after the checkpoint's, not 0."""
    run = barograph.init(id="resumed")
    for step in range(5):
        run.log({"loss": 1.0})
        run.commit(step)
    run.finish()
    again = barograph.init(id="resumed")
    again._continue_after(4)
    with again.phase("work"):
        pass
    again.finish()
    view = barograph.open("resumed")
    assert view.series("loss").steps.tolist() == [0, 1, 2, 3, 4]
    assert view.series("time/work/total").steps.tolist() == [5]


def test_the_current_run_is_the_last_one_that_is_open():
    """Integrations record to the run that the user has begun."""
    assert current_run() is None
    run = barograph.init()
    assert current_run() is run
    run.finish()
    assert current_run() is None


def test_watch_names_what_it_was_given(tmp_path: Path):
    """A model instead of a trainer is a mistake that is told."""
    with pytest.raises(barograph.SettingsError, match="expected a trainer of TRL or transformers, got PosixPath"):
        barograph.watch(tmp_path)
