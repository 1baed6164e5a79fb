"""The best and worst of k, pass@k and the majority, against brute force."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.metrics.formulas.pass_at_k import TaskScores, mean_majority, powers_below, share_interval, winning

VECTORS = json.loads((Path(__file__).parents[2] / "data/vectors/aggregation.json").read_text())
values_of_a_task = st.lists(st.floats(-5, 5, allow_nan=False), min_size=1, max_size=4)


def one_task(values: list[float]) -> TaskScores:
    return TaskScores.from_runs(np.array(values, np.float64), np.zeros(len(values), np.int64))


@pytest.mark.parametrize("vector", VECTORS["bootstrap"], ids=lambda v: f"{v['values']}@{v['k']}")
def test_the_closed_form_is_the_limit_of_the_bootstrap(vector):
    """The thousand draws of Trinity and veRL scatter around the exact number."""
    scores, k = one_task(vector["values"]), vector["k"]
    exact = vector["closed_form_with_replacement"]
    assert scores.best(k)[0] == pytest.approx(exact["best"], rel=1e-12)
    assert scores.worst(k)[0] == pytest.approx(exact["worst"], rel=1e-12)
    noise = 5 * vector["seed42_n1000"]["best_std"] / math.sqrt(1000) + 1e-12
    assert vector["seed42_n1000"]["best_mean"] == pytest.approx(exact["best"], abs=noise)


@given(st.lists(values_of_a_task, min_size=1, max_size=4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_best_and_worst_of_k_equal_enumeration(tasks, k, chance):
    """Over all n^k draws with replacement, for tasks of any size together and in any order."""
    flat = [(value, 7 * task) for task, values in enumerate(tasks) for value in values]
    chance.shuffle(flat)
    scores = TaskScores.from_runs(np.array([v for v, _ in flat]), np.array([t for _, t in flat]))
    draws = [list(itertools.product(values, repeat=k)) for values in tasks]
    assert scores.best(k) == pytest.approx([np.mean([max(draw) for draw in of]) for of in draws], abs=1e-9)
    assert scores.worst(k) == pytest.approx([np.mean([min(draw) for draw in of]) for of in draws], abs=1e-9)
    assert scores.mean() == pytest.approx([np.mean(values) for values in tasks], abs=1e-12)
    assert scores.std() == pytest.approx([np.std(values) for values in tasks], abs=1e-9)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=4), st.integers(1, 6))
def test_pass_at_k_equals_enumeration(tasks, k):
    """Over all k-subsets of a task's runs; a task with fewer runs has no estimate."""
    flat = [(float(value), task) for task, values in enumerate(tasks) for value in values]
    scores = TaskScores.from_runs(np.array([v for v, _ in flat]), np.array([t for _, t in flat]))
    expected = [np.mean([any(draw) for draw in itertools.combinations(of, k)]) for of in tasks if len(of) >= k]
    assert scores.pass_at(k) == pytest.approx(expected, abs=1e-12)


def brute_majority(values: list[float], answers: list[str | None], k: int) -> float:
    worth = {answer: np.mean([v for v, a in zip(values, answers, strict=True) if a == answer]) for answer in answers}
    outcomes = []
    for draw in itertools.combinations(answers, k):
        votes = Counter(answer for answer in draw if answer is not None)
        most = max(votes.values(), default=0)
        winners = [answer for answer, count in votes.items() if count == most] or [None]
        outcomes.append(np.mean([worth[winner] for winner in winners]))
    return float(np.mean(outcomes))


@given(
    st.lists(st.tuples(st.floats(-2, 2), st.sampled_from(["a", "b", "c", "d", None])), min_size=1, max_size=8),
    st.data(),
)
def test_the_majority_equals_enumeration(runs, data):
    """Over all k-subsets, ties shared, abstentions not voting."""
    values, answers = [v for v, _ in runs], [a for _, a in runs]
    k = data.draw(st.integers(1, len(runs)))
    assert mean_majority([(values, answers)], k)[0] == pytest.approx(brute_majority(values, answers, k), abs=1e-9)


def test_the_majority_of_all_runs_is_the_plain_one():
    """maj@n is the score of the most frequent answer."""
    assert mean_majority([([1, 1, 1, 0, 0], ["7", "7", "7", "8", "9"])], 5)[0] == 1.0
    assert mean_majority([([1, 1, 0, 0], ["7", "7", "8", "8"])], 4)[0] == 0.5


def test_the_chances_of_many_runs_sum_to_one():
    """The chances of five answers and of no vote, for 16 runs, add up to 1."""
    wins, nobody = winning((5, 4, 3, 2, 1), 1, 8)
    assert math.fsum(wins) + nobody == pytest.approx(1.0, abs=1e-12)
    assert sorted(wins, reverse=True) == list(wins)


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [(0, []), (1, []), (2, [2]), (3, [2, 3]), (4, [2, 4]), (6, [2, 4, 6]), (8, [2, 4, 8]), (10, [2, 4, 8, 10])],
)
def test_k_are_powers_of_two_and_the_repeats(repeats, expected):
    """The lists that Trinity documents and tests."""
    assert powers_below(repeats) == expected


