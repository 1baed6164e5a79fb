"""Tests of the levels experience, run, task, step: the documentation's diagrams, any partition, any order."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import barograph
from barograph.metrics.rollouts.gathering import Gathering
from barograph.metrics.rollouts.plan import RolloutPlan
from barograph.metrics.rollouts.statistics import StepStatistics
from barograph.metrics.rollouts.wire import pack, unpack

VECTORS = json.loads((Path(__file__).parents[2] / "data/vectors/aggregation.json").read_text())
REDUCTIONS = {"tokens": "sum", "latency": "max", "room": "min"}


def finished(plan: RolloutPlan, reports: list[tuple[Any, Any, dict[str, Any]]]) -> dict[str, float]:
    gathering = Gathering(plan.statistic_of, plan.every_run)
    for task, run, metrics in reports:
        gathering.add(task, run, metrics)
    return StepStatistics(gathering, plan, "trinity").values()


def of_runs(runs: list[list[float]], metric: str = "accuracy") -> list[tuple[Any, Any, dict[str, Any]]]:
    return [(task, run, {metric: value}) for task, values in enumerate(runs) for run, value in enumerate(values)]


def test_the_rollout_diagram_is_reproduced_exactly():
    """Three tasks of two runs: the numbers of the documentation to the last bit."""
    vector = VECTORS["seed_rollout"]
    values = finished(RolloutPlan("rollout"), of_runs(vector["runs"]))
    assert {name: values[name] for name in vector["step"]} == vector["step"]


def test_the_evaluation_diagram_is_reproduced_exactly():
    """mean@2 and std@2 as documented; best@2 and worst@2 in the closed form that a bootstrap only estimates."""
    vector = VECTORS["seed_eval"]
    values = finished(RolloutPlan("eval", "dummy", 2), of_runs(vector["runs"]))
    documented = vector["step_default"]
    for statistic in ("mean@2", "std@2"):
        name = f"eval/dummy/accuracy/{statistic}"
        assert values[name] == pytest.approx(documented[name], rel=1e-14)
    exact = [v["closed_form_with_replacement"] for v in VECTORS["bootstrap"] if v["values"] in vector["runs"]]
    for what in ("best", "worst"):
        assert values[f"eval/dummy/accuracy/{what}@2"] == pytest.approx(np.mean([e[what] for e in exact]), rel=1e-14)


def test_the_detailed_diagram_is_reproduced_exactly():
    """With detailed_stats each statistic is written as four over tasks (ddof 0), and the plain key is absent."""
    vector = VECTORS["seed_eval"]
    values = finished(RolloutPlan("eval", "dummy", 2, detailed=True), of_runs(vector["runs"]))
    documented = vector["step_detailed_ddof0_HEAD_and_diagram"]
    assert set(documented) <= set(values)
    assert not set(vector["step_default"]) & set(values)
    for name, value in documented.items():
        if "/mean@2/" in name or "/std@2/" in name:
            assert values[name] == pytest.approx(value, rel=1e-13)
    exact = [v["closed_form_with_replacement"]["best"] for v in VECTORS["bootstrap"] if v["values"] in vector["runs"]]
    assert values["eval/dummy/accuracy/best@2/std"] == pytest.approx(np.std(exact), rel=1e-12)
    assert values["eval/dummy/accuracy/best@2/max"] == pytest.approx(max(exact), rel=1e-14)


def test_the_pipeline_diagram_averages_over_groups():
    """Four experiences of two groups give the mean over groups, which the documentation draws."""
    values = finished(RolloutPlan("group"), [("a", None, {"r": 0.8}), ("a", None, {"r": 0.8}), ("b", None, {"r": 0.9}),
                                      ("b", None, {"r": 0.9})])  # fmt: skip
    assert values["experience_pipeline/group_advantages/reward_mean/mean"] == pytest.approx(0.85)
    assert values["experience_pipeline/group_advantages/reward_mean/max"] == 0.9


def test_a_level_averages_the_level_below():
    """Run A of three experiences has the weight of run B of one; so has a task of many runs."""
    reports = [("t", "A", {"r": 0.0}), ("t", "A", {"r": 0.0}), ("t", "A", {"r": 1.0}), ("t", "B", {"r": 1.0})]
    assert finished(RolloutPlan("rollout"), reports)["rollout/r/mean"] == pytest.approx(2 / 3)


def test_a_reduction_is_the_same_at_every_level():
    """Runs of 10 + 5 and 7 and a task of 3 make 25."""
    plan = RolloutPlan("rollout", reductions={"tok": "sum"})
    reports = [("a", 0, {"tok": 10}), ("a", 0, {"tok": 5}), ("a", 1, {"tok": 7}), ("b", 0, {"tok": 3})]
    values = finished(plan, reports)
    assert values["rollout/tok/sum"] == 25
    assert "rollout/tok/mean" not in values


def test_reductions_can_be_declared_in_the_catalogue():
    """``barograph.define`` declares the reduction of a metric for all steps."""
    from barograph.catalogue.registry import REGISTRY

    barograph.define("tool_tokens", "Tokens that tools returned.", unit="tokens", statistic="sum")
    try:
        assert finished(RolloutPlan("rollout"), [("a", 0, {"tool_tokens": 3}), ("b", 0, {"tool_tokens": 4})])[
            "rollout/tool_tokens/sum"
        ] == 7  # fmt: skip
        values = finished(RolloutPlan("eval", "s", 1), [("a", 0, {"tool_tokens": 3}), ("b", 0, {"tool_tokens": 4})])
        assert values["eval/s/tool_tokens/sum"] == 7
    finally:
        REGISTRY.remove("tool_tokens")


def test_the_last_value_is_the_last_to_arrive(monkeypatch: pytest.MonkeyPatch):
    """Of all tasks and runs."""
    clock = count()
    monkeypatch.setattr("barograph.metrics.rollouts.gathering.time", SimpleNamespace(time=lambda: float(next(clock))))
    plan = RolloutPlan("rollout", reductions={"version": "last"})
    values = finished(plan, [("a", 0, {"version": 7}), ("b", 0, {"version": 9}), ("a", 0, {"version": 8})])
    assert values["rollout/version/last"] == 8


def test_more_statistics_over_tasks_on_request():
    """The deviation has ddof 0, and quantiles are those of the tasks."""
    plan = RolloutPlan("rollout", over_tasks=("mean", "std", "p50", "p90"))
    values = finished(plan, of_runs([[float(n)] for n in range(11)], "r"))
    assert values["rollout/r/std"] == pytest.approx(np.std(np.arange(11)))
    assert (values["rollout/r/p50"], values["rollout/r/p90"]) == (5.0, 9.0)
    assert "rollout/r/max" not in values


def reference(reports: list[tuple[str, int | None, dict[str, float]]]) -> dict[str, float]:
    """The documented algorithm, written plainly."""
    reduce = {"mean": lambda v: sum(v) / len(v), "sum": sum, "max": max, "min": min}
    levels: dict[str, dict[str, dict[Any, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for n, (task, run, metrics) in enumerate(reports):
        for metric, value in metrics.items():
            levels[metric][task][("own", n) if run is None else run].append(value)
    out = {}
    for metric, tasks in levels.items():
        statistic = REDUCTIONS.get(metric, "mean")
        by = reduce[statistic]
        of_tasks = [by([by(values) for values in runs.values()]) for runs in tasks.values()]
        for over in ("mean", "max", "min") if statistic == "mean" else (statistic,):
            out[f"rollout/{metric}/{over}"] = reduce[over](of_tasks)
    return out


metrics = st.dictionaries(st.sampled_from(["r", "len", *REDUCTIONS]), st.floats(-100, 100), min_size=1)
experiences = st.lists(
    st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 3)), metrics), min_size=1, max_size=40
)


@given(experiences, st.data())
def test_any_partition_and_any_order_give_the_documented_result(reports, data):
    """Experiences scattered over processes, shuffled, packed, merged, against the algorithm in plain Python."""
    plan = RolloutPlan("rollout", reductions=REDUCTIONS)
    parts = [Gathering(plan.statistic_of) for _ in range(3)]
    for place, report in zip(data.draw(st.lists(st.integers(0, 2), min_size=len(reports), max_size=len(reports))),
                             data.draw(st.permutations(reports)), strict=True):  # fmt: skip
        parts[place].add(*report)
    whole = Gathering(plan.statistic_of)
    for part in data.draw(st.permutations(parts)):
        whole.merge(unpack(pack(part, plan))[0])
    values = StepStatistics(whole, plan, "trinity").values()
    expected = reference(reports)
    assert {name for name in values if "coverage" not in name} == set(expected)
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert values["rollout/coverage/tasks_observed"] == len({task for task, _, _ in reports})


@given(experiences, st.data())
def test_an_evaluation_does_not_depend_on_the_process_of_a_report(reports, data):
    """The same, with runs that failed and answers, for best, worst, pass and majority of k."""
    plan = RolloutPlan("eval", "s", 4)
    whole, parts = Gathering(plan.statistic_of, True), [Gathering(plan.statistic_of, True) for _ in range(2)]
    for task, run, values in reports:
        binary = {"r": float(next(iter(values.values())) > 0)}
        answer = data.draw(st.sampled_from(["x", "y", None])) if run is None else f"{task}{run}"
        for gathering in (whole, parts[data.draw(st.integers(0, 1))]):
            gathering.add(task, run, binary, answer)
    for gathering in (whole, parts[0]):
        gathering.fail("a", "lost", "timeout")
    merged = Gathering(plan.statistic_of, True)
    for part in reversed(parts):
        merged.merge(unpack(pack(part, plan))[0])
    one, other = (StepStatistics(g, plan, "roll").values() for g in (whole, merged))
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert other[name] == pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("ordered", [False, True])
def test_columns_and_single_reports_are_the_same(ordered: bool):
    """Arrays, lists, float32 and bools, in bulk, in pieces or one by one; tasks are identified by their ``str``."""
    chance = np.random.default_rng(1)
    tasks, runs = chance.integers(0, 9, 200), chance.integers(0, 4, 200)
    tasks = np.sort(tasks) if ordered else tasks
    accuracy, length = chance.random(200) < 0.5, chance.random(200).astype(np.float32)
    mixed = [str(task) if task < 4 else task for task in tasks.tolist()]
    one = Gathering()
    for task, run, right, size in zip(tasks, runs, accuracy, length, strict=True):
        one.add(task, run, {"accuracy": right, "length": size})
    expected = StepStatistics(one, RolloutPlan("rollout"), "roll").values()
    for named in (tasks, tasks.tolist(), mixed, list(map(str, mixed)), tasks.astype(np.uint8)):
        many = Gathering()
        for piece in (slice(0, 50), slice(50, 200)):
            columns = {"accuracy": accuracy[piece].tolist(), "length": length[piece]}
            many.add_columns(named[piece], runs[piece].tolist(), columns)
        assert many.tasks == one.tasks
        assert StepStatistics(many, RolloutPlan("rollout"), "roll").values() == pytest.approx(expected, rel=1e-12)
    lone, tuples = Gathering(), Gathering()
    lone.add_columns([1, True, (1, 2)], None, {"r": [1.0, 2.0, 3.0]})
    for task, value in ((1, 1.0), (True, 2.0), ((1, 2), 3.0)):
        tuples.add(task, None, {"r": value})
    assert lone.tasks.keys() == {"1", "True", "(1, 2)"}
    assert len(lone) == 3
    tuples.frame()
    assert tuples.tasks == lone.tasks


def test_memory_grows_with_tasks_and_not_with_experiences():
    """A hundred thousand experiences of ten tasks are ten entries."""
    gathering = Gathering()
    for n in range(100_000):
        gathering.add(n % 10, None, {"r": 1.0})
    gathering.frame()
    assert len(gathering) == 10
    assert len(gathering.columns["r"].states(10)) == 10
    assert (
        StepStatistics(gathering, RolloutPlan("rollout"), "roll").values()["rollout/coverage/runs_observed"] == 100_000
    )


def test_without_reports_only_coverage_is_written():
    """Zero tasks are observed; missing metrics are absent, not zero."""
    values = finished(RolloutPlan("rollout"), [])
    assert all("coverage" in name for name in values)
    assert values["rollout/coverage/tasks_observed"] == 0
    assert not math.isnan(sum(values.values()))


def test_other_bytes_are_rejected():
    """Bytes that are no state raise ValueError."""
    for bytes_ in (b"", b"junk", pack(Gathering(), RolloutPlan("rollout"))[:-4]):
        with pytest.raises(ValueError, match="not the state of a handle"):
            unpack(bytes_)
