"""Real Trinity-RFT records with its monitor of ours. ``scripts/test-frameworks`` runs these tests."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import answers_of, block_of, overview_of

import barograph
from barograph.base.model import Writer

pytestmark = pytest.mark.skipif(importlib.util.find_spec("trinity") is None, reason="trinity-rft is not installed")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the driver with the section of the page."""
    folder = tmp_path_factory.mktemp("trinity")
    return {**answers_of("trinity_driver.py", folder, block_of("trinity.md", "yaml", "monitor_type")), "folder": folder}


@pytest.fixture
def view(answers: dict[str, Any]) -> barograph.View:
    return barograph.open(answers["both"][0])


def test_trainer_and_explorer_record_one_run(answers: dict[str, Any], view: barograph.View):
    """In the checkpoint directory that both see, each with its own steps."""
    assert answers["both"][0] == answers["both"][1]
    assert view.path.parent.parent == answers["folder"] / "checkpoints" / "barograph-runs"
    assert {writer.role for writer in view.writers()} == {"trainer", "explorer"}
    assert view.series("actor/pg_loss").values.tolist() == [0.1 * step for step in range(1, 5)]
    assert view.series("rollout/accuracy/mean", role="explorer").steps.tolist() == [2, 4]
    assert view.series("eval/gsm8k/accuracy/mean@2", role="explorer").steps.tolist() == [2]
    assert view.writer_statuses()[Writer("explorer", 0, 1)].word == "finished"
    assert view.status.word == "finished"
    assert view.problems() == []


def test_project_group_name_source_and_config_are_trinitys(view: barograph.View):
    """Settings of ``monitor_args`` are used; a key of another monitor is blanked in the config."""
    assert (view.info.project, view.info.group, view.info.name) == ("math", "grpo", "first")
    assert (view.info.tags, view.info.notes) == (("grpo",), "first try")
    assert view.info.producer.partition("/")[0] == "trinity"
    assert view.config["monitor"]["monitor_type"] == "barograph.trinity.Monitor"
    assert view.config["algorithm"]["algorithm_type"] == "ppo"
    assert "0123456789" not in str(view.config)


def test_a_response_is_a_completion(view: barograph.View):
    """A row without a reward has none."""
    found = {(sample.prompt, sample.completion, sample.reward) for sample in view.samples(step=(3, 3))}
    assert found == {("1 + 1 =", "2", 1.0), ("1 + 2 =", "4", None)}


def test_the_overview_says_what_the_run_was(view: barograph.View):
    """The source is Trinity, its names are known, and both processes are listed."""
    found = overview_of(view.path.parent.parent, view.info.id)
    assert found["source"].startswith("trinity")
    assert (found["unknown"], found["ambiguous"]) == (0, [])
    assert "actor/grad_norm" in {value["name"] for value in found["vital"]}
    assert {writer["role"] for writer in found["writers"]} == {"trainer", "explorer"}


def test_a_continued_job_is_an_attempt_and_a_new_one_a_run(answers: dict[str, Any], view: barograph.View):
    """Trinity gives a job that begins anew another name and another checkpoint directory."""
    assert answers["continued"] == answers["both"][0]
    assert Writer("trainer", 0, 2) in view.writers()
    assert answers["anew"] != answers["both"][0]
    assert barograph.open(answers["anew"]).info.name.startswith("first_")


def test_what_fails_in_barograph_does_not_reach_trinity(answers: dict[str, Any], view: barograph.View):
    """The driver logged a number and no table after the end of the run."""
    assert 9 not in view.series("actor/pg_loss").steps


def test_the_short_name_works_with_a_plugin(tmp_path: Path):
    """A file with the line of the page; here also where the directory of the runs is a file."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "barograph_monitor.py").write_text(block_of("trinity.md", "python", "import"))
    (plugins / "file").write_text("")
    spec = importlib.util.find_spec("trinity")
    assert spec is not None
    assert spec.origin is not None
    try:
        found = answers_of("trinity_driver.py", tmp_path, "", str(plugins), BAROGRAPH_DIR=str(plugins / "file"))
    finally:  # Trinity copies a plugin into its package
        (Path(spec.origin).parent / "plugins" / "barograph_monitor.py").unlink(missing_ok=True)
    assert found["short"] == "barograph.integrations.frameworks.trinity"
    assert "barograph: cannot write to " in found["stderr"]
