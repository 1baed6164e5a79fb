"""Real ROLL records with ``track_with: barograph``. ROLL is no package: ``ROLL_HOME`` is the path of a checkout."""

import os
from typing import Any

import pytest
from recorded_runs import answers_of, block_of, overview_of

import barograph

pytestmark = pytest.mark.skipif("ROLL_HOME" not in os.environ, reason="ROLL_HOME is not the path of a checkout of ROLL")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the import and the YAML of the page."""
    lines = block_of("roll.md", "python", "import"), block_of("roll.md", "yaml", "track_with")
    return answers_of("roll_pipeline.py", tmp_path_factory.mktemp("roll"), *lines, PYTHONPATH=os.environ["ROLL_HOME"])


@pytest.fixture
def view(answers: dict[str, Any]) -> barograph.View:
    return barograph.open(answers["path"])


def test_values_are_recorded_under_the_names_that_roll_shows(view: barograph.View):
    """Without the reducer, and with the k of pass@k; a row without a step is of the next one."""
    assert view.series("actor/pg_loss").values.tolist() == [0.1 * step for step in range(4)]
    assert view.series("val/pass@8").values.tolist() == [0.7] * 4
    assert view.series("val/pass@1").values.tolist() == [0.3] * 4
    assert view.series("time/step_train").values.tolist() == [2.0] * 4
    assert view.series("later").steps.tolist() == [4]
    assert [text.text for text in view.texts()] == [f"prompt of step {step}" for step in range(4)]


def test_project_name_source_and_config_are_rolls(answers: dict[str, Any], view: barograph.View):
    """A key of W&B is told, left out and blanked."""
    assert (view.info.project, view.info.name, view.info.tags) == ("roll-rlvr", "qwen-math", ("rlvr",))
    assert view.info.producer.split("/")[0] == "roll"
    assert view.config["seed"] == 42
    assert "0123456789" not in str(view.config)
    assert "left out api_key" in answers["stderr"]


def test_the_overview_says_what_the_run_was(view: barograph.View):
    """The source is ROLL, and the score is the reward."""
    found = overview_of(view.path.parent.parent, view.info.id)
    assert found["source"].startswith("roll")
    assert "critic/score/mean" in {value["name"] for value in found["vital"]}
    assert {"time/step_train", "time/step_rollout"} <= {phase["name"] for phase in found["time"]["phases"]}
    assert found["steps"] == (0, 4)
    assert view.status.word == "finished"


def test_what_fails_in_barograph_does_not_reach_roll(answers: dict[str, Any], view: barograph.View):
    """After the end of the run, and where its directory is a file."""
    assert "after" not in view.names()
    assert "cannot write" in answers["stderr"] or "not recorded" in answers["stderr"]
