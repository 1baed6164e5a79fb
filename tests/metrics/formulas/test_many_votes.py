"""The majority of k of many runs: bounded work, an estimate with its error, the same number every time."""

from __future__ import annotations

import math

import numpy as np
import pytest

import barograph
from barograph.metrics.formulas import pass_at_k
from barograph.metrics.formulas.pass_at_k import estimated_winning, mean_majority, winning

Task = tuple[list[float], list[str | None]]


def drawn_tasks(tasks: int, runs: int, answers: int, seed: int = 3) -> list[Task]:
    """Tasks whose runs give some of ``answers`` answers, of which the first is right."""
    chance = np.random.default_rng(seed)
    given = chance.integers(0, answers, (tasks, runs)) * (chance.random((tasks, runs)) < 0.9)
    return [([float(one == 0) for one in row], [str(one) for one in row]) for row in given.tolist()]


@pytest.mark.parametrize(("runs", "k", "expected"), [(3000, 1500, 0.5), (1501, 1500, 751 / 3002), (3000, 2999, 0.5)])
def test_thousands_of_runs_have_a_majority(runs, k, expected):
    """The number of draws is above the largest float. Of 750 against 751 runs, without one of the 751 it is a tie."""
    values = [1.0] * (runs // 2) + [0.0] * (runs - runs // 2)
    answers = ["right"] * (runs // 2) + ["wrong"] * (runs - runs // 2)
    mean, error = mean_majority([(values, answers)], k)
    assert error is not None
    assert 0 < error <= 0.002
    assert mean == pytest.approx(expected, abs=5 * error)


def test_a_lead_that_no_draw_reverses_is_exact():
    """An answer that is ahead by more runs than are left out wins, without an estimate."""
    values, answers = [1.0] * 1000 + [0.5] * 900, ["a"] * 1000 + [str(n // 10) for n in range(900)]
    assert mean_majority([(values, answers)], 1500) == (1.0, None)


@pytest.mark.parametrize(
    ("votes", "abstentions", "k"), [((20, 18, 9, 9, 4), 5, 48), ((12,) * 5, 0, 20), ((3,) * 9, 4, 5)]
)
def test_the_estimate_agrees_with_the_exact_chances(votes, abstentions, k):
    """Within five standard errors, for each answer and for no vote."""
    draws = 1 << 16
    exact, no_vote = winning(votes, abstentions, k)
    near, nobody = estimated_winning(votes, abstentions, k, draws)
    for found, true in zip([*near, nobody], [*exact, no_vote], strict=True):
        assert found == pytest.approx(true, abs=5 * math.sqrt(true * (1 - true) / draws) + 1e-9)


@pytest.mark.parametrize("method_of", [(1500, 700, 650), tuple([4] * 500)], ids=["few answers", "many answers"])
def test_an_estimate_of_many_runs_is_a_distribution(method_of):
    """Both ways to draw give chances that sum to 1, equal for equal votes and ordered by votes."""
    wins, no_vote = estimated_winning(method_of, 150, 1000, 5000)
    assert math.fsum(wins) + no_vote == pytest.approx(1.0, abs=1e-9)
    assert sorted(wins, reverse=True) == pytest.approx(list(wins), abs=0.03)
    assert len(set(wins)) <= len(set(method_of))


def test_the_estimated_mean_is_within_its_error(monkeypatch: pytest.MonkeyPatch):
    """Against the exact mean of the same tasks; the error is at most half the range over the root of the draws."""
    tasks = drawn_tasks(60, 40, 9)
    exact, none = mean_majority(tasks, 24)
    assert none is None
    monkeypatch.setattr(pass_at_k, "EXACT_COST", 0.0)
    mean, error = mean_majority(tasks, 24)
    assert 0 < error <= 0.5 / math.sqrt(60 * (pass_at_k.VOTE_DRAWS // 60)) * 1.001
    assert mean == pytest.approx(exact, abs=4 * error)


def test_an_estimate_does_not_depend_on_order_or_call(monkeypatch: pytest.MonkeyPatch):
    """Runs and tasks in any order give the same bits, as does a second call, whatever NumPy's global seed is."""
    monkeypatch.setattr(pass_at_k, "EXACT_COST", 0.0)
    tasks = drawn_tasks(20, 40, 9)
    first = mean_majority(tasks, 24)
    np.random.seed(8)
    order = np.random.default_rng(0).permutation(40).tolist()
    mixed = [([values[n] for n in order], [answers[n] for n in order]) for values, answers in reversed(tasks)]
    again = mean_majority(mixed, 24)
    assert again[0] == pytest.approx(first[0], rel=1e-14)
    assert again[1] == pytest.approx(first[1], rel=1e-12)


def test_few_runs_are_always_exact(monkeypatch: pytest.MonkeyPatch):
    """Up to 16 runs the vote is exact, however many tasks there are."""
    monkeypatch.setattr(pass_at_k, "EXACT_COST", 0.0)
    assert mean_majority(drawn_tasks(50, 16, 5), 8)[1] is None
    assert mean_majority([([1, 1, 0], ["7", "7", "8"])], 2)[0] == pytest.approx(1 / 3 + 2 / 3 * 0.5)


def test_the_work_is_bounded_whatever_is_asked(monkeypatch: pytest.MonkeyPatch):
    """The exact votes of an evaluation have one budget, and the draws of all its tasks another."""
    spent: list[int] = []
    exactly: list[float] = []

    def exact(votes: tuple[int, ...], abstentions: int, k: int) -> tuple[tuple[float, ...], float]:
        exactly.append(len(votes) * min(max(votes), k))
        return (1.0, *[0.0] * (len(votes) - 1)), 0.0

    def counted(votes: tuple[int, ...], abstentions: int, k: int, draws: int) -> tuple[tuple[float, ...], float]:
        spent.append(draws)
        return (1.0, *[0.0] * (len(votes) - 1)), 0.0

    monkeypatch.setattr(pass_at_k, "winning", exact)
    monkeypatch.setattr(pass_at_k, "estimated_winning", counted)
    for tasks, runs, k in ((200, 65, 32), (3, 1501, 1400), (2, 20_000, 10_000)):
        spent.clear()
        exactly.clear()
        mean_majority(drawn_tasks(tasks, runs, runs, seed=tasks), k)
        # A convolution is a call of NumPy, which takes some microseconds.
        assert sum(exactly) * 1000 <= pass_at_k.EXACT_COST
        assert spent or exactly
        assert sum(spent) <= pass_at_k.VOTE_DRAWS
        assert sum(spent) * runs <= pass_at_k.VOTE_CELLS


def test_an_evaluation_with_more_runs_than_repeats_keeps_its_values(tmp_path):
    """1,500 of 3,000 runs: maj@1500 has a value and, because it is an estimate, its standard error beside it."""
    with barograph.init(dir=tmp_path, vocabulary="trinity") as run:
        with run.evaluation("set", step=1, repeats=1500) as evaluation:
            for n in range(3000):
                evaluation.add(task="t", run=n, metrics={"accuracy": n % 2}, answer="yes" if n % 2 else "no")
        values = run.commit(1)
    assert values["eval/set/accuracy/mean@1500"] == 0.5
    assert values["eval/set/accuracy/maj@1500"] == pytest.approx(0.5, abs=0.01)
    assert 0 < values["eval/set/accuracy/maj@1500/error"] <= 0.002
