"""Tests of missing, failed, late and odd values: each case with its outcome and the reason for it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.importers.summary import run_warnings

VECTORS = json.loads((Path(__file__).parents[2] / "data/vectors/aggregation.json").read_text())


def values_of(run: barograph.Run, step: int = 0) -> dict[str, float]:
    run.finish()
    view = barograph.open(run.path)
    return {name: float(s.values[s.steps == step][-1]) for name in view.names() for s in [view.series(name)]
            if step in s.steps}  # fmt: skip


def test_a_task_with_missing_runs_has_the_same_k():
    """Trinity would report mean@4 of one task and mean@3 of the other; here k is the configured one for all tasks."""
    run = barograph.init()
    evaluation = run.evaluation("d", step=0, repeats=4)
    for task, results in enumerate(VECTORS["ragged_eval"]["runs"]):
        for number, value in enumerate(results):
            evaluation.add(task=task, run=number, metrics={"accuracy": value})
    evaluation.fail(task=1, run=3, reason="timeout")
    evaluation.close()
    values = values_of(run)
    assert values["eval/d/accuracy/mean@4"] == 0.25  # the mean of 0.5 and 0
    assert not any("@3" in name for name in values)
    assert values["eval/d/coverage/tasks_partial"] == 1
    assert values["eval/d/coverage/runs_failed"] == 1
    assert values["eval/d/accuracy/best@4"] == pytest.approx(0.5 * (1 - 0.5**4))
    assert values["eval/d/accuracy/pass@2/tasks"] == 2
    assert values["eval/d/accuracy/pass@4/tasks"] == 1  # three runs give no unbiased estimate for four


def test_failures_can_be_counted():
    """As a given value, for every metric: a policy that makes its tasks fail then gains nothing."""
    run = barograph.init()
    for taskset, failures in (("out", "leave_out"), ("in", "count")):
        with run.evaluation(taskset, step=0, repeats=2, failures=failures, failed_value=-1.0) as evaluation:
            evaluation.add("a", {"r": 1.0}, run=0)
            evaluation.fail("a", 1)
            evaluation.fail("b", 0)
            evaluation.fail("b", 1)
    values = values_of(run)
    assert values["eval/out/r/mean@2"] == 1.0
    assert values["eval/in/r/mean@2"] == -0.5
    for taskset in ("out", "in"):
        assert values[f"eval/{taskset}/coverage/tasks_failed"] == 1


def test_a_task_whose_runs_all_failed_is_counted_and_named():
    """It is in no mean; counts, names and reasons are written."""
    run = barograph.init()
    rollouts = run.rollouts(0)
    rollouts.add(task="good", metrics={"r": 1.0})
    rollouts.fail(task="bad", reason="out of memory")
    rollouts.fail(task="bad", reason="out of memory")
    rollouts.close(expected_tasks=["good", "bad", "lost"])
    values = values_of(run)
    assert values["rollout/r/mean"] == 1.0
    assert values["rollout/coverage/tasks_expected"] == 3
    assert values["rollout/coverage/tasks_observed"] == 1
    assert values["rollout/coverage/tasks_failed"] == 1
    assert values["rollout/coverage/runs_failed"] == 2
    (event,) = [event for event in barograph.open(run.path).events() if event["event"] == "lacking"]
    assert (event["failed_tasks"], event["missing_tasks"], event["reasons"]) == (
        ["bad"],
        ["lost"],
        {"out of memory": 2},
    )
    (text,) = [text for text in run_warnings(barograph.open(run.path)) if "rollout" in text]
    assert "1 failed, 1 missing of 3 tasks" in text
    assert "out of memory" in text


def test_a_run_that_was_retried_counts_as_observed():
    """Whether the failure is reported before or after."""
    run = barograph.init()
    with run.rollouts(0) as rollouts:
        rollouts.fail("a", 0, "timeout")
        rollouts.add("a", {"r": 1.0}, run=0)
        rollouts.add("b", {"r": 1.0}, run=0)
        rollouts.fail("b", 0, "timeout")
    assert values_of(run)["rollout/coverage/runs_failed"] == 0


def test_nan_is_kept_and_counted():
    """Neither skipped, as in pandas, nor dependent on the order, as in max(): the value is NaN, with a count."""
    run = barograph.init()
    with run.rollouts(0) as rollouts:
        for task, value in (("a", 1.0), ("b", math.nan), ("c", 2.0)):
            rollouts.add(task, {"r": value, "s": 1.0}, run=0)
    values = values_of(run)
    assert all(math.isnan(values[f"rollout/r/{stat}"]) for stat in ("mean", "max", "min"))
    assert values["barograph/nonfinite/rollout/r/mean"] == 1
    assert values["rollout/s/mean"] == 1.0
    assert "barograph/nonfinite/rollout/s/mean" not in values


def test_numbers_of_every_kind_count():
    """bool, float32, NumPy integers and tensors, which Trinity drops silently."""
    torch = pytest.importorskip("torch")
    run = barograph.init()
    with run.rollouts(0) as rollouts:
        for task, value in enumerate([True, np.float32(0.5), np.int64(2), torch.tensor(3.0), 4]):
            rollouts.add(task, {"r": value})
    assert values_of(run)["rollout/r/mean"] == pytest.approx((1 + 0.5 + 2 + 3 + 4) / 5)


def test_strings_and_none_are_skipped_without_their_neighbours(capsys: pytest.CaptureFixture[str]):
    """Also a string that looks like a number, which NumPy would convert."""
    run = barograph.init()
    with run.rollouts(0) as rollouts:
        rollouts.add("a", {"r": "0.5", "s": 1.0, "t": None})
        rollouts.add("b", {"r": 0.25, "s": 3.0, "t": 10**400})
        rollouts.add_many(["c", "d"], {"r": [None, 0.75], "s": [1.0, "x"]})
    values = values_of(run)
    assert values["rollout/r/mean"] == 0.5
    assert values["rollout/s/mean"] == pytest.approx(5 / 3)
    assert not any("/t/" in name for name in values)
    assert barograph.open(run.path).skipped().keys() == {"r", "s", "t"}
    assert "skipped 'r': value is a string" in capsys.readouterr().err


def test_two_open_evaluations_are_both_written():
    """Steps 2 and 4 are open together; Trinity logs only step 4."""
    run = barograph.init()
    early, late = run.evaluation("s", step=2, repeats=1), run.evaluation("s", step=4, repeats=1)
    late.add("a", {"r": 4.0})
    early.add("a", {"r": 2.0})
    run.commit(5)
    early.close()
    late.close()
    series = barograph.open(run.path).series("eval/s/r/mean@1")
    assert dict(zip(series.steps.tolist(), series.values.tolist(), strict=True)) == {2: 2.0, 4: 4.0}


def test_open_handles_are_written_at_the_end():
    """Rollouts are closed by the commit of their step; an evaluation stays open until the run ends."""
    run = barograph.init()
    run.rollouts(1).add("a", {"r": 1.0})
    run.rollouts(2).add("a", {"r": 2.0})
    run.evaluation("s", step=1).add("a", {"r": 1.0})
    run.commit(1)
    assert barograph.open(run.path).series("rollout/r/mean").steps.tolist() == [1]
    assert "eval/s/r/mean@1" not in barograph.open(run.path).names()
    run.finish()
    view = barograph.open(run.path)
    assert view.series("rollout/r/mean").steps.tolist() == [1, 2]
    assert view.series("eval/s/r/mean@1").steps.tolist() == [1]


def test_rollouts_without_a_step_belong_to_the_next_commit():
    """Like everything that is logged."""
    run = barograph.init()
    run.rollouts().add("a", {"r": 1.0})
    run.commit(7)
    run.rollouts().add("a", {"r": 2.0})
    run.finish()
    series = barograph.open(run.path).series("rollout/r/mean")
    assert (series.steps.tolist(), series.values.tolist()) == ([7, 8], [1.0, 2.0])


def test_late_reports_are_counted_and_shown(capsys: pytest.CaptureFixture[str]):
    """Through an old or a new handle; the step's numbers do not change."""
    run = barograph.init()
    rollouts = run.rollouts(3)
    rollouts.add("a", {"r": 1.0})
    run.commit(3)
    rollouts.add("b", {"r": 0.0})
    run.rollouts(3).add_many(["c", "d"], {"r": [0.0, 0.0]})
    run.commit(4)
    run.rollouts(3).fail("e")
    values = values_of(run, 3)
    assert values["rollout/r/mean"] == 1.0
    assert values["rollout/coverage/late"] == 4
    assert "after it was closed" in capsys.readouterr().err