@pytest.mark.parametrize("draw", ["coins", "graded", "mixed"])
def test_the_interval_covers_the_truth_at_least_95_times_in_100(draw):
    """For shares of right tasks, for graded ones and for easy sets, over 250 small evaluations with a fixed seed."""
    chance = np.random.default_rng(5)
    rights = {"coins": lambda n: chance.random(n) < 0.3, "graded": lambda n: chance.beta(2, 2, n),
              "mixed": lambda n: np.where(chance.random(n) < 0.5, 1.0, chance.random(n))}[draw]  # fmt: skip
    truth = {"coins": 0.3, "graded": 0.5, "mixed": 0.75}[draw]
    intervals = [share_interval(np.asarray(rights(30), np.float64)) for _ in range(250)]
    covered = np.mean([low <= truth <= high for low, high in intervals])
    assert 0.94 <= covered < 1  # of all: the interval is not as wide as it could be


@pytest.mark.parametrize("tasks", [5, 20, 50, 200])
@pytest.mark.parametrize(
    ("runs", "k", "easy"), [(8, 2, (2, 0.5)), (8, 4, (1, 0.1)), (16, 8, (1, 0.1)), (64, 8, (5, 0.5))]
)
def test_the_interval_of_nearly_solved_sets_covers_the_truth(tasks, runs, k, easy):
    """A sample of a nearly solved set often has none of its hard tasks: 120 evaluations of each, with a fixed seed."""
    chance = np.random.default_rng(11)
    a, b = easy  # solve rates have a beta distribution, for which 1 − E[(1 − rate)^k] is a product
    truth = 1 - math.prod((b + i) / (a + b + i) for i in range(k))
    pass_at = np.array([1 - math.comb(runs - right, k) / math.comb(runs, k) for right in range(runs + 1)])
    rights = chance.binomial(runs, chance.beta(a, b, (120, tasks)))
    intervals = [share_interval(pass_at[row]) for row in rights]
    assert np.mean([low <= truth <= high for low, high in intervals]) >= 0.925


@pytest.mark.parametrize("share", [0.5, 0.9, 0.98, 0.995])
@pytest.mark.parametrize("tasks", [5, 30, 100])
def test_the_interval_of_right_and_wrong_tasks_covers_exactly(share, tasks):
    """Summed over all numbers of right tasks with their binomial chances, without random numbers."""
    covered = 0.0
    for right in range(tasks + 1):
        low, high = share_interval(np.repeat([1.0, 0.0], [right, tasks - right]))
        covered += (low <= share <= high) * math.comb(tasks, right) * share**right * (1 - share) ** (tasks - right)
    assert covered >= 0.95


@pytest.mark.parametrize(("tasks", "right"), [(1, 1), (10, 10), (20, 17), (500, 495), (10_000, 9_990)])
def test_the_interval_of_right_and_wrong_tasks_is_clopper_and_pearson(tasks, right):
    """At the lower end, ``right`` or more are right with a chance of 2.5 %; at the upper, ``right`` or fewer."""

    def between(first: int, last: int, p: float) -> float:
        return math.fsum(
            math.exp(math.log(math.comb(tasks, n)) + n * math.log(p) + (tasks - n) * math.log1p(-p))
            for n in range(first, last + 1)
        )

    low, high = share_interval(np.repeat([1.0, 0.0], [right, tasks - right]))
    assert between(right, tasks, low) == pytest.approx(0.025, rel=1e-4)
    if right < tasks:
        assert 1 - between(right + 1, tasks, high) == pytest.approx(0.025, rel=1e-3)
    else:
        assert high == 1.0


def test_the_interval_of_many_values_is_that_of_the_weighted_mean():
    """Against 200,000 drawn weights: quantiles of the mean with one more task of 0 or of 1."""
    chance = np.random.default_rng(4)
    values = chance.beta(2, 1, 90)
    weights = chance.exponential(size=(200_000, 91))
    weights /= weights.sum(axis=1, keepdims=True)
    low, high = share_interval(values)
    assert low == pytest.approx(np.quantile(weights @ np.append(values, 0.0), 0.025), abs=5e-4)
    assert high == pytest.approx(np.quantile(weights @ np.append(values, 1.0), 0.975), abs=5e-4)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_an_interval_includes_its_mean_within_zero_and_one(values):
    """The interval has a width also where all tasks agree."""
    low, high = share_interval(np.array(values))
    assert 0 <= low <= np.mean(values) + 1e-12
    assert np.mean(values) - 1e-12 <= high <= 1
    assert high > low


def test_a_nan_score_affects_only_its_task():
    """A NaN makes the statistics of its own task NaN and of no other."""
    scores = TaskScores.from_runs(np.array([1.0, np.nan, 0.0, 1.0]), np.array([0, 0, 1, 1]))
    for statistic in (scores.mean(), scores.std(), scores.best(2), scores.worst(2)):
        assert np.isnan(statistic[0])
        assert np.isfinite(statistic[1])


def test_no_runs_are_no_tasks():
    """The statistics of no runs are empty arrays."""
    scores = TaskScores.from_runs(np.empty(0), np.empty(0, np.int64))
    assert len(scores.mean()) == len(scores.best(2)) == len(scores.pass_at(2)) == 0
