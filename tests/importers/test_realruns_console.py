"""Real console logs give the values of the reference columns beside them."""

import csv
import math
import os
from pathlib import Path

import pytest
from console_logs import imported, points, unread

PROJECT = Path(__file__).parents[2]
REALRUNS = Path(os.environ.get("BAROGRAPH_REALRUNS") or PROJECT.parent / "shared" / "realruns")
pytestmark = pytest.mark.skipif(not REALRUNS.is_dir(), reason="the real logs are not here: set BAROGRAPH_REALRUNS")


def rows_of(name: str) -> list[dict[str, str]]:
    with (REALRUNS / name / "series.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def log_of(name: str) -> Path:
    """Return the log of a run: the file that is not the reference."""
    return next(path for path in (REALRUNS / name).iterdir() if path.name != "series.csv")


def agrees(value: float, digits: str) -> bool:
    """Return whether a value is the one that was rounded to six digits."""
    return float(f"{value:.6g}") == float(digits) or (math.isnan(value) and digits == "nan")


def check(found: dict[int, float], expected: dict[int, str]) -> None:
    assert found.keys() == expected.keys()
    assert all(agrees(found[step], digits) for step, digits in expected.items())


def test_verl_lines():
    """Every column of every step; the config, and the names that it has."""
    rows = rows_of("verl-agentgym-prefix-smoke")
    view = imported(log_of("verl-agentgym-prefix-smoke"))
    for name in rows[0].keys() - {"step"}:
        check(points(view, name), {int(row["step"]): row[name] for row in rows if row[name]})
    assert (view.info.name, view.info.project, view.info.producer) == ("smoke_test", "textcraft_prefix", "verl")
    assert view.config["trainer"]["total_epochs"] == 1
    assert unread(view) == []


def test_dicts_of_trl():
    """Every row in its order, though a terminal has wrapped them; a job that was cancelled later had finished."""
    rows = rows_of("trl-openenvhack-200")
    view = imported(log_of("trl-openenvhack-200"))
    for name in rows[0]:
        check(points(view, name), {number: row[name] for number, row in enumerate(rows, 1) if row[name]})
    assert view.info.producer == "trl"
    assert view.status.word == "finished"
    assert unread(view) == []


DEEPSPEED = {
    "epoch": "epoch", "act_loss": "act_loss", "cri_loss": "cri_loss", "reward": "average reward score",
    "e2e_s": "E2E latency", "gen_s": "Generate time", "train_s": "Training time", "samples_per_s": "CurSamplesPerSec",
    "skipped": "skipped", "lr": "lr",
}  # fmt: skip


def test_deepspeed_chat():
    """Every column of every step, under the names that the log prints; it has finished."""
    rows = rows_of("dschat-opt13b-ppo")
    view = imported(log_of("dschat-opt13b-ppo"))
    assert rows[0].keys() == {"step", *DEEPSPEED}
    for column, name in DEEPSPEED.items():
        check(points(view, name), {int(row["step"]): row[column] for row in rows if row[column]})
    assert view.status.word == "finished"
    assert view.info.producer == "deepspeed-chat"
    assert view.config["actor_learning_rate"] == 9.65e-6
    assert unread(view) == []