def test_wrong_options_are_reported_and_stop_nothing(capsys: pytest.CaptureFixture[str]):
    """An evaluation at step 100 must not end the training because of a typing error."""
    run = barograph.init()
    with run.evaluation(
        "s", step=0, repeats=0, prefix="evil", failures="maybe", reductions={"r": "median"}
    ) as evaluation:
        evaluation.add("a", {"r": 1.0}, run=0)
        evaluation.add("a", [1.0])  # type: ignore[arg-type]
        evaluation.merge(b"junk")
    with run.rollouts(0, stats=("mean", "median")) as rollouts:
        rollouts.add("a", {"r": 1.0})
        rollouts.add_many(["a", "b"], {"r": [1.0]})
    values = values_of(run)
    assert values["eval/s/r/mean@1"] == 1.0
    assert values["rollout/r/mean"] == 1.0
    shown = capsys.readouterr().err
    for text in ("prefix: expected eval or bench", "failures: expected", "'median'", "repeats: expected", "1 r"):
        assert text in shown


def test_a_disabled_run_accepts_reports_and_writes_nothing(tmp_path: Path):
    """Every call works."""
    run = barograph.init(mode="disabled")
    with run.evaluation("s", step=1, repeats=2) as evaluation:
        evaluation.add(task=1, metrics={"r": 1}, run=0)
        evaluation.fail(task=1)
    rollouts = run.rollouts(1)
    rollouts.add_many([1], {"r": [1]})
    rollouts.merge(rollouts.state())
    rollouts.close(expected_tasks=3)
    run.validation(1).add(0.5)
    run.pipeline(count=1)
    run.staleness(weight_versions=[1], tasks=[1])
    run.commit(1)
    run.finish()
    assert not (tmp_path / "runs").exists()


