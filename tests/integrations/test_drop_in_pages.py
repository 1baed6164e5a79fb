"""The pages about the modules that replace a tracker have what these have, and their lines run."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import barograph
from barograph.integrations.drop_ins.recorded_run import NoOp
from barograph.tensorboard import SummaryWriter

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "frameworks"


def rows(page: str, heading: str) -> list[tuple[str, ...]]:
    """Return the cells of the table below a heading, or below a column's title."""
    text = (PAGES / page).read_text().split(heading, 1)[1]
    lines = text[text.index("|---") :].splitlines()[1:]
    table = lines[: next((place for place, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in table]


def names(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def is_stand_in(value: Any) -> bool:
    return isinstance(value, NoOp) or (isinstance(value, type) and issubclass(value, NoOp))


def test_every_name_of_wandb_is_in_one_of_the_tables():
    """What maps is there, and what does not is not."""
    ours = import_module("barograph.wandb")
    mapped = set().union(*(names(name) for name, _ in rows("wandb.md", "## What maps")))
    missing = set().union(*(names(name) for name, _ in rows("wandb.md", "## What does not")))
    assert mapped == {*ours.__all__, "run", "config", "summary"} - {"Config", "Summary"}
    assert all(is_stand_in(getattr(ours, name)) for name in missing)
    real = pytest.importorskip("wandb")
    assert {*real.__all__} - {"__version__"} <= mapped | missing


def test_every_argument_and_attribute_on_the_page_exists():
    """Of init by its signature, of the run by its attributes."""
    ours = import_module("barograph.wandb")
    found = {name: text for cell, text in rows("wandb.md", "## What maps") for name in names(cell)}
    arguments = set(inspect.signature(ours.init).parameters)
    assert {name for name in names(found["init"]) if not name.startswith("WANDB_")} <= arguments
    assert {name for name in names(found["init"]) if name.startswith("WANDB_")} == {
        *import_module("barograph.integrations.drop_ins.wandb").VARIABLES
    }
    with ours.init() as run:
        assert not [name for name in names(found["run"]) if is_stand_in(getattr(run, name))]
        assert not [name for name in names(found["config"]) if not hasattr(run.config, name)]


@pytest.mark.parametrize("module", ["swanlab", "mlflow", "trackio"])
def test_the_calls_of_other_modules_are_on_the_page(module: str):
    """All that record, and no other."""
    listed = {name.strip("`"): names(text) for name, text in rows("wandb.md", "## Other trackers' modules")}
    expected = {*import_module(f"barograph.{module}").__all__} | ({"run", "config"} if module != "mlflow" else set())
    assert listed[f"barograph.{module}"] == expected


def test_the_calls_of_the_writer_are_on_the_page():
    """All methods of its own."""
    own = {name for name in vars(SummaryWriter) if not name.startswith("_") and callable(getattr(SummaryWriter, name))}
    assert {name.strip("`") for name, _ in rows("tensorboard.md", "```\n\nA writer")} == own


@pytest.mark.parametrize("page", ["wandb.md", "tensorboard.md"])
def test_the_lines_of_the_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each block records a run."""
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL):
        exec(code, {})
        view = barograph.open("@last")
        assert view.name == "grpo"
        assert view.series("reward").last == 0.5
        assert view.config["lr"] == 1e-6
        assert view.status.word == "finished"


def test_the_example_differs_from_a_script_of_wandb_in_one_line():
    """Without the package's name in the import it is a script of W&B; it records values, samples and histograms."""
    example = ROOT / "examples" / "from_wandb.py"
    assert [line for line in example.read_text().splitlines() if line.startswith("import barograph")] == [
        "import barograph.wandb as wandb  # was: import wandb"
    ]
    assert example.read_text().count("barograph.") == 1
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    view = barograph.open("from-wandb")
    assert view.series("reward").steps.tolist() == [*range(200)]
    assert view.series("eval/accuracy").steps.tolist() == [0, 50, 100, 150]
    assert [sample.step for sample in view.samples()] == [0, 50, 100, 150]
    assert (len(view.histograms("rewards")), view.series("best_reward").last) == (200, view.series("reward").last)
