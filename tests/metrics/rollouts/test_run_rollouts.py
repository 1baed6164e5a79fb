"""Tests of a run's rollouts and evaluations: every vocabulary, threads, and several processes."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

import barograph
from barograph.catalogue.names import recognise
from barograph.journal.format.frames import Kind
from barograph.metrics.rollouts.gathering import Gathering
from barograph.metrics.rollouts.plan import RolloutPlan
from barograph.metrics.rollouts.wire import HEAD, pack

SEED = Path(__file__).parents[2] / "data/seed_metrics.tsv"
FILLED = {"{metric}": "accuracy", "{taskset}": "gsm8k", "{k}": "4", "{operator}": "filter"}
OURS = ("rollout/", "eval/", "bench/", "experience_pipeline/", "sample/", "time/experience_pipeline/", "val/score/")


def report_everything(run: barograph.Run, **options: bool) -> None:
    with run.rollouts(0) as rollouts:
        rollouts.add(task="a", run=0, metrics={"accuracy": 1.0})
    for prefix in ("eval", "bench"):
        with run.evaluation("gsm8k", step=0, repeats=4, prefix=prefix, **options) as evaluation:
            for number in range(4):
                evaluation.add(task="a", run=number, metrics={"accuracy": number % 2}, answer="x")
    validation = run.validation(0)
    validation.add_many([1.0, 0.0, 0.5], tags=["lake", "lake", "town"])
    validation.close()
    run.pipeline(count=3, rewards=[1.0, 0.0], groups=[7, 7], metrics={"accuracy": 2}, seconds={"filter": 0.5}, step=0)
    run.staleness(weight_versions=[3, 4], tasks=["a", "a"], trainer_version=5, step=0)
    run.log({"sample/accuracy": 1.0}, step=0)
    run.commit(0)


@pytest.mark.parametrize("vocabulary", ["roll", "trl", "trinity"])
def test_every_documented_name_of_rollouts_and_evaluation_is_produced(vocabulary: str):
    """The list of the documentation, with and without detailed statistics, from one step; all are recognised."""
    with SEED.open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["vocabulary"] == vocabulary]
    wanted = set()
    for row in rows:
        name = row["name"]
        for placeholder, value in FILLED.items():
            name = name.replace(placeholder, value)
        if name.startswith(OURS):
            stats = ("mean", "std", "max", "min")
            wanted |= {name.replace("{mean|std|max|min}", s) for s in stats} if "|" in name else {name}
    found = set()
    for detailed in (False, True):
        run = barograph.init(vocabulary=vocabulary)
        report_everything(run, detailed_stats=detailed)
        run.finish()
        found |= set(barograph.open(run.path).names())
    assert wanted <= found
    assert vocabulary == "trl" or len(wanted) >= 3
    unknown = [name for name in found if not recognise(name, f"barograph:{vocabulary}").matches]
    assert not unknown


def test_detailed_stats_is_a_setting():
    """Trinity's ``monitor: {detailed_stats: true}`` applies to every evaluation of the run."""
    run = barograph.init({"monitor": {"detailed_stats": True}})
    report_everything(run)
    assert "eval/gsm8k/accuracy/mean@4/std" in barograph.open(run.path).names()


def test_validation_is_over_episodes_and_by_tag():
    """``val/score`` is over all episodes, each with one score."""
    run = barograph.init()
    report_everything(run)
    view = barograph.open(run.path)
    assert [view.series(f"val/score/{stat}").last for stat in ("mean", "max", "min")] == [0.5, 1.0, 0.0]
    assert view.series("validation/town/score/mean").last == 0.5


def test_staleness_is_the_lag_of_weight_versions():
    """Trainer version minus weight version, over all calls of the step."""
    run = barograph.init(vocabulary="trinity")
    run.staleness(weight_versions=[1, 2], tasks=["a", "b"], trainer_version=4)
    run.staleness(weight_versions=[4], tasks=["b"], trainer_version=4)
    run.commit(0)
    view = barograph.open(run.path)
    assert view.series("sample/staleness/mean").last == pytest.approx(5 / 3)
    assert view.series("sample/staleness/max").last == 3
    assert view.series("sample/model_version/mean").last == pytest.approx(7 / 3)
    assert view.series("sample/task_count").last == 2