def test_expected_numbers_may_be_numpy_integers():
    """They often come from a shape or a config."""
    run = barograph.init()
    rollouts = run.rollouts(0)
    rollouts.add("a", {"r": 1.0}, run=0)
    rollouts.close(expected_tasks=np.int64(2), expected_runs=np.int32(1))
    evaluation = run.evaluation("d", 0, repeats=np.int64(2))
    for number in range(2):
        evaluation.add("a", {"r": number}, run=number)
    evaluation.close(expected_tasks=np.array(["a"]))
    assert json.loads(json.dumps(asdict(rollouts.plan)))["expected_tasks"] == 2
    values = values_of(run)
    assert values["rollout/r/mean"] == 1.0
    assert values["rollout/coverage/tasks_expected"] == values["rollout/coverage/runs_expected"] == 2
    assert values["eval/d/r/mean@2"] == 0.5
    assert values["eval/d/coverage/tasks_expected"] == 1


@pytest.mark.parametrize("expected", [{"expected_tasks": 1.5}, {"expected_runs": "many"}])
def test_a_wrong_expectation_does_not_lose_the_step(expected: Any, capsys: pytest.CaptureFixture[str]):
    """It is reported, and the reports are written."""
    run = barograph.init()
    rollouts = run.rollouts(0)
    rollouts.add("a", {"r": 1.0})
    rollouts.close(**expected)
    assert "TypeError" in capsys.readouterr().err
    assert values_of(run)["rollout/r/mean"] == 1.0


@pytest.mark.parametrize("repeats", ["2", 2.5, 0])
def test_repeats_that_are_not_a_positive_int_are_ignored(repeats: Any, capsys: pytest.CaptureFixture[str]):
    """The most runs of any task are used instead, with a warning."""
    run = barograph.init()
    with run.evaluation("d", 0, repeats=repeats) as evaluation:
        for number in range(3):
            evaluation.add("a", {"r": 1.0}, run=number)
    assert "repeats" in capsys.readouterr().err
    assert values_of(run)["eval/d/r/mean@3"] == 1.0


def test_an_unexpected_task_does_not_replace_an_expected_one():
    """The number of tasks is right, but one of the names is missing."""
    run = barograph.init()
    rollouts = run.rollouts(0)
    for task in ("a", "c"):
        rollouts.add(task, {"r": 1.0})
    rollouts.close(expected_tasks=["a", "b"])
    (event,) = [event for event in barograph.open(run.path).events() if event["event"] == "lacking"]
    assert event["missing_tasks"] == ["b"]
    assert any("1 missing of 2 tasks" in warning for warning in run_warnings(barograph.open(run.path)))


