"""A framework's run begins with what the framework knows, and whatever fails is told and does no harm."""

from pathlib import Path

import pytest

import barograph
from barograph.base.formatting import flattened
from barograph.integrations.frameworks.run import begin, record, run_to_continue, source_of
from barograph.integrations.guard import unharmed


def test_the_environment_precedes_the_user_and_the_user_the_framework(monkeypatch: pytest.MonkeyPatch):
    """The rank is 0 of 1: a framework logs in one process, whatever its launcher started."""
    monkeypatch.setenv("BAROGRAPH_NAME", "of the environment")
    monkeypatch.setenv("WORLD_SIZE", "8")
    run = begin("verl", {"lr": 1.0}, {"project": "of the user", "name": "x"}, project="y", name="z", group="g")
    assert (run.project, run.name, run.info.group) == ("of the user", "of the environment", "g")
    assert (run.writer.rank, run.info.producer, run.config["lr"]) == (0, "verl", 1.0)
    run.finish()


def test_keys_of_another_tracker_are_told_and_left_out(capsys: pytest.CaptureFixture[str]):
    """Not their values, which may be secrets."""
    begin("roll", {}, {"api_key": "sk-0123456789abcdef", "tags": ["t"], 3: 4}, project="p").finish()
    told = capsys.readouterr().err
    assert "barograph: left out api_key, 3: not a setting of barograph" in told
    assert "0123456789" not in told


@pytest.mark.parametrize("given", [{"memory": "some"}, {"track_with": ["nothing"]}, ["a list"], "text"])
def test_a_wrong_setting_costs_the_record_only(given: object, capsys: pytest.CaptureFixture[str]):
    """The framework gets a run that records nothing."""
    run = begin("trinity", {}, given, project="p")  # type: ignore[arg-type]
    record(run, {"a": 1.0}, 0)
    run.finish()
    assert run.writer.attempt == 0
    assert "barograph: trinity: this run is not recorded: " in capsys.readouterr().err


def test_another_run_of_the_process_stays_open():
    """A script may record a run of its own beside the framework's."""
    own = barograph.init()
    begin("verl").finish()
    assert not own.ended
    own.finish()


def test_values_are_flattened_and_texts_are_texts():
    """Steps are committed once; one that comes late is recorded all the same."""
    run = begin("roll", project="p")
    record(run, {"a": {"b": {"c": 1.0}, "text": "words"}, "d": 2}, 5)
    record(run, {"late": 3.0}, 2)
    record(run, {"next": 4.0}, None)
    run.finish()
    view = barograph.open(run.path)
    assert {name: view.series(name).steps.tolist() for name in view.names()} == {
        "a/b/c": [5], "d": [5], "late": [2], "next": [6]
    }  # fmt: skip
    assert [(text.name, text.text, text.step) for text in view.texts()] == [("a/text", "words", 5)]
    assert dict(flattened({})) == {}


def test_the_newest_run_of_the_same_training_is_continued():
    """By project, name and config; a run with another config is another training."""
    ids = []
    for folder in ("one", "one", "two"):
        run = begin("verl", {"folder": folder}, project="p", name="n")
        ids.append(run.id)
        run.finish()
    assert run_to_continue("p", "n", lambda config: config["folder"] == "one") == ids[1]
    assert run_to_continue("p", "other", lambda config: True) is None
    assert run_to_continue("nothing here", "n", lambda config: True) is None


def test_a_source_has_the_version_that_the_catalogue_knows():
    """NumPy's stands for a version of Trinity-RFT that is too old for its eras, or for a package that is not there."""
    assert source_of("trinity", "no such package") == "trinity"
    assert source_of("verl", "numpy").startswith("verl/")


def test_what_fails_is_told_once(capsys: pytest.CaptureFixture[str]):
    """And nothing is raised."""

    @unharmed
    def work(path: Path) -> None:
        path.read_text()

    for _ in range(3):
        work(Path("/no/such/file"))
    told = capsys.readouterr().err
    assert told.count("work failed: FileNotFoundError") == 1
