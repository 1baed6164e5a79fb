"""What a diagnosis computes: only the signals of rules, and after one more row only what is new."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.diagnosis.diagnose import Visit, diagnose
from barograph.diagnosis.rule import Case, values_at
from barograph.diagnosis.rules import rewards
from barograph.metrics import tracks
from barograph.metrics.tracks import Track, scheduled_rows

ROWS = 600


def values(step: int) -> dict[str, float]:
    """Return a row with some signals and many other values."""
    noise = np.random.default_rng(step).normal(1, 0.05)
    known = {"critic/score/mean": 0.2 + step / 2000 + 0.02 * noise, "actor/entropy_loss": 0.5 * noise}
    known |= {"actor/total_loss": 0.1 * noise, "actor/approxkl": 0.002 * noise, "val/score/mean": 0.3 + step / 3000}
    return known | {f"layer_{n}/norm": noise for n in range(100)}


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Return a run with many rows, still open."""
    run = barograph.init(project="p", name="long", dir=tmp_path)
    for step in range(ROWS):
        run.log(values(step), step=step)
    yield run
    run.finish()


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **named)


def test_only_the_signals_of_rules_are_read(run: Any, monkeypatch: pytest.MonkeyPatch):
    """Not the other values of the run."""
    view = barograph.open(run.path)
    reading = Counted(view.series)
    monkeypatch.setattr(view, "series", reading)
    Visit().diagnose(view)
    assert 0 < reading.calls < 20


def test_one_more_row_costs_what_is_new(run: Any, monkeypatch: pytest.MonkeyPatch):
    """Trends are not computed again, nor are meanings of names decided again."""
    view, visit = barograph.open(run.path), Visit()
    trends = Counted(tracks.kendall_chance)
    monkeypatch.setattr(tracks, "kendall_chance", trends)
    monkeypatch.setattr(rewards, "kendall_chance", trends)
    meanings = Counted(barograph.diagnosis.diagnose.run_names)
    monkeypatch.setattr(barograph.diagnosis.diagnose, "run_names", meanings)
    visit.diagnose(view)
    assert trends.calls > 100
    trends.calls = 0
    for step in range(ROWS, ROWS + 5):
        run.log(values(step), step=step)
        view.refresh()
        last = visit.diagnose(view)
    assert trends.calls <= 4 * 3  # none of the five rows is on the schedule, or one of each signal is
    assert meanings.calls == 1
    assert last == Visit().diagnose(barograph.open(run.path))


def test_many_evaluations_are_judged_at_some_rows(monkeypatch: pytest.MonkeyPatch):
    """So that a validation at every step does not make the cost quadratic."""
    judged = Counted(rewards._gap_after)
    monkeypatch.setattr(rewards, "_gap_after", judged)
    steps = np.arange(1, 3001)
    known = {"reward": np.linspace(0, 1, 3000), "validation": np.linspace(0.5, 0.1, 3000)}
    reward, validation = (Track(key, key, key, steps, series) for key, series in known.items())
    diagnosis = diagnose(Case({"reward": reward}, {"validation": [validation]}))
    assert judged.calls == len(scheduled_rows(3000, rewards.MIN_COUNTED)) < 200
    assert "proxy_gold_gap" in {finding.rule for finding in diagnosis.findings}


def test_values_at_equal_steps_are_the_values():
    """As at other steps, the result can be changed without changing the signal."""
    steps, series = np.arange(5), np.arange(5.0)
    found = values_at(steps, series, steps)
    found[0] = 9.0
    assert series[0] == 0.0
    assert values_at(steps, series, np.array([-1, 2, 9])).tolist()[1:] == [2.0, 4.0]
