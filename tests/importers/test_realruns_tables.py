"""Tables in real console logs and notebooks have the values of the reference columns beside them.

The logs are found through BAROGRAPH_REALRUNS (default ../shared/realruns); without them these tests are skipped.
"""

import csv
import math
import os
from pathlib import Path

import pytest

from barograph.importers.opening import open_run
from barograph.journal.view import View

FOLDER = Path(os.environ.get("BAROGRAPH_REALRUNS", "../shared/realruns"))
AREAL = {"areal-h200-89": 1, "areal-a40-fast": 2, "areal-a40-circuitbreaker": 1, "areal-a100-crashloop": 9}
"""Runs and the number of times that each was started."""
STATUS = {"areal-a40-fast": "finished", "areal-a40-circuitbreaker": "finished", "areal-a100-crashloop": "crashed"}


NOTEBOOKS = {
    "unsloth-gemma4-2048": 1, "unsloth-llama-fp8-kl": 2, "unsloth-llama32-3b-500": 1,
    "unsloth-ministral-sudoku-klspike": 1, "unsloth-qwen3-8b-fp8-dead": 2,
}  # fmt: skip
"""Notebooks and the number of trainings in each: some begin with a short supervised one."""
SUMMARY = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss"}


def log_of(run: str) -> Path:
    """Return the log of a run: the file that is not the reference."""
    if not (FOLDER / run).is_dir():
        pytest.skip(f"no log in {FOLDER / run}; set BAROGRAPH_REALRUNS")
    return next(path for path in (FOLDER / run).iterdir() if path.name != "series.csv")


def reference(run: str) -> list[list[dict[str, str]]]:
    """Return the rows of the reference, by attempt: another one begins where the steps do not go up."""
    attempts: list[list[dict[str, str]]] = []
    last = math.inf
    with (FOLDER / run / "series.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if int(row["step"]) <= last:
                attempts.append([])
            attempts[-1].append(row)
            last = int(row["step"])
    return attempts


def assert_same(view: View, attempts: list[list[dict[str, str]]], first: int = 1) -> None:
    """Compare each metric at each step of each attempt, to the digits given; an empty cell is no value, or NaN."""
    names = attempts[0][0].keys() - {"step"}
    assert set(view.names()) - SUMMARY == names
    for number, rows in enumerate(attempts, first):
        for name in names:
            found = view.find_series(name, attempt=number)
            points = dict(zip(found.steps.tolist(), found.values.tolist(), strict=True)) if found is not None else {}
            expected = {int(row["step"]): row[name] for row in rows}
            assert points.keys() <= expected.keys()
            for step, text in expected.items():
                value = points.get(step, math.nan)
                assert math.isnan(value) if text == "" else is_same(value, text), (name, step, value, text)


def is_same(value: float, text: str) -> bool:
    """Return whether a value has the digits of a text."""
    digits = len(text.lstrip("-").lower().partition("e")[0].replace(".", "").lstrip("0"))
    return value == float(text) or float(f"{value:.{max(digits, 1)}g}") == float(text)


@pytest.mark.parametrize("run", AREAL)
def test_tables_of_areal_have_the_values_of_the_reference(run: str):
    """Metric by metric, step by step, attempt by attempt, with nothing left unread."""
    view = open_run(log_of(run))
    attempts = reference(run)
    assert len(attempts) == AREAL[run]
    assert_same(view, attempts)
    assert view.damage() == []
    assert view.source.split("/")[0] == "areal"
    assert 1.7e9 < view.info.created < view.series("epoch").times[0]
    if run in STATUS:
        assert view.status.word == STATUS[run]


@pytest.mark.parametrize("run", NOTEBOOKS)
def test_tables_in_notebooks_have_the_values_of_the_reference(run: str):
    """Metric by metric, step by step, of the last training."""
    view = open_run(log_of(run))
    assert_same(view, reference(run), first=NOTEBOOKS[run])
    assert view.damage() == []
    assert view.status.word == "finished"
    assert ("train_runtime" in view.names()) == (run != "unsloth-gemma4-2048")  # which was stopped at step 432 of 600


def test_printed_lines_in_a_notebook_have_the_values_of_the_reference():
    """Those of veRL, with its config."""
    view = open_run(log_of("verl-ppo-gettingstarted"))
    assert_same(view, reference("verl-ppo-gettingstarted"))
    assert view.source == "verl"
    assert view.info.created == 1736545229.298
    assert view.config["actor_rollout_ref"]["actor"]["clip_ratio"] == 0.2