def test_a_written_majority_is_the_vote_of_the_runs():
    """Counted by hand: ties are shared, a run without an answer abstains, a task without answers is left out."""
    run = barograph.init()
    with run.evaluation("d", 0, repeats=4) as evaluation:
        for number, (value, answer) in enumerate([(1, "4"), (1, "4"), (1, "4"), (0, "5")]):
            evaluation.add("a", {"right": value}, run=number, answer=answer)
        for number, (value, answer) in enumerate([(1, "7"), (0, "8"), (0, "8"), (0, None)]):
            evaluation.add("b", {"right": value}, run=number, answer=answer)
        for number in range(4):
            evaluation.add("silent", {"right": 1}, run=number)
    values = values_of(run)
    # a: three pairs agree on 4, three are ties of 4 and 5. b: two ties of 7 and 8, 8 three times, 7 alone once.
    assert values["eval/d/right/maj@2"] == pytest.approx((4.5 / 6 + 2 / 6) / 2)
    assert values["eval/d/right/maj@4"] == 0.5


def test_the_majority_of_fewer_runs_is_written_up_to_16_repeats():
    """Beyond that only maj@repeats is."""
    run = barograph.init()
    for taskset, repeats in (("few", 16), ("many", 17)):
        with run.evaluation(taskset, 0, repeats=repeats) as evaluation:
            for number in range(repeats):
                evaluation.add("a", {"right": 1.0}, run=number, answer="x")
    names = values_of(run)
    assert {name for name in names if "maj@" in name and "few" in name} >= {
        "eval/few/right/maj@8", "eval/few/right/maj@16"
    }  # fmt: skip
    assert [name for name in names if "maj@" in name and "many" in name] == ["eval/many/right/maj@17"]


def test_tasks_with_failed_runs_are_counted_and_named():
    """Observed, partial, failed and missing tasks, each by its name; a retried run is observed."""
    run = barograph.init()
    evaluation = run.evaluation("d", 0, repeats=2, failures="count", failed_value=-1.0)
    for task, number in (("good", 0), ("good", 1), ("partial", 0), ("short", 0), ("retried", 1)):
        evaluation.add(task, {"r": 1.0}, run=number)
    evaluation.fail("partial", 1, "timeout")
    evaluation.fail("failed", 0, "timeout")
    evaluation.fail("failed", 1, "out of memory")
    evaluation.fail("retried", 0)
    evaluation.add("retried", {"r": 1.0}, run=0)
    evaluation.close(expected_tasks=["good", "partial", "short", "retried", "failed", "missing"])
    values = values_of(run)
    counts = {name.removeprefix("eval/d/coverage/"): value for name, value in values.items() if "coverage" in name}
    assert counts == {
        "tasks_expected": 6, "tasks_observed": 4, "tasks_failed": 1, "tasks_partial": 2,
        "runs_expected": 12, "runs_observed": 6, "runs_failed": 3,
    }  # fmt: skip
    assert values["eval/d/r/mean@2"] == pytest.approx((1 + 0 + 1 + 1 - 1) / 5)
    (event,) = [event for event in barograph.open(run.path).events() if event["event"] == "lacking"]
    assert (event["partial_tasks"], event["failed_tasks"]) == (["partial", "short"], ["failed"])
    assert event["missing_tasks"] == ["missing"]
    assert event["reasons"] == {"timeout": 2, "out of memory": 1, "": 1}


def test_failed_runs_of_two_processes_add_up():
    """A run that failed in one process and was reported by the other is observed."""
    run = barograph.init()
    driver, worker = run.rollouts(0), run.rollouts(1)
    driver.fail("a", 0, "timeout")
    driver.fail("b", None, "timeout")
    worker.add("a", {"r": 2.0}, run=0)
    worker.fail("b", None, "timeout")
    driver.merge(worker.state())
    driver.close()
    values = values_of(run)
    assert values["rollout/r/mean"] == 2.0
    assert values["rollout/coverage/runs_failed"] == 2
    assert values["rollout/coverage/tasks_failed"] == 1
    assert values["rollout/coverage/tasks_observed"] == 1


def test_each_skipped_value_is_counted_with_its_reason():
    """As in ``barograph show``."""
    run = barograph.init()
    for _ in range(3):
        run.log({"bad": None}, step=0)
    run.finish()
    assert "skipped 'bad' 3 times: value is None" in run_warnings(barograph.open(run.path))