def test_many_threads_report_at_once():
    """Nothing is lost and nothing counted twice."""
    run = barograph.init()

    def explore(worker: int) -> None:
        for n in range(500):
            run.rollouts(n % 3).add(task=n, metrics={"r": 1.0}, run=worker)

    threads = [threading.Thread(target=explore, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish()
    assert barograph.open(run.path).series("rollout/coverage/runs_observed").values.sum() == 4000


FIRST = textwrap.dedent("""
    import threading, barograph
    run, together = barograph.init(id="first"), threading.Barrier(12)

    def explore(worker):
        together.wait()
        for number in range(10):
            run.rollouts(0).add(task=number, run=worker, metrics={"r": 1.0})

    threads = [threading.Thread(target=explore, args=(worker,)) for worker in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.commit(0)
""")


def test_threads_that_report_first_at_once_lose_nothing(tmp_path: Path):
    """In a separate process, where all threads wait for the first import and then continue at once."""
    subprocess.run([sys.executable, "-c", FIRST], env={**os.environ, "BAROGRAPH_DIR": str(tmp_path)}, check=True)
    assert barograph.open("first", dir=tmp_path).series("rollout/coverage/runs_observed").last == 120


def _child(run: barograph.Run) -> None:
    run.rollouts(1).add(task="of the child", metrics={"r": 2.0})
    run.commit(1)
    run.finish()


def test_a_forked_child_has_its_own_rollouts():
    """The parent's reports are written once, by the parent; the child starts without any."""
    run = barograph.init()
    run.rollouts(1).add(task="of the parent", metrics={"r": 1.0})
    run.rollouts(0).add(task="of the parent", metrics={"r": 1.0})
    process = multiprocessing.get_context("fork").Process(target=_child, args=(run,))
    process.start()
    process.join()
    view = barograph.open(run.path)
    assert (view.series("rollout/r/mean").values.tolist(), view.series("rollout/r/mean").steps.tolist()) == ([2.0], [1])
    run.commit(0)
    view = barograph.open(run.path)
    assert view.series("rollout/r/mean").values.tolist()[0] == 1.0


def test_parts_are_merged_by_the_driver():
    """Explorers send bytes; the driver merges and closes once."""
    run = barograph.init()
    driver = run.evaluation("s", step=1, repeats=2)
    for worker in range(2):
        part = barograph.init(concurrent=True).evaluation("s", step=1, repeats=2)
        for task in range(3):
            part.add(task=task, run=worker, metrics={"r": worker})
        driver.merge(part.state())
    driver.close(expected_tasks=3)
    view = barograph.open(run.path)
    assert view.series("eval/s/r/mean@2").last == 0.5
    assert view.series("eval/s/r/pass@2").last == 1.0
    assert view.series("eval/s/coverage/tasks_partial").last == 0


EXPLORER = textwrap.dedent("""
    import sys, barograph
    rank = int(sys.argv[1])
    run = barograph.init(id="shared", role="explorer", rank=rank)
    for step in range(2):
        rollouts = run.rollouts(step)
        for task in range(6):
            for number in range(rank, 4, 2):                  # the runs of each task lie in both processes
                rollouts.add(task=task, run=number, metrics={"r": task + number * step})
        rollouts.close(expected_tasks=[f"{task}" for task in range(6)], expected_runs=4)
        run.commit(step)
    run.finish()
""")


def test_reports_of_several_explorers_are_merged_by_the_reader(tmp_path: Path):
    """Two real processes, every task split between them: values and coverage are those of all reports."""
    environment = {**os.environ, "WORLD_SIZE": "2", "BAROGRAPH_DIR": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", EXPLORER, str(rank)], env=environment | {"RANK": str(rank)})
        for rank in range(2)
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    view = barograph.open("shared", dir=tmp_path)
    means = view.series("rollout/r/mean", role="explorer")
    assert means.values.tolist() == [2.5, 2.5 + 1.5]
    for what, value in {"tasks_observed": 6, "runs_observed": 24, "runs_expected": 24, "tasks_partial": 0}.items():
        assert view.series(f"rollout/coverage/{what}", role="explorer").last == value
    assert view.series("rollout/r/mean", role="explorer", rank=0).values.tolist()[1] == 2.5 + 1.0


def of_two_ranks(monkeypatch: pytest.MonkeyPatch) -> list[barograph.Run]:
    monkeypatch.setenv("WORLD_SIZE", "2")
    return [barograph.init(id="two", rank=rank, concurrent=True) for rank in range(2)]


@pytest.mark.parametrize(
    "newer",
    [
        {"plan": {"over_tasks": [], "expected_names": [], "kind": "dream"}},
        {"columns": {"r": ["median", 0]}},
        {"columns": {"r": ["mean", 0], "more": ["mean", 0]}},
        {"answers": []},
        {"runs": None},
    ],
    ids=["kind", "statistic", "arrays", "answers", "runs"],
)
def test_a_state_of_a_newer_version_affects_its_own_step_only(
    monkeypatch: pytest.MonkeyPatch, newer: Mapping[str, object]
):
    """The other steps and the other metrics are read as before."""
    runs = of_two_ranks(monkeypatch)
    for rank, run in enumerate(runs):
        run.log({"loss": 0.5}, step=0)
        for step in range(2 if rank else 1):
            run.rollouts(step).add(task="a", run=rank, metrics={"r": rank})
            run.commit(step)
    part = Gathering()
    part.add("a", 0, {"r": 0.0})
    data = zlib.decompress(pack(part, RolloutPlan("rollout")))
    (length,) = HEAD.unpack_from(data)
    head = json.dumps(json.loads(data[HEAD.size : HEAD.size + length]) | newer).encode()
    state = zlib.compress(HEAD.pack(len(head)) + head + data[HEAD.size + length :])
    runs[0]._recording.journal.packet(Kind.GATHERED, {"kind": "rollout", "taskset": "", "step": 1}, state)
    view = barograph.open(runs[0].path)
    assert "rollout/r/mean" in view.names()
    assert view.series("loss").last == 0.5
    assert view.series("rollout/r/mean").values.tolist() == [0.5]


@pytest.mark.parametrize("committed", [True, False])
def test_handles_closed_before_their_step_has_a_number_are_merged_over_ranks(
    monkeypatch: pytest.MonkeyPatch, committed: bool
):
    """The commit names the step or, without one, the end of the run."""
    runs = of_two_ranks(monkeypatch)
    for rank, run in enumerate(runs):
        for step in (4, 7) if committed else (0,):
            with run.rollouts() as rollouts:
                rollouts.add(task="a", run=rank, metrics={"r": rank + step})
            if committed:
                run.commit(step)
        run.finish()
    means = barograph.open(runs[0].path).series("rollout/r/mean")
    assert (means.steps.tolist(), means.values.tolist()) == (([4, 7], [4.5, 7.5]) if committed else ([0], [0.5]))


def test_reports_with_and_without_the_step_are_merged():
    """Of rollouts, and of an evaluation that continues after the commit; late reports then have a step."""
    run = barograph.init()
    unnamed = run.rollouts()
    unnamed.add("a", {"r": 1.0})
    run.rollouts(0).add("b", {"r": 3.0})
    evaluation = run.evaluation("s", 0)
    evaluation.add("a", {"r": 1.0}, run=0)
    run.evaluation("s").add("a", {"r": 0.0}, run=1)
    run.commit(0)
    unnamed.add("c", {"r": 9.0})
    evaluation.add("a", {"r": 1.0}, run=2)
    evaluation.close()
    run.finish()
    view = barograph.open(run.path)
    assert view.series("rollout/r/mean").values.tolist() == [2.0]
    assert view.series("rollout/coverage/tasks_observed").last == 2
    assert (view.series("rollout/coverage/late").steps.tolist(), view.series("rollout/coverage/late").last) == ([0], 1)
    assert view.series("eval/s/r/mean@3").values.tolist() == [2 / 3]


def test_late_reports_without_a_step_close_no_other_step():
    """They are counted at the step that the commit names; the next step is not affected."""
    run = barograph.init()
    for step in range(3):
        with run.rollouts() as rollouts:
            rollouts.add("a", {"r": step})
        rollouts.add("b", {"r": 9.0})
        run.commit(step)
    run.rollouts(2).add("c", {"r": 9.0})
    run.finish()
    view = barograph.open(run.path)
    assert view.series("rollout/r/mean").values.tolist() == [0.0, 1.0, 2.0]
    assert view.series("rollout/coverage/late").values.tolist() == [1, 1, 1]
