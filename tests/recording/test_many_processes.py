"""One run of several real processes: a reader has the numbers of the whole batch."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.apps.cli import main
from barograph.importers.summary import run_warnings

SCORES = (1.0, 3.0, 8.0)
SCORE = "critic/score/mean"


def processes(target: Callable[..., None], count: int, *args: Any) -> None:
    """Run a function in several processes at once, with the rank as its first argument."""
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=target, args=(rank, *args)) for rank in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode is not None


def batch(*scores: float) -> barograph.Batch:
    """Return sequences of one token with these scores."""
    return barograph.Batch(response_mask=np.ones((len(scores), 1)), scores=np.array(scores))


def measure(rank: int) -> None:
    run = barograph.init(id="x", rank=rank)
    run.measure(batch(SCORES[rank]))
    run.commit(0)


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_that_no_launcher_counted_are_all_merged(count: int):
    """``rank=`` alone is enough: rank 0 knows no more of the others than they of it."""
    processes(measure, count)
    assert barograph.open("x").series(SCORE).values.tolist() == [sum(SCORES[:count]) / count]


def test_the_time_of_a_step_is_that_of_the_last_rank_in_it():
    """Also for a view that was open before: a rank that is late moves the time."""
    runs = [barograph.init(id="x", rank=rank, concurrent=True) for rank in range(3)]
    for run in runs[:2]:
        run.measure(batch(1.0))
        run.commit(0)
    view = barograph.open("x")
    [before] = view.series(SCORE).times
    runs[2].measure(batch(4.0))
    time.sleep(0.01)
    began = time.time()
    runs[2].commit(0)
    view.refresh()
    series = view.series(SCORE)
    assert before < began <= series.times[0]
    assert series.values.tolist() == [2.0]


def report(rank: int) -> None:
    run = barograph.init(id="x", rank=rank, vocabulary="trinity")
    with run.rollouts(0) as rollouts:
        rollouts.add(task=f"task{rank}", run="0", metrics={"accuracy": SCORES[rank]})
    with run.evaluation("math", 0, repeats=1) as evaluation:
        evaluation.add(task=f"task{rank}", run="0", metrics={"accuracy": SCORES[rank]})
    run.commit(0)


def test_rollouts_and_evaluations_of_such_ranks_are_merged():
    """The tasks of all processes are those of the step."""
    processes(report, 3)
    view = barograph.open("x")
    assert view.series("rollout/accuracy/mean").values.tolist() == [4.0]
    assert view.series("eval/math/accuracy/mean@1").values.tolist() == [4.0]


def change_options(rank: int) -> None:
    run = barograph.init(id="x", rank=rank)
    for step in range(3):
        old = np.full((2, 3), -1.0)
        arrays = {"log_probs": old + 0.1 * rank, "old_log_probs": old, "ref_log_probs": old - 0.2}
        policy = barograph.Batch(response_mask=np.ones((2, 3)), advantages=np.ones((2, 3)), **arrays)
        run.measure(policy, part="policy", kl_loss_coef=0.1 * (step + 1))
        run.measure(batch(1.0), kl_coef=0.1 * (step + 1))
        run.commit(step)


def test_options_may_change_from_step_to_step():
    """A coefficient belongs to its step, and so does the loss that it is a part of."""
    processes(change_options, 2)
    view = barograph.open("x")
    coefficients = [0.1, 0.2, 0.1 * 3]
    assert view.series("reward/kl_coef").values.tolist() == coefficients
    total, loss, kl = (view.series(f"actor/{name}").values for name in ("total_loss", "pg_loss", "kl_loss"))
    np.testing.assert_allclose(total, loss + np.array(coefficients) * kl, atol=1e-12)


def measure_on_last(rank: int) -> None:
    run = barograph.init(id="x", rank=rank, world_size=2)
    if rank == 1:
        run.measure(batch(2.0, 4.0))
    run.log({"own": rank})
    run.commit(0)


def test_a_step_that_only_a_later_rank_measured_is_read():
    """With pipeline parallelism the last stage alone has the loss."""
    processes(measure_on_last, 2)
    view = barograph.open("x")
    assert view.series(SCORE).values.tolist() == [3.0]
    assert view.missing_ranks() == []


def count(rank: int) -> None:
    run = barograph.init(id="x", rank=rank, world_size=4, devices=8, peak_flops=1000.0, vocabulary="trinity")
    for step in range(2):
        with run.phase("train", tokens={"trained": 100}, flops={"actor": 40.0}):
            time.sleep(0.01)
        run.count(tokens=1000, samples=rank, mine=2)
        run.commit(step)


def test_counts_and_rates_are_those_of_all_ranks():
    """Every rank counts its own share."""
    processes(count, 4)
    view = barograph.open("x")
    assert view.series("perf/total_num_tokens").values.tolist() == [4000.0, 4000.0]
    assert view.series("tokens").values.tolist() == [4000.0, 8000.0]
    assert view.series("mine").values.tolist() == [8.0, 16.0]
    assert view.series("samples").values.tolist() == [6.0, 12.0]
    for name in (
        "system/tokens_per_second",
        "system/train_tokens_per_second",
        "perf/throughput",  # per device: every rank divides by the devices of all
        "perf/mfu/actor",
    ):
        own = [view.series(name, rank=rank).values for rank in range(4)]
        np.testing.assert_allclose(view.series(name).values, np.sum(own, axis=0))


def be_killed(rank: int) -> None:
    run = barograph.init(id="x", rank=rank)
    for step in range(3):
        run.measure(batch(SCORES[rank]))
        run.count(tokens=10)
        if rank == 1 and step == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        run.commit(step)
        time.sleep(0.05)


def test_a_rank_that_is_killed_lacks_in_its_step_and_that_is_told():
    """The step that it was in has no merged value; later steps are those of the ranks that went on."""
    processes(be_killed, 2)
    view = barograph.open("x")
    scores = view.series(SCORE)
    assert (scores.steps.tolist(), scores.values.tolist()) == ([0, 2], [2.0, 1.0])
    assert view.series("tokens").steps.tolist() == [0, 2]
    assert view.series("tokens").values.tolist() == [20.0, 40.0]  # 30 of rank 0, and the last total of rank 1
    (measured,) = [missing for missing in view.missing_ranks() if missing.share == "measured"]
    assert (measured.role, measured.rank, measured.step) == ("trainer", 1, 1)
    assert measured.reason == "trainer/1 was killed before it committed step 1"


def init_only(rank: int) -> None:
    run = barograph.init(id="x", rank=rank, world_size=2)
    if rank == 0:
        run.measure(batch(1.0, 2.0))
        run.commit(0)


def test_ranks_that_record_nothing_are_not_waited_for():
    """A program may start a run in every process and use it in the first."""
    processes(init_only, 2)
    assert barograph.open("x").series(SCORE).values.tolist() == [1.5]


def test_a_rank_that_the_launcher_started_and_that_does_not_record_is_told(capsys: pytest.CaptureFixture[str]):
    """Its share is in no number."""
    run = barograph.init(id="x", rank=0, world_size=4)
    run.measure(batch(1.0))
    run.commit(0)
    run.finish()
    assert [missing.rank for missing in barograph.open("x").missing_ranks()] == [1, 2, 3]
    main(["show", "x"])
    assert "ranks 1 to 3 of role trainer record nothing" in capsys.readouterr().out


def test_a_rank_that_is_behind_is_waited_for():
    """A live run shows a step when all its ranks are done with it."""
    runs = [barograph.init(id="x", rank=rank, concurrent=True) for rank in range(2)]
    for rank, run in enumerate(runs):
        run.measure(batch(SCORES[rank]))
        run.commit(0)
    runs[0].measure(batch(SCORES[0]))
    runs[0].commit(1)
    view = barograph.open("x")
    assert view.series(SCORE).steps.tolist() == [0]
    assert [missing.reason for missing in view.missing_ranks()] == ["trainer/1 has not committed step 1 yet"]
    runs[1].commit(1)
    view.refresh()
    assert view.series(SCORE).steps.tolist() == [0, 1]
    assert view.missing_ranks() == []
    for run in runs:
        run.finish()


def test_a_lone_process_writes_no_states():
    """It pays nothing for processes that are not there."""
    run = barograph.init(id="alone")
    run.measure(batch(1.0))
    run.commit(0)
    run.finish()
    (segment,) = run.path.glob("*.seg")
    assert b"entries" not in segment.read_bytes()


def measure_in_child(run: barograph.Run) -> None:
    run.measure(batch(5.0))
    run.commit(0)
    os._exit(0)


def test_a_forked_process_contributes_to_the_step():
    """Parent and child measure different parts of the batch."""
    run = barograph.init(id="forked")
    run.measure(batch(1.0))
    child = os.fork()
    if not child:
        measure_in_child(run)
    os.waitpid(child, 0)
    run.commit(0)
    run.finish()
    assert barograph.open("forked").series(SCORE).values.tolist() == [3.0]


def drive(rank: int) -> None:
    role, number = ("trainer", 0) if rank == 0 else ("explorer", rank)
    run = barograph.init(id="x", role=role, rank=number)
    run.log({"x": 1.0}, step=10 * (rank + 1))
    if rank:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1.0)
    run.finish()


def test_a_finished_run_stays_finished_when_its_actors_are_killed(capsys: pytest.CaptureFixture[str]):
    """The end of the main writer is that of the run, and its step is the last one in every list."""
    processes(drive, 3)
    view = barograph.open("x")
    assert view.status.word == "finished"
    assert view.steps == (10, 10)
    main(["ls", "--json"])
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["status"], listed["last_step"]) == ("finished", 10)


def test_a_warning_names_a_few_of_many_missing_ranks(monkeypatch: pytest.MonkeyPatch):
    """Sixty-four ranks may be behind."""
    monkeypatch.setattr("barograph.importers.summary.LATE_SECONDS", -1.0)
    runs = [barograph.init(id="x", rank=rank, concurrent=True) for rank in range(6)]
    for run in runs:
        run.measure(batch(1.0))
        run.commit(0)
    runs[0].measure(batch(1.0))
    runs[0].commit(1)
    (warning,) = run_warnings(barograph.open("x"))
    assert warning.startswith("step 1 has no merged metrics of all ranks: trainer/1 has not committed step 1 yet, ")
    assert warning.endswith("trainer/3 has not committed step 1 yet and 2 more ranks")
    for run in runs:
        run.finish()
