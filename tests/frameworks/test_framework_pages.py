"""The lines of docs/frameworks that users copy record what the pages say."""

import importlib.util
from pathlib import Path

import pytest
from framework_trainings import Trained

import barograph

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("trl", "accelerate", "lightning")),
    reason="trl, accelerate or lightning is not installed",
)


def test_the_lines_of_the_pages_run(tmp_path: Path):
    """Every block is a run with the project and the name that it gives, and its values."""
    Trained(tmp_path).train("page_lines.py")
    folders = sorted((tmp_path / "runs").glob("*/*"), key=lambda folder: barograph.open(folder).info.created)
    views = [barograph.open(folder) for folder in folders]
    told = [(view.info.producer, view.info.project, view.info.name, view.status.word) for view in views]
    assert told == [
        ("trl/grpo", "default", "first", "finished"),
        ("trl/grpo", "default", "first", "finished"),
        ("trl/grpo", "math", "again", "finished"),
        ("trl/grpo", "math", "first", "finished"),
        ("trl/grpo", "default", "again", "finished"),
        ("barograph", "math", "first", "finished"),
        ("barograph", "math", "first", "finished"),
    ]
    assert [len(view.series("loss").steps) for view in views] == [2, 2, 2, 2, 2, 100, 5]
    assert [bool(view.samples(limit=1)) for view in views] == [True, False, True, True, True, False, False]
    assert [bool(view.names("actor/ratio_max")) for view in views] == [False] * 4 + [True] + [False] * 2
    assert all(view.config["max_steps"] == 2 for view in views[:5])
    assert list(tmp_path.rglob("events.out.tfevents.*"))
