"""Evaluations with the k that the user gives, plain means of durations, and reductions in the keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.catalogue.registry import REGISTRY
from barograph.journal.merge.rollouts import merged_report
from barograph.metrics.rollouts.gathering import Gathering
from barograph.metrics.rollouts.plan import RolloutPlan, checked
from barograph.metrics.rollouts.statistics import StepStatistics
from barograph.metrics.rollouts.wire import pack, unpack

VOCABULARIES = ("roll", "trl", "trinity")


def evaluated(tmp_path: Path, reports: list[dict[str, Any]], vocabulary: str = "trinity", **options: Any) -> Any:
    with barograph.init(dir=tmp_path, vocabulary=vocabulary) as run:
        with run.evaluation("s", step=1, **options) as evaluation:
            for n, metrics in enumerate(reports):
                evaluation.add(task="t", run=n, metrics=metrics, answer=str(metrics.get("accuracy")))
        return run.commit(1)


def ks_of(values: Any, what: str) -> list[int]:
    return sorted(int(name.rpartition("@")[2]) for name in values if f"/{what}@" in name and name[-1].isdigit())


def test_the_given_k_are_used(tmp_path):
    """best, worst, pass and maj are at 1, 3 and 5, the mean is at the repeats, and pass@k is that of all draws."""
    scores = [1, 0, 0, 1, 0, 0, 0, 0]
    values = evaluated(tmp_path, [{"accuracy": score} for score in scores], repeats=8, ks=(5, 1, 3, 3))
    for what in ("best", "worst", "pass", "maj"):
        assert ks_of(values, what) == [1, 3, 5]
    assert ks_of(values, "mean") == [8]
    for k in (1, 3, 5):
        expected = np.mean([max(draw) for draw in itertools.combinations(scores, k)])
        assert values[f"eval/s/accuracy/pass@{k}"] == pytest.approx(expected, abs=1e-12)


def test_more_than_the_runs_have_no_pass_at_k(tmp_path):
    """Draws without replacement need k runs; the best of k draws with replacement does not."""
    values = evaluated(tmp_path, [{"accuracy": 1}, {"accuracy": 0}], ks=[2, 4])
    assert ks_of(values, "pass") == ks_of(values, "maj") == [2]
    assert values["eval/s/accuracy/best@4"] == pytest.approx(1 - 0.5**4)


def test_a_wrong_k_is_left_out_with_a_warning():
    """Integers of NumPy are taken; other values are named."""
    said: list[str] = []
    assert checked(RolloutPlan("eval", ks=(np.int64(3), 0, "x", 2.5, 1)), said.append).ks == (1, 3)  # type: ignore[arg-type]
    assert checked(RolloutPlan("eval", ks=4), said.append).ks == (4,)  # type: ignore[arg-type]
    assert [text.rpartition("got ")[2] for text in said] == [f"{one!r}; it is left out" for one in (0, "x", 2.5)]


def test_the_given_k_reach_other_processes():
    """A packed plan has its ks; one without them is stored as older versions read it."""
    assert unpack(pack(Gathering(), RolloutPlan("eval", "s", ks=(1, 3))))[1].ks == (1, 3)
    assert unpack(pack(Gathering(), RolloutPlan("eval", "s")))[1].ks == ()
    assert RolloutPlan("eval", ks=(1, 3)).united(RolloutPlan("eval", ks=(3, 5))).ks == (1, 3, 5)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_durations_and_counts_are_plain(tmp_path, vocabulary):
    """Metrics with a reduction have one number, and neither best@k nor a deviation."""
    reports = [{"seconds": 2.0, "calls": 3}, {"seconds": 4.0, "calls": 5}]
    values = evaluated(tmp_path, reports, vocabulary, ks=(1, 2), reductions={"seconds": "mean", "calls": "sum"})
    named = {name: value for name, value in values.items() if "coverage" not in name}
    assert sorted(named.values()) == [3.0, 8.0]
    assert not [name for name in named if "@" in name]


@pytest.fixture
def declared() -> Iterator[None]:
    """Declare a duration, a count and a score as a user does."""
    made = [
        barograph.define("seconds", "Time of a run.", unit="seconds"),
        barograph.define("calls", "Calls of tools in a run.", unit="count"),
        barograph.define("all_calls", "Calls of tools in all runs.", unit="count", statistic="sum"),
        barograph.define("accuracy", "Share of right answers.", unit="fraction"),
    ]
    yield
    for metric in made:
        REGISTRY.remove(metric.id)


REPORTS = [
    {"seconds": 2.0, "calls": 3, "all_calls": 3, "accuracy": 1.0},
    {"seconds": 4.0, "calls": 6, "all_calls": 6, "accuracy": 0.0},
]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.usefixtures("declared")
def test_declared_durations_and_counts_are_plain_means(tmp_path, vocabulary):
    """Their unit is enough; a declared statistic is used, and a declared score keeps its best@k."""
    values = evaluated(tmp_path, REPORTS, vocabulary, ks=(1, 2))
    of = {what: {n: v for n, v in values.items() if f"/{what}/" in n} for what in ("seconds", "calls", "all_calls")}
    assert list(of["seconds"].values()) == [3.0]
    assert list(of["calls"].values()) == [4.5]
    assert list(of["all_calls"].values()) == [9.0]
    assert all(name.endswith("/mean") for name in (*of["seconds"], *of["calls"]))
    assert ks_of(values, "best") == [1, 2]


@pytest.mark.usefixtures("declared")
def test_declarations_reach_processes_that_do_not_have_them(monkeypatch):
    """A reader, or a driver that merges, gives the values of the process that declared the metrics."""
    states, whole = [], Gathering()
    for task, metrics in enumerate(REPORTS):
        part = Gathering(RolloutPlan("eval").statistic_of, True)
        part.add(str(task), 0, metrics if task else {"accuracy": metrics["accuracy"]})
        states.append(pack(part, RolloutPlan("eval", "s", 1)))
        whole.merge(part)
    here = StepStatistics(whole, RolloutPlan("eval", "s", 1), "trinity").values()
    monkeypatch.setattr("barograph.metrics.rollouts.plan._in_catalogue", lambda metric: None)
    assert StepStatistics(*merged_report(states), "trinity").values() == here
    assert here["eval/s/seconds/mean"] == 4.0
    assert "eval/s/seconds/best@1" not in here


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize(("suffix", "expected"), [("sum", 25.0), ("max", 10.0), ("min", 3.0), ("last", 3.0)])
def test_a_key_names_its_reduction(vocabulary, suffix, expected):
    """Runs of 10 + 5 and 7 and a task of 3, as Trinity reads ``tok:sum``, in rollouts and evaluations."""
    for plan, name in ((RolloutPlan("rollout"), "rollout/tok"), (RolloutPlan("eval", "s"), "eval/s/tok")):
        gathering = Gathering(plan.statistic_of, plan.every_run)
        for task, run, tokens in (("a", 0, 10), ("a", 0, 5), ("a", 1, 7), ("b", 0, 3)):
            gathering.add_columns([task], [run], {f"tok:{suffix}": [tokens]})
        values = StepStatistics(*unpack(pack(gathering, plan)), vocabulary).values()
        assert {name: value for name, value in values.items() if "tok" in name} == {f"{name}/{suffix}": expected}


def test_other_suffixes_are_part_of_the_name():
    """An unknown suffix keeps the whole key, averaged; ``:mean`` and no suffix are one metric."""
    plan = RolloutPlan("rollout")
    gathering = Gathering(plan.statistic_of)
    gathering.add("a", 0, {"a:b": 1.0, "r": 2.0, ":sum": 5.0})
    gathering.add("b", 0, {"a:b": 3.0, "r:mean": 4.0})
    values = StepStatistics(gathering, plan, "trinity").values()
    assert (values["rollout/a:b/mean"], values["rollout/r/mean"], values["rollout/r/max"]) == (2.0, 3.0, 4.0)
    assert values["rollout/:sum/mean"] == 5.0


@pytest.mark.parametrize("keys", [("lat", "lat:max"), ("lat:max", "lat")])
def test_two_keys_of_one_name_do_not_depend_on_the_order(keys):
    """The maximum over all runs counts, not the largest mean of a task."""
    gathering = Gathering(RolloutPlan("rollout").statistic_of)
    for run, value in enumerate((1.0, 5.0)):
        gathering.add("a", run, dict.fromkeys(keys, value))
    values = StepStatistics(gathering, RolloutPlan("rollout"), "trinity").values()
    assert (values["rollout/lat/mean"], values["rollout/lat/max"]) == (3.0, 5.0)
