"""Real veRL records with ``trainer.logger=[console,barograph]``. ``scripts/test-frameworks`` runs these tests."""

import importlib.util
from typing import Any

import pytest
from recorded_runs import answers_of, block_of, overview_of

import barograph

pytestmark = pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl is not installed")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the driver with the overrides and the lines of the page."""
    folder = tmp_path_factory.mktemp("verl")
    [command] = [line for line in block_of("verl.md", "sh", "main_ppo").splitlines() if "main_ppo" in line]
    overrides = command.partition("main_ppo ")[2]
    return answers_of("verl_driver.py", folder, overrides, block_of("verl.md", "python", "shared_run"))


@pytest.fixture
def view(answers: dict[str, Any]) -> barograph.View:
    return barograph.open(answers["plain"])


def test_a_process_of_verl_loads_only_the_hook(answers: dict[str, Any]):
    """Hundreds of workers import veRL; what records is imported where a run begins."""
    hook = {"base", "base.displayed", "integrations", "integrations.guard", "integrations.frameworks"}
    hook = {"barograph", "barograph.integrations.frameworks.verl"} | {f"barograph.{name}" for name in hook}
    assert set(answers["loaded"]) - {"barograph.verl"} == hook


def test_values_names_and_source_are_those_of_verl(view: barograph.View):
    """The project and the name are those of veRL's config, and the step 0 of the first validation is there."""
    assert view.series("critic/score/mean").steps.tolist() == [1, 2, 3, 4, 5]
    assert view.series("critic/score/mean").values.tolist() == [0.1 * step for step in range(1, 6)]
    assert view.series("val-core/gsm8k/acc/mean@1").steps.tolist() == [0]
    assert (view.info.project, view.info.name) == ("math", "first")
    assert view.info.producer.startswith("verl/")
    assert view.problems() == []


def test_the_config_is_verls_without_secrets(view: barograph.View):
    """The whole config of Hydra, resolved."""
    assert view.config["trainer"]["logger"] == ["console", "barograph"]
    assert view.config["trainer"]["default_local_dir"] == "checkpoints/math/first"
    assert view.config["actor_rollout_ref"]["actor"]["ppo_epochs"] == 1
    assert "0123456789" not in str(view.config)


def test_validation_generations_are_samples(view: barograph.View):
    """With prompt, completion and score, at the step of the validation."""
    found = {(sample.step, sample.prompt, sample.completion, sample.reward) for sample in view.samples()}
    assert found == {(0, "2 + 2 = ?", "4", 1.0), (0, "3 + 3 = ?", "7", 0.0)}


def test_the_overview_says_what_the_run_was(view: barograph.View):
    """The source is veRL, its names are known, the score is the reward, and a step's time has its phases."""
    found = overview_of(view.path.parent.parent, view.info.id)
    assert found["source"].startswith("verl")
    assert (found["unknown"], found["ambiguous"]) == (0, [])
    [score] = [value for value in found["vital"] if value["name"] == "critic/score/mean"]
    assert score["metric"] == "reward/score_not_aborted/mean"  # veRL leaves out aborted ones
    assert {phase["name"]: phase["seconds"][0] for phase in found["time"]["phases"]} == {
        "timing_s/gen": 4.0, "timing_s/update_actor": 2.0
    }  # fmt: skip
    assert found["steps"] == (0, 5)
    assert view.status.word == "finished"


def test_an_actor_of_ray_records_and_tells_of_a_crash(answers: dict[str, Any]):
    """``TaskRunner`` ended with exit code 1."""
    view = barograph.open(answers["actor"])
    assert len(view.series("actor/pg_loss")) == 5
    assert view.status.word == ("crashed" if answers["tells_how_it_ended"] else "finished")


def test_other_processes_of_the_job_find_the_run(answers: dict[str, Any]):
    """A rollouter that validates, and one that joins with the lines of the page."""
    view = barograph.open(answers["actor"])
    assert answers["rollouter"] == view.info.id
    assert {writer.role for writer in view.writers()} == {"trainer", "rollouter", "judge"}
    assert [sample.completion for sample in view.samples(step=(3, 3))] == ["8"]
    assert view.series("judge/seconds").values.tolist() == [2.0]


def test_a_training_that_resumes_continues_its_run(answers: dict[str, Any]):
    """The newest of its name, as a new attempt; another start is another run."""
    assert answers["resumed"] == answers["closed"] != answers["plain"]
    view = barograph.open(answers["resumed"])
    assert [writer.attempt for writer in view.writers()] == [1, 2]
    assert view.series("critic/score/mean").steps.tolist() == [7]


def test_what_fails_in_barograph_does_not_reach_verl(answers: dict[str, Any]):
    """After the end of a run, and with values of all kinds; veRL's own errors stay as they are."""
    assert "not recorded" in answers["stderr"]
    assert 1 not in barograph.open(answers["closed"]).series("actor/pg_loss").steps
    assert answers["refused"] == "nothing is not supported"
    assert answers["started_ray"] is False


def test_a_broken_disk_costs_the_run_and_nothing_else(answers: dict[str, Any]):
    """The directory of the runs was a file."""
    assert answers["broken"] not in answers["plain"]
    assert "barograph: cannot write to " in answers["stderr"]
