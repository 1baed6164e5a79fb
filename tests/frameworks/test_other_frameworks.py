"""The commands of docs/frameworks/others.md, on logs of real loggers. ``scripts/test-frameworks`` runs these tests."""

import importlib.util
import re
from pathlib import Path

import pytest
from recorded_runs import DOCS, answers_of, block_of

import barograph
from barograph.apps.cli import main

COMMANDS = re.findall(r"^barograph (import .*)$", (DOCS / "others.md").read_text(), re.MULTILINE)
WITH_TENSORBOARD = [command for command in COMMANDS if "tensorboard_log" in command or "nemo-rl" in command]


def imported(command: str, folder: Path) -> barograph.View:
    """Run a command of the page, without waiting for more; return the only run."""
    words = [word for word in command.split() if word != "--follow"]
    assert main([*words, "--to", str(folder / "runs")]) == 0
    return barograph.open("@last", dir=folder / "runs")


def command_of(source: str) -> str:
    [command] = [command for command in COMMANDS if command.endswith(f"--source {source}")]
    return command


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


@needs("openrlhf")
def test_openrlhf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Values of its TensorBoard logger, and the source."""
    monkeypatch.chdir(tmp_path)
    answers_of("others_loggers.py", tmp_path, "openrlhf")
    view = imported(command_of("openrlhf"), tmp_path)
    assert view.series("train/reward").steps.tolist() == [1, 2, 3, 4]
    assert view.series("train/reward").values.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert view.info.producer == "openrlhf"


@needs("tinker_cookbook")
def test_tinker_cookbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Values of its file, and the source."""
    monkeypatch.chdir(tmp_path)
    answers_of("others_loggers.py", tmp_path, "tinker")
    view = imported(command_of("tinker"), tmp_path)
    assert view.series("env/all/reward/total").values.tolist() == [0.1 * step for step in range(4)]
    assert view.info.producer == "tinker"


@needs("tinker_cookbook")
def test_in_place_of_wandb(tmp_path: Path):
    """The lines of the page make the Tinker cookbook record directly, with its config."""
    answers_of("others_loggers.py", tmp_path, "direct", block_of("others.md", "python", "sys.modules"))
    view = barograph.open("@last", dir=tmp_path / "logs" / "first" / "barograph-runs")
    assert (view.info.project, view.info.name, view.info.producer) == ("math", "first", "tinker")
    assert view.series("env/all/reward/total").values.tolist() == [0.1 * step for step in range(4)]
    assert view.config["lr"] == 1e-5
    assert "0123456789" not in str(view.config)


@pytest.mark.parametrize("command", WITH_TENSORBOARD)
def test_the_commands_for_tensorboard(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Files of torch's writer, which these frameworks use, at the place that the page has."""
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    monkeypatch.chdir(tmp_path)
    path = command.split()[1]
    writer = tensorboard.SummaryWriter(f"{path}/exp_001/tensorboard" if path == "logs" else path)
    writer.add_scalar("train/loss", 0.5, 3)
    writer.close()
    view = imported(command, tmp_path)
    assert view.series("train/loss").values.tolist() == [0.5]
    assert view.info.producer == command.split()[-1]


def test_the_command_for_prime_rl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lines of the form that its file monitor writes."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / command_of("prime-rl").split()[1]
    folder.mkdir(parents=True)
    lines = [f'{{"step": {step}, "time": {1.7e9 + step}, "loss/mean": 0.5}}\n' for step in range(5)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    view = imported(command_of("prime-rl"), tmp_path)
    assert view.series("loss/mean").steps.tolist() == [0, 1, 2, 3, 4]
    assert view.info.producer == "prime-rl"


def test_every_framework_of_the_page_has_a_command():
    """Nine frameworks, of which slime and miles share one."""
    table = re.findall(r"^\| \[([^\]]+)\]\(#", (DOCS / "others.md").read_text(), re.MULTILINE)
    assert len(table) == len(COMMANDS) + 1 == 9
